"""Task sets of each kind differ from the recipe's, for the same random state, in one property."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.task_sizes import draw as recipe
from heshare.devices.task_sizes import time_alone_s
from heshare.paper.studies import task_draws
from heshare.paper.studies.task_draws import BURST, BURSTS, EQUAL, HEAVY, HELIOS, WITHOUT_GPT2
from heshare.shared.errors import InputError
from heshare.world.task import Task
from heshare.world.task_set import helios_durations_s

USUAL = recipe(40, rng=np.random.default_rng(1))


def drawn(kind: str) -> tuple[Task, ...]:
    return task_draws.draw(kind, 40, rng=np.random.default_rng(1))


def alone_s(task: Task) -> float:
    return task.iterations * time_alone_s(task.workload)


def test_helios_is_the_recipe() -> None:
    assert list(drawn(HELIOS)) == list(USUAL)


@pytest.mark.parametrize("kind", [EQUAL, HEAVY, BURSTS])
def test_other_sizes_and_arrivals_keep_the_workloads(kind: str) -> None:
    assert [task.workload for task in drawn(kind)] == [task.workload for task in USUAL]


def test_equal_tasks_take_the_mean_of_helios() -> None:
    assert [alone_s(task) for task in drawn(EQUAL)] == pytest.approx([helios_durations_s().mean()] * 40)


def test_heavy_tailed_durations_have_the_mean_of_helios_and_a_wide_spread() -> None:
    durations_s = task_draws.heavy_durations_s()
    assert durations_s.mean() == pytest.approx(helios_durations_s().mean())
    assert 1.8 < durations_s.std() / durations_s.mean() < 2.5


def test_bursts_arrive_four_at_a_time() -> None:
    times_s = [task.arrival_s for task in drawn(BURSTS)]
    assert len(set(times_s)) == 40 / BURST
    assert all(len(set(times_s[at : at + BURST])) == 1 for at in range(0, 40, BURST))


def test_without_gpt2_tasks_take_as_long() -> None:
    found = drawn(WITHOUT_GPT2)
    assert {"gpt2"} <= {task.workload.model for task in USUAL}
    assert "gpt2" not in {task.workload.model for task in found}
    assert [alone_s(task) for task in found] == pytest.approx([alone_s(task) for task in USUAL])


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="durations"):
        task_draws.draw("small", 2, rng=np.random.default_rng(0))
