"""Stated uncertainty: intervals, groups, wider without rows of a network or a GPU, and under a power limit."""

from __future__ import annotations

import math

import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.devices.uncertainty import ALONE, CARD, CELL, NONE, SHARED, SUPPORTS, Spreads, Uncertainty, under_limit
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload


def answer(gpu: str, *residents: Resident, **options):
    return co_run(catalogue.gpu(gpu), residents, **options)


def test_interval():
    """The interval is symmetric in logarithms."""
    low, high = Uncertainty(0.2).interval(2.0)
    assert low * high == pytest.approx(4.0)
    assert high == pytest.approx(2.0 * math.exp(1.645 * 0.2))
    assert Uncertainty().interval(2.0) == (2.0, 2.0)


def test_beside():
    """Independent causes combine as the root of the sum of squares."""
    both = Uncertainty(0.3, 0.1).beside(0.4, 0.0)
    assert (both.total, both.within_framework) == pytest.approx((0.5, 0.1))


def test_co_runners():
    """The spread of co-runners grows with their number and with fewer slices, and is 0 for the whole GPU."""
    groups = {("slowdown", "", way): Uncertainty(0.1) for way in ("mps", "time-slice", "mig")}
    spreads = Spreads(groups)
    assert spreads.beside("mps", 4) == pytest.approx(2.0 * spreads.beside("mps", 1))
    assert spreads.beside("time-slice", 0) == spreads.beside("mig-7g", 3) == 0.0
    found = [spreads.beside(f"mig-{slices}g", 1) for slices in (7, 4, 2, 1)]
    assert found == sorted(found)
    assert spreads.of("time", CELL, ALONE) == Uncertainty()


def test_groups():
    """Every group is fitted, and without rows of the network or the GPU it is never narrower in total."""
    spreads = default().spreads
    for quantity in ("time", "power"):
        for support in SUPPORTS:
            for sharing in (ALONE, SHARED):
                found = spreads.of(quantity, support, sharing)
                assert 0.0 < found.within_framework <= found.total < 1.0
    for sharing in (ALONE, SHARED):
        assert spreads.of("time", NONE, sharing).total > spreads.of("time", CARD, sharing).total
    assert spreads.of("limit").total > 0.0
    assert spreads.of("idle").total > 0.0


@pytest.mark.parametrize(
    ("gpu", "network", "precision", "support"),
    [
        ("T4", "resnet50", "fp32", CELL),
        ("A100", "resnet50", "mixed", CELL),
        ("A100", "resnet50", "fp32", NONE),
        ("H100", "mobilenet", "fp16", NONE),
        ("L4", "resnet50", "fp32", NONE),
    ],
)
@pytest.mark.parametrize("sharing", [ALONE, SHARED])
def test_group_of_answer(gpu: str, network: str, precision: str, support: str, sharing: str):
    """An answer has the uncertainty of its group, and says whether it is anchored."""
    own = Resident(Workload(network, 8, precision), 40)
    found = answer(gpu, *[own] * (2 if sharing == SHARED else 1), power_cap_w=1e4)
    (task, *_), spreads = found.tasks, default().spreads
    assert task.anchored == (support == CELL)
    assert task.uncertainty_parts == spreads.of("time", support, sharing)
    assert found.power_uncertainty_parts == spreads.of("power", support, sharing)


def test_widest_power():
    """The power of residents is as uncertain as that of the least certain one."""
    known, unknown = Resident(Workload("resnet50", 8), 40), Resident(Workload("llama3_8b", 8, "fp16"), 40)
    parts = [answer("A100", one, one, power_cap_w=1e4).power_uncertainty for one in (known, unknown)]
    assert answer("A100", known, unknown, power_cap_w=1e4).power_uncertainty == max(parts)


def test_idle_power():
    """The power of an idle GPU is uncertain, too."""
    assert answer("T4").power_uncertainty_parts == default().spreads.of("idle")


def test_power_limit():
    """A power limit makes power certain and time uncertain."""
    own = Resident(Workload("vgg16", 64))
    free, limited = (answer("A100", own, power_cap_w=cap_w) for cap_w in (1e4, 120.0))
    assert limited.power_uncertainty < free.power_uncertainty
    limit = default().spreads.of("limit").total
    assert limited.tasks[0].uncertainty == pytest.approx(math.hypot(free.tasks[0].uncertainty, limit))


def test_under_limit():
    """A power held by a limit is the more certain the more the demand exceeds it."""
    power = Uncertainty(0.2, 0.1)
    found = [under_limit(power, 100.0, demand_w) for demand_w in (90.0, 100.0, 110.0, 130.0, 1000.0)]
    assert found[0] == found[1] == power
    assert [each.total for each in found[2:]] == sorted((each.total for each in found[2:]), reverse=True)
    assert (found[-1].total, found[-1].within_framework) == (0.02, 0.02)


def test_instances():
    """A task in an instance of the whole GPU is as certain as alone; in a smaller one it is less so."""
    found = [answer("A100", Resident(Workload("gpt2", 8, "tf32"), 100, f"mig-{slices}g")) for slices in (7, 4, 2, 1)]
    parts = [each.tasks[0].uncertainty for each in found]
    assert parts == sorted(parts)
    assert len(set(parts)) == len(parts)
    assert parts[0] == answer("A100", Resident(Workload("gpt2", 8, "tf32"))).tasks[0].uncertainty


def test_training():
    """Time and power of a training are uncertain, beside a co-runner more so."""
    workload = Workload("eaco_vgg16", 32, phase="training")
    alone, beside = (answer("V100", *[Resident(workload, 50)] * count) for count in (1, 2))
    assert alone.power_uncertainty > 0.05
    assert beside.tasks[0].uncertainty > alone.tasks[0].uncertainty > 0.0
