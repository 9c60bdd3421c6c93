"""Ways to draw task sets: by MISO's recipe from Helios, and with one property changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

import numpy as np
from scipy.special import ndtri

from heshare.devices.task_sizes import draw as recipe
from heshare.devices.task_sizes import time_alone_s
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import unknown
from heshare.world.task import Task
from heshare.world.task_set import PERCENTILES, TaskOptions, helios_durations_s, task_set

HELIOS, EQUAL, HEAVY = "helios", "equal", "heavy tail"
"""Task sizes by MISO's recipe from Helios; all equal; log-normal. All have the same mean duration."""
WITHOUT_GPT2, BURSTS = "without GPT-2", "bursts"
"""By the recipe with BERT Large in place of GPT-2; by the recipe, with tasks that arrive four at a time."""
BURST = 4
"""Number of tasks in a burst."""
BURST_INTERVAL_S = 300.0
"""Mean time between two tasks where they arrive in bursts, s."""
HEAVY_SIGMA = 1.5
"""Standard deviation of the logarithm of the heavy-tailed durations."""


def draw(kind: str, n: int, *, rng: np.random.Generator, **options: Unpack[TaskOptions]) -> tuple[Task, ...]:
    """Return a task set that differs from the recipe's, for the same random state, in the property of its kind.

    Args:
        kind: one of `KINDS`.
        n: the number of tasks.
        rng: the random state.
        options: the other arguments of `heshare.devices.task_sizes.draw`.

    Raises:
        InputError: no such kind.
    """
    if kind not in KINDS:
        raise unknown(kind, KINDS, column="durations")
    return KINDS[kind](n, rng, options)


def _of_durations(durations_s: FloatArray, n: int, rng: np.random.Generator, options: TaskOptions) -> tuple[Task, ...]:
    """Return tasks whose durations are drawn from as many values as the recipe has percentiles.

    The same random state then draws the same models, and durations of the same rank.
    """
    return task_set(n, rng=rng, time_alone_s=time_alone_s, percentiles=durations_s, **options)


def equal_durations_s() -> FloatArray:
    """Return equal durations, s: the mean of Helios' percentiles."""
    return np.full(PERCENTILES, helios_durations_s().mean())


def heavy_durations_s() -> FloatArray:
    """Return log-normal durations, s, with the mean of Helios' percentiles."""
    quantiles = (np.arange(PERCENTILES) + 0.5) / PERCENTILES
    drawn = np.exp(HEAVY_SIGMA * np.asarray(ndtri(quantiles), dtype=np.float64))
    return np.asarray(drawn * (helios_durations_s().mean() / drawn.mean()))


def _by_recipe(n: int, rng: np.random.Generator, options: TaskOptions) -> tuple[Task, ...]:
    return tuple(recipe(n, rng=rng, **options))


def _equal(n: int, rng: np.random.Generator, options: TaskOptions) -> tuple[Task, ...]:
    return _of_durations(equal_durations_s(), n, rng, options)


def _heavy(n: int, rng: np.random.Generator, options: TaskOptions) -> tuple[Task, ...]:
    return _of_durations(heavy_durations_s(), n, rng, options)


def _without_gpt2(n: int, rng: np.random.Generator, options: TaskOptions) -> tuple[Task, ...]:
    return tuple(_bert_for_gpt2(task) for task in _by_recipe(n, rng, options))


def _bert_for_gpt2(task: Task) -> Task:
    """Return a task of BERT Large that takes as long alone, for one of GPT-2."""
    if task.workload.model != "gpt2":
        return task

    instead = replace(task.workload, model="bert_large")
    scale = time_alone_s(task.workload) / time_alone_s(instead)
    return replace(task, workload=instead, iterations=task.iterations * scale)


def _in_bursts(n: int, rng: np.random.Generator, options: TaskOptions) -> tuple[Task, ...]:
    tasks = _by_recipe(n, rng, options)
    bursts = -(-n // BURST)
    between_s = rng.poisson(BURST * BURST_INTERVAL_S, size=bursts)
    at_s = np.cumsum(between_s).astype(float)
    return tuple(replace(task, arrival_s=float(at_s[place // BURST])) for place, task in enumerate(tasks))


KINDS: dict[str, Callable[[int, np.random.Generator, TaskOptions], tuple[Task, ...]]] = {
    HELIOS: _by_recipe,
    EQUAL: _equal,
    HEAVY: _heavy,
    WITHOUT_GPT2: _without_gpt2,
    BURSTS: _in_bursts,
}
"""The function that draws each kind of task set, called with the number of tasks, the random state and the rest."""
