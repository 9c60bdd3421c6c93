"""Policies side by side: the same task sets, the same beliefs, the same devices, many repetitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from heshare.devices.device import Device
from heshare.errors import InputError
from heshare.policies.heshare import share_fronts
from heshare.policies.policy import Policy
from heshare.policies.registry import make, title
from heshare.prediction.predictor import Predictor
from heshare.running.run import run
from heshare.world.cluster import Cluster
from heshare.world.task import Task

DrawTasks = Callable[..., Sequence[Task]]
MakePredictor = Callable[[], Predictor]
MakeDevices = Callable[[Cluster], Sequence[Device]]
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
) -> pd.DataFrame:
    """Run every policy on the same task set, once for each repetition.

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
    children = np.random.SeedSequence(seed).spawn(seeds)
    jobs = (
        delayed(_repetition)(number, child, tasks, cluster, makers, predictor, devices, start_cost_s)
        for number, child in enumerate(children)
    )
    done = Parallel(n_jobs=n_jobs, return_as="generator")(jobs)
    rows = [row for rows in tqdm(done, total=seeds, desc="repetitions", disable=not progress) for row in rows]
    return pd.DataFrame(rows)


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


def _repetition(
    number: int,
    seed: np.random.SeedSequence,
    tasks: Sequence[Task] | DrawTasks,
    cluster: Cluster,
    makers: Sequence[Callable[[], Policy]],
    predictor: MakePredictor,
    devices: MakeDevices | None,
    start_cost_s: float,
) -> list[dict[str, float | int | str]]:
    """The rows of one repetition."""
    of_tasks, of_policies = seed.spawn(2)
    drawn = tasks(rng=np.random.default_rng(of_tasks)) if callable(tasks) else tasks
    made = [maker() for maker in makers]
    share_fronts(made)
    rows = []
    for policy in made:
        result = run(
            drawn,
            cluster,
            policy,
            predictor=predictor(),
            rng=np.random.default_rng(of_policies),
            devices=None if devices is None else devices(cluster),
            start_cost_s=start_cost_s,
        )
        rows.append({"repetition": number, "policy": policy.name, "title": title(policy.name), **result.summary()})
    return rows
