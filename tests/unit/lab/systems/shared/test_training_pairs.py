"""Trainings beside each other: measured pairs, similar ones, other GPUs, and sets of three."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from heshare.devices.device_model import co_run
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.training_pairs import pair_slowdown, pair_uncertainty, record, similar_slowdown
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

V100, A100 = gpu("V100"), gpu("A100")
SMALL, LARGE = (Workload("gavel_resnet50", size, phase="training") for size in (16, 128))
LM = Workload("gavel_lm", 5, phase="training")
EACO = Workload("eaco_alexnet", 32, phase="training")


def slowdowns(card, *workloads, sharing="time-slice"):
    estimate = co_run(card, [Resident(one, 100, sharing) for one in workloads], power_cap_w=10_000)
    alone_s = [co_run(card, [Resident(one)], power_cap_w=10_000).tasks[0].time_s for one in workloads]
    return [task.time_s / time_s for task, time_s in zip(estimate.tasks, alone_s, strict=True)]


def test_measured_pairs():
    """Measured pairs have the measured slowdowns."""
    for pair, measured in training.measured_pairs():
        assert slowdowns(V100, *pair) == pytest.approx([max(1.0, value) for value in measured])


def test_measured_pairs_under_mps():
    """Under MPS measured pairs have at least the measured slowdowns."""
    modelled, known = [], []
    for pair, measured in training.measured_pairs():
        modelled += slowdowns(V100, *pair, sharing="mps")
        known += [max(1.0, value) for value in measured]
    assert all(own >= least * (1 - 1e-9) for own, least in zip(modelled, known, strict=True))
    assert np.mean(modelled) == pytest.approx(np.mean(known), rel=0.05)


def test_next_size():
    """A pair that was not measured is near the same networks at the next size."""
    assert (LARGE, LM) not in record()
    assert (own := pair_slowdown("V100", LARGE, LM)) is not None
    assert own == pytest.approx(record()[Workload("gavel_resnet50", 64, phase="training"), LM], rel=0.1)
    assert 0 == pair_uncertainty("V100", SMALL, LM) < pair_uncertainty("V100", LARGE, LM)
    assert pair_uncertainty("V100", LARGE, LM) < pair_uncertainty("A100", SMALL, LM)


def test_similar_slowdown():
    """The slowdown of a similar pair is the weighted geometric mean of known ones."""
    half, twice = (Workload("gavel_lm", size, phase="training") for size in (10, 40))
    own = Workload("gavel_lm", 20, phase="training")
    assert similar_slowdown(own, SMALL, {(half, SMALL): 2.0, (twice, SMALL): 8.0}) == pytest.approx(4.0)
    # One doubling more is 16 times less weight.
    assert similar_slowdown(half, SMALL, {(half, SMALL): 1.0, (own, SMALL): 2.0}) == pytest.approx(2 ** (1 / 17))


def test_other_record():
    """A pair with a workload of another record takes turns."""
    assert pair_slowdown("V100", LM, EACO) is None
    busy = training.step(LM).busy
    assert slowdowns(V100, LM, EACO) == pytest.approx([1.035] * 2)
    assert busy < 0.5


def test_third_training():
    """A further training of the record adds its part."""
    sets = [(SMALL,), (SMALL, LM), (SMALL, LM, LARGE), (SMALL, LM, LARGE, EACO)]
    slower = [slowdowns(V100, *members)[0] for members in sets]
    assert all(more >= less for less, more in pairwise(slower))
    assert slower[2] == pytest.approx(1 + sum(pair_slowdown("V100", SMALL, other) - 1 for other in (LM, LARGE)))
