"""The table of workload sets: options of batches against `BatchModel`, sets without options, what is asked for."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus import batch_table
from heshare.lab.plus.batch_table import BatchChoices, BatchOptions, BatchTable
from heshare.scheduling.batch_model import EMPTY, Batches, BatchModel
from heshare.scheduling.objectives import make_instance
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


def table_of(tasks: tuple[Task, ...], cluster: str = "1xT4,1xA100", choices: BatchChoices | None = None) -> BatchTable:
    toy = Toy(demand=DEMANDS)
    return BatchTable(make_instance(tasks, Cluster.parse(cluster), toy), toy, choices or BatchChoices(clocks=4))


def every_set(n: int, width: int) -> np.ndarray:
    sets = [members for size in range(1, width + 1) for members in combinations(range(n), size)]
    return np.array([(*members, *[EMPTY] * (width - len(members))) for members in sets])


def set_of_option(options: BatchOptions) -> np.ndarray:
    return np.repeat(np.arange(len(options.begin) - 1), np.diff(options.begin))


@pytest.mark.parametrize("kind", [0, 1])
def test_option_values(kind: int) -> None:
    """Options cost what the batch model computes."""
    table = table_of(mixed_tasks(7))
    sets = every_set(7, 3)[:, [1, 0, 2]]  # members in any order
    sets = np.array([sorted(row, key=lambda task: task == EMPTY) for row in sets.tolist()])
    options = table.options(kind, sets)
    tasks = sets[set_of_option(options)]
    pct = np.where(tasks == EMPTY, 100, options.mps_pct)
    run = BatchModel(table.instance, Toy(demand=DEMANDS)).execute(
        Batches(np.full(len(tasks), kind), tasks, pct, options.sm_mhz), piecewise=True
    )
    expected = np.stack((run.energy_j, run.time_s.sum(axis=1), run.end_s), axis=1)
    np.testing.assert_allclose(options.values, expected, rtol=1e-12)
    assert (options.mps_pct[tasks == EMPTY] == 0).all()


def test_independent_sets() -> None:
    """Options do not depend on the other sets."""
    table = table_of(mixed_tasks(6))
    sets = every_set(6, 3)
    together = table.options(1, sets)
    rows = [table.options(1, sets[[row]]) for row in range(len(sets))]
    for name in ("values", "sm_mhz", "mps_pct"):
        np.testing.assert_array_equal(getattr(together, name), np.concatenate([getattr(row, name) for row in rows]))


def test_predictions() -> None:
    """Three tasks of three workloads: no set has a workload twice."""
    tasks = tuple(Task(number, Workload("resnet18", 2**number), 10.0) for number in range(3))
    toy = Toy(demand=DEMANDS)
    instance = make_instance(tasks, Cluster.parse("1xA100"), toy)
    before = toy.calls
    table = BatchTable(instance, toy, BatchChoices(clocks=2, mps_variants=1, mps_pcts=(100,)))
    # 3 alone, 3 pairs and 1 set of three at each clock.
    assert table.arrays.begin[-1] == 2 * (3 + 3 + 1)
    asked = toy.calls - before
    table.options(0, every_set(3, 3))
    assert toy.calls - before == asked


def test_many_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Task sets with many workloads have smaller batches."""
    # Of 7 workloads there are 7 sets of one, 28 of two and 84 of three.
    tasks = tuple(Task(number, Workload("resnet18", 2**number), 10.0) for number in range(7))
    assert table_of(tasks).width == 3
    monkeypatch.setattr(batch_table, "MOST_WORKLOAD_SETS", 100)
    assert table_of(tasks).width == 2


def test_memory() -> None:
    """Sets that do not fit have no options."""
    tasks = tuple(Task(i, Workload("gpt2", 64), 10.0 + i) for i in range(3))
    table = table_of(tasks, "1xT4,1xA100")
    sets = every_set(3, 3)
    has_options = np.diff(table.options(0, sets).begin) > 0
    present = sets != EMPTY
    needs_mib = np.where(present, table.instance.needs_mib[sets], 0.0).sum(axis=1)
    gpu = table.instance.kinds[0]
    fit_together = (needs_mib <= gpu.memory_mib) & (present.sum(axis=1) <= gpu.mps_clients)
    np.testing.assert_array_equal(has_options, fit_together)
    assert has_options.any()
    assert not has_options.all()
