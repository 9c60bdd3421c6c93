"""Errors of the forms for training: those that data/README.md states."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.calibration import training_validation
from heshare.systems.shared.time_slicing import time_slice_slowdown


def test_mig_instance_errors():
    errors = training_validation.mig_instance_errors()
    assert len(errors) == 145 - 32
    assert errors["error"].abs().mean() == pytest.approx(0.12, abs=0.005)
    by_slices = errors["error"].abs().groupby(errors["slices"]).mean()
    assert by_slices[4] == pytest.approx(0.09, abs=0.005)
    assert by_slices[1] == pytest.approx(0.19, abs=0.005)


@pytest.mark.parametrize(("sharing", "error", "rank"), [("time-slice", 0.28, 0.35), ("mps", 0.34, 0.30)])
def test_pair_errors(sharing, error, rank):
    errors = training_validation.pair_errors(sharing)
    assert len(errors) == 2 * 330
    assert errors["error"].abs().mean() == pytest.approx(error, abs=0.005)
    assert errors["modelled"].corr(errors["measured"], method="spearman") == pytest.approx(rank, abs=0.005)


def test_pair_errors_are_smaller_than_those_of_one_slowdown_for_all_pairs():
    measured = training_validation.pair_errors()["measured"]
    # The geometric mean.
    same = np.exp(np.log(measured).mean())
    assert (same / measured - 1).abs().mean() == pytest.approx(0.35, abs=0.005)


def test_time_slice_slowdown_beside_a_server_at_half_load():
    assert 1 / time_slice_slowdown([0.5, 1.0]) == pytest.approx(0.64, abs=0.005)


def test_power_limit_errors():
    errors = training_validation.power_limit_errors()
    assert len(errors) == 36
    assert errors["error"].abs().mean() == pytest.approx(0.047, abs=0.002)
    assert errors.loc[errors["limit_w"] >= 150, "error"].abs().mean() == pytest.approx(0.032, abs=0.002)
    # One number for the card; each network's comes from the other three.
    assert errors["fixed_w"].between(60, 70).all()
    assert errors.groupby("model")["fixed_w"].nunique().eq(1).all()
