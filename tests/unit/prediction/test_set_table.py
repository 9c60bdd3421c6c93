"""Predictions of training, time slices and MIG, equal for all predictors."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from heshare.devices.device_model import co_run
from heshare.lab.systems.shared import training
from heshare.prediction.load import load_predictor
from heshare.prediction.set_table import TIME_CV, SetTable
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

V100 = gpu("V100")
CNN = Resident(Workload("resnet50", 8), 50)


def time_sliced(*workloads):
    return tuple(Resident(one, 100, "time-slice") for one in workloads)


def eaco(*places):
    """Trainings of EaCO's record."""
    return [training.workloads("eaco")[place] for place in places]


@pytest.fixture(scope="module")
def predictor():
    return load_predictor()


def test_error_of_a_set(predictor):
    """A set is predicted with an error that the set determines."""
    pair = time_sliced(*eaco(0, 3))
    true = co_run(V100, pair)
    predicted = predictor.co_run([pair, pair[::-1]], V100, [None, V100.max_mhz])
    assert predicted.time_s[0].tolist() == predicted.time_s[1].tolist()[::-1]
    ratio = predicted.time_s[0] / [task.time_s for task in true.tasks]
    assert (ratio != 1).all()
    assert np.abs(np.log(ratio)).max() < 5 * TIME_CV
    assert SetTable().predict(V100, pair, None)[0] == predicted.time_s[0].tolist()


def test_spread():
    """Errors have the stated spread."""
    table = SetTable()
    pairs = [time_sliced(*pair) for pair in combinations_with_replacement(training.workloads("gavel"), 2)]
    ratios = [
        predicted / task.time_s
        for pair in pairs
        for predicted, task in zip(table.predict(V100, pair, None)[0], co_run(V100, pair).tasks, strict=True)
    ]
    assert np.std(ratios) == pytest.approx(TIME_CV, rel=0.1)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.01)


def test_mixed_call(predictor):
    """Profiled sets and sets of trainings are predicted in one call."""
    asked = [(CNN, CNN), time_sliced(*eaco(0, 1, 3)), time_sliced(*eaco(2)), (CNN,), ()]
    calls = predictor.calls
    together = predictor.co_run(asked, V100, [None] * len(asked))
    assert predictor.calls - calls >= 3
    for row, residents in enumerate(asked):
        own = predictor.co_run([residents], V100, [None])
        np.testing.assert_array_equal(together.time_s[row, : len(residents)], own.time_s[0])
        assert np.isnan(together.time_s[row, len(residents) :]).all()
        assert together.power_w[row] == own.power_w[0]
    before = predictor.calls
    predictor.co_run(asked, V100, [None] * len(asked))
    assert predictor.calls == before
    (alone,) = time_sliced(*eaco(2))
    assert together.time_s[2, 0] == co_run(V100, [alone]).tasks[0].time_s
