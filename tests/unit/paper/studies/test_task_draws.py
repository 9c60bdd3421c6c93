"""Task sets of each kind differ from the recipe's, for the same random state, in one property."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.task_sizes import draw as recipe
from heshare.devices.task_sizes import time_alone_s
from heshare.paper.studies import task_draws
from heshare.paper.studies.task_draws import BURST, BURSTS, EQUAL, HEAVY, HELIOS, WITHOUT_GPT2
from heshare.world.task import Task
from heshare.world.task_set import helios_durations_s


def usual() -> tuple[Task, ...]:
    return tuple(recipe(40, rng=np.random.default_rng(1)))


def drawn(kind: str) -> tuple[Task, ...]:
    return task_draws.draw(kind, 40, rng=np.random.default_rng(1))


def alone_s(task: Task) -> float:
    return task.iterations * time_alone_s(task.workload)


def test_one_property_differs() -> None:
    """Helios is the recipe; other sizes and arrivals keep its workloads; equal tasks take its mean."""
    assert list(drawn(HELIOS)) == list(usual())
    for kind in (EQUAL, HEAVY, BURSTS):
        assert [task.workload for task in drawn(kind)] == [task.workload for task in usual()]
    assert [alone_s(task) for task in drawn(EQUAL)] == pytest.approx([helios_durations_s().mean()] * 40)


def test_heavy_tail() -> None:
    """Heavy tailed durations have the mean of helios and a wide spread."""
    durations_s = task_draws.heavy_durations_s()
    assert durations_s.mean() == pytest.approx(helios_durations_s().mean())
    assert 1.8 < durations_s.std() / durations_s.mean() < 2.5


def test_bursts() -> None:
    """Bursts arrive four at a time."""
    times_s = [task.arrival_s for task in drawn(BURSTS)]
    assert len(set(times_s)) == 40 / BURST
    assert all(len(set(times_s[at : at + BURST])) == 1 for at in range(0, 40, BURST))


def test_without_gpt2() -> None:
    """Without GPT-2 tasks take as long."""
    found = drawn(WITHOUT_GPT2)
    assert {"gpt2"} <= {task.workload.model for task in usual()}
    assert "gpt2" not in {task.workload.model for task in found}
    assert [alone_s(task) for task in found] == pytest.approx([alone_s(task) for task in usual()])
