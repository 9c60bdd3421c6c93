"""The experimental design: points that differ, are balanced, and are the same for the same seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from heshare.profiles import design
from heshare.profiles.design import Point
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu, memory_mib, paper_models
from heshare.world.workload import Resident, Workload, parse_resident


def _points(name: str, count: int, seed: int = 1) -> list[Point]:
    return design.samples(gpu(name), count, rng=np.random.default_rng(seed))


def test_references() -> None:
    """References are every workload alone at the top clock."""
    points = design.references(gpu("A100"))
    assert len(points) == len(paper_models()) * len(design.BATCH_SIZES) == 90
    assert {(point.co_runners, point.target.mps_pct, point.sm_mhz) for point in points} == {((), 100, 1410)}


@pytest.mark.parametrize("name", ["T4", "V100", "A100"])
def test_samples(name: str) -> None:
    """Samples differ, fit, and are no references."""
    card, points = gpu(name), _points(name, 334)
    assert len(set(map(str, points))) == 334
    assert not set(points) & set(design.references(card))
    for point in points:
        assert point.sm_mhz in card.clocks_mhz
        tasks = (point.target, *point.co_runners)
        assert sum(memory_mib(task.workload) for task in tasks) <= card.memory_mib
        assert len(tasks) <= card.mps_clients
        assert {task.mps_pct for task in tasks} <= set(design.MPS_PCTS)


def test_balance() -> None:
    """Samples are balanced over their levels."""
    points = _points("A100", 320)
    targets = Counter(point.target.workload.model for point in points)
    assert max(targets.values()) - min(targets.values()) <= 4
    full = [point for point in points if all(task.mps_pct == 100 for task in (point.target, *point.co_runners))]
    assert 0.4 < sum(bool(point.co_runners) for point in full) / sum(bool(point.co_runners) for point in points) < 0.6
    shares = Counter(point.target.mps_pct for point in points if point not in full)
    assert max(shares[pct] for pct in range(10, 100, 10)) < 3 * min(shares[pct] for pct in range(10, 100, 10))
    assert sum(point.sm_mhz == 1410 for point in points) >= 80
    spread = np.sort([point.sm_mhz for point in points if point.sm_mhz < 1410])
    assert np.abs(np.quantile(spread, [0.25, 0.5, 0.75]) - [510, 810, 1110]).max() < 60


def test_seed() -> None:
    """Samples depend on the seed alone, and are divided evenly among GPUs."""
    assert _points("T4", 40) == _points("T4", 40)
    assert _points("T4", 40) != _points("T4", 40, seed=2)
    assert design.split_evenly(1000, 3) == [334, 333, 333]


def test_spelling() -> None:
    """A point sorts its co-runners."""
    vgg, bert = parse_resident("vgg19:8@50"), parse_resident("bert_large:4@20")
    target = parse_resident("resnet50:4@30")
    assert Point(target, (vgg, bert), 1410) == Point(target, (bert, vgg), 1410)
    assert str(Point(target, (vgg, bert), 1410)) == "resnet50:4@30+bert_large:4@20+vgg19:8@50/1410"


def test_refusals() -> None:
    """Negative counts and mixed precisions are refused."""
    with pytest.raises(InputError, match="at least 0"):
        _points("T4", -1)
    mixed = Resident(Workload("vgg19", 8, "fp16"), 50)
    with pytest.raises(InputError, match="one precision"):
        Point(parse_resident("resnet50:4@30"), (mixed,), 1410)
