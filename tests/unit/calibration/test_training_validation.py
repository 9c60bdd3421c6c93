"""Errors of the forms for training: those that data/README.md states."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.calibration import training_validation
from heshare.devices.device_model import co_run
from heshare.systems.shared import training
from heshare.systems.shared.time_slicing import time_slice_slowdown
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident


def pair_errors(sharing: str = "time-slice") -> pd.DataFrame:
    """Return Gavel's pairs on V100 beside the device model, two rows a pair: measured and modelled slowdown, error.

    Their record does not state how they shared the GPU.
    """
    rows = []
    for pair, measured in training.measured_pairs():
        estimate = co_run(gpu("V100"), [Resident(workload, 100, sharing) for workload in pair])
        for own, slowdown, task in zip(pair, measured, estimate.tasks, strict=True):
            rows.append((slowdown, task.time_s / training.step(own).step_s))
    table = pd.DataFrame(rows, columns=["measured", "modelled"])
    return table.assign(error=table["modelled"] / table["measured"] - 1)


def test_mig_instance_errors():
    errors = training_validation.mig_instance_errors()
    assert len(errors) == 145 - 32
    assert errors["error"].abs().mean() == pytest.approx(0.12, abs=0.005)
    by_slices = errors["error"].abs().groupby(errors["slices"]).mean()
    assert by_slices[4] == pytest.approx(0.09, abs=0.005)
    assert by_slices[1] == pytest.approx(0.19, abs=0.005)


@pytest.mark.parametrize(("sharing", "error", "rank"), [("time-slice", 0.28, 0.35), ("mps", 0.34, 0.30)])
def test_pair_errors(sharing, error, rank):
    errors = pair_errors(sharing)
    assert len(errors) == 2 * 330
    assert errors["error"].abs().mean() == pytest.approx(error, abs=0.005)
    assert errors["modelled"].corr(errors["measured"], method="spearman") == pytest.approx(rank, abs=0.005)


def test_pair_errors_are_smaller_than_those_of_one_slowdown_for_all_pairs():
    measured = pair_errors()["measured"]
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
