"""One repetition: every policy on the same tasks, with the same random stream. All comparisons run through here."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from heshare.devices.device import Device
from heshare.policies.cached_planner import share_planners
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
    make_policies: Sequence[Callable[[], Policy]],
    make_predictor: MakePredictor,
    make_devices: MakeDevices | None = None,
    start_cost_s: float = 0.0,
) -> Iterator[Run]:
    """Run policies one after the other on the same tasks.

    Policies that plan the same front plan it once, and each is charged for the planning.

    Args:
        seed: of the tasks, and of the stream that each policy gets from its beginning.
        tasks: a task set, or a function that draws one, called as `tasks(rng=...)`.
        cluster: the GPUs.
        make_policies: return the policies.
        make_predictor: returns a predictor; called for each run, so that no run profits from another one's memory.
        make_devices: returns the devices of a run; by default emulated ones.
        start_cost_s: see `run`.

    Yields:
        The run of each policy, as soon as it is over. A run does not depend on the policies that run before it.
    """
    # Children are made by their key: `spawn` would return other children when it is called again on the same object.
    task_seed, policy_seed = (
        np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, child)) for child in (0, 1)
    )
    drawn = tasks(rng=np.random.default_rng(task_seed)) if callable(tasks) else tasks
    policies = [make_policy() for make_policy in make_policies]
    share_planners(policies)
    for policy in policies:
        yield run(
            drawn,
            cluster,
            policy,
            predictor=make_predictor(),
            rng=np.random.default_rng(policy_seed),
            devices=None if make_devices is None else make_devices(cluster),
            start_cost_s=start_cost_s,
        )
