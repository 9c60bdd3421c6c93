"""Policies side by side: the same task sets, the same beliefs, the same devices, many repetitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from heshare.errors import InputError
from heshare.policies.policy import Policy
from heshare.policies.registry import make, title
from heshare.running.engine import LOCAL, each
from heshare.running.repetition import DrawTasks, MakeDevices, MakePredictor, repetition
from heshare.world.cluster import Cluster
from heshare.world.task import Task

WALL_TIME = ("planning_s",)
"""Columns of a comparison that are wall time: they differ from run to run and are left out of recorded results."""


def compare(
    tasks: Sequence[Task] | DrawTasks,
    cluster: Cluster,
    policies: Sequence[str | Callable[[], Policy]],
    *,
    predictor: MakePredictor,
    seed: int,
    seeds: int = 10,
    devices: MakeDevices | None = None,
    start_cost_s: float = 0.0,
    n_jobs: int = 1,
    progress: bool = False,
    engine: Any = LOCAL,
) -> pd.DataFrame:
    """Run every policy on the same task set, once for each repetition.

    For anything that text can describe, `heshare.running.sweep.sweep` does the same over whole grids, and keeps what
    is finished.

    Within a repetition all policies get the same tasks and the same random stream, and those that plan the same front
    plan it once (each is charged for it). Repetitions are independent, by `SeedSequence.spawn`.

    Args:
        tasks: a task set, or a function that draws one, called as `tasks(rng=...)` for each repetition, such as
            `functools.partial(task_set, 60, time_alone_s=...)`.
        cluster: the GPUs.
        policies: names of the registry, or functions that make a policy.
        predictor: makes the predictor; called for each run, so that no run profits from another one's memory.
        seed: of all repetitions.
        seeds: how many repetitions.
        devices: makes the devices of a run; by default emulated ones.
        start_cost_s: see `run`.
        n_jobs: processes; the result does not depend on it. Functions must then be picklable.
        progress: show a progress bar over repetitions.
        engine: where repetitions run, see `heshare.running.engine.each`.

    Returns:
        One row a repetition and policy: columns repetition, policy, title, then those of `Run.summary`. The last one,
        planning_s, is wall time (`WALL_TIME` names such columns).

    Raises:
        InputError: no policy, no repetition, or an unknown policy.
    """
    if seeds < 1 or not policies:
        raise InputError(
            column="compare",
            found=f"{len(policies)} policies, {seeds} repetitions",
            expected="at least one of each",
            action="Name the policies and the number of repetitions.",
        )
    makers = [_maker(policy) for policy in policies]
    about = (tasks, cluster, makers, predictor, devices, start_cost_s)
    jobs = [(number, child, about) for number, child in enumerate(np.random.SeedSequence(seed).spawn(seeds))]
    done = each(_repetition, jobs, engine=engine, n_jobs=n_jobs)
    rows = dict(tqdm(done, total=seeds, desc="repetitions", disable=not progress))
    return pd.DataFrame([row for number in range(seeds) for row in rows[number]])


class _Named:
    """Makes a policy of the registry; picklable, unlike the registry's own functions in another process's order."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> Policy:
        return make(self.name)


def _maker(policy: str | Callable[[], Policy]) -> Callable[[], Policy]:
    if isinstance(policy, str):
        make(policy)
        return _Named(policy)
    return policy


def _repetition(job: tuple[int, np.random.SeedSequence, tuple[Any, ...]]) -> list[dict[str, float | int | str]]:
    """The rows of one repetition."""
    number, seed, about = job
    return [
        {"repetition": number, "policy": done.policy, "title": title(done.policy), **done.summary()}
        for done in repetition(seed, *about)
    ]
