"""The errors that data/README.md states are those that the tables give."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.sharing import checks
from heshare.devices.sharing.apart import sliced


def test_instances_without_a_table():
    found = checks.instances()
    assert len(found) == 145 - 32
    assert found["error"].abs().mean() == pytest.approx(0.12, abs=0.005)
    by_slices = found["error"].abs().groupby(found["slices"]).mean()
    assert by_slices[4] == pytest.approx(0.09, abs=0.005)
    assert by_slices[1] == pytest.approx(0.19, abs=0.005)


@pytest.mark.parametrize(("sharing", "error", "rank"), [("time-slice", 0.28, 0.35), ("mps", 0.34, 0.30)])
def test_pairs_of_trainings(sharing, error, rank):
    found = checks.pairs(sharing)
    assert len(found) == 2 * 330
    assert found["error"].abs().mean() == pytest.approx(error, abs=0.005)
    assert found["modelled"].corr(found["measured"], method="spearman") == pytest.approx(rank, abs=0.005)


def test_one_number_for_all_pairs_would_be_worse():
    measured = checks.pairs()["measured"]
    # The geometric mean.
    same = np.exp(np.log(measured).mean())
    assert (same / measured - 1).abs().mean() == pytest.approx(0.35, abs=0.005)


def test_a_training_beside_a_server_at_half_load():
    assert 1 / sliced([0.5, 1.0]) == pytest.approx(0.64, abs=0.005)


def test_trainings_under_power_limits():
    found = checks.limits()
    assert len(found) == 36
    assert found["error"].abs().mean() == pytest.approx(0.047, abs=0.002)
    assert found.loc[found["limit_w"] >= 150, "error"].abs().mean() == pytest.approx(0.032, abs=0.002)
    # One number for the card; each network's comes from the other three.
    assert found["fixed_w"].between(60, 70).all()
    assert found.groupby("model")["fixed_w"].nunique().eq(1).all()
