"""One repetition of a comparison: every policy on the same tasks, with the same random stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from heshare.devices.device import Device
from heshare.policies.heshare import share_fronts
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.cluster import Cluster
from heshare.world.task import Task

DrawTasks = Callable[..., Sequence[Task]]
MakePredictor = Callable[[], Predictor]
MakeDevices = Callable[[Cluster], Sequence[Device]]


def repetition(
    seed: np.random.SeedSequence,
    tasks: Sequence[Task] | DrawTasks,
    cluster: Cluster,
    makers: Sequence[Callable[[], Policy]],
    predictor: MakePredictor,
    devices: MakeDevices | None = None,
    start_cost_s: float = 0.0,
) -> Iterator[Run]:
    """Run policies one after the other; those that plan the same front plan it once, and each is charged for it.

    Args:
        seed: of the tasks and of the stream that each policy gets anew.
        tasks: a task set, or a function that draws one, called as `tasks(rng=...)`.
        cluster: the GPUs.
        makers: make the policies.
        predictor: makes a predictor for each run.
        devices: makes the devices of a run; by default emulated ones.
        start_cost_s: see `run`.

    Yields:
        The run of each policy, as soon as it is over. A run is the same whoever runs before it.
    """
    # Seeds are made, not spawned: whoever spawns from the same object twice gets other children.
    of_tasks, of_policies = (np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, i)) for i in (0, 1))
    drawn = tasks(rng=np.random.default_rng(of_tasks)) if callable(tasks) else tasks
    made = [maker() for maker in makers]
    share_fronts(made)
    for policy in made:
        yield run(
            drawn,
            cluster,
            policy,
            predictor=predictor(),
            rng=np.random.default_rng(of_policies),
            devices=None if devices is None else devices(cluster),
            start_cost_s=start_cost_s,
        )
