"""A problem instance by types of GPU: the arrays over all GPUs are made only if they are looked at.

All GPUs of a type take the same time for a task, so n tasks on k GPUs of g types need n x g predictions. The arrays of
`Instance` have n x k: 160 MB for 10,000 tasks on 1,000 GPUs, which takes longer than a short search may.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import Instance, fit_mask, numbered_workloads
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class KindInstance(Instance):
    """Instance of a task set whose predictions are stored by type of GPU.

    Args:
        tasks: the task set.
        cluster: the GPUs.
        time_s: time of each task alone on each type, s, infinite where it does not fit, shape (n, kinds).
        energy_j: its energy, J, likewise.
        needs_mib: memory of each task, MiB, shape (n,).
        ready_s: time at which each GPU can begin, s, shape (k,); empty if all begin at once.
    """

    def __init__(
        self,
        tasks: tuple[Task, ...],
        cluster: Cluster,
        time_s: FloatArray,
        energy_j: FloatArray,
        needs_mib: FloatArray,
        ready_s: FloatArray,
    ) -> None:
        of_kind = {"time_of_kind": time_s, "energy_of_kind": energy_j, "fits_of_kind": np.isfinite(time_s)}
        given = {"tasks": tasks, "cluster": cluster, "needs_mib": needs_mib, "ready_s": ready_s}
        # The base class is frozen; these names are its fields and cached properties.
        for name, value in (*given.items(), *of_kind.items()):
            object.__setattr__(self, name, value)

    @cached_property
    def time_s(self) -> FloatArray:
        """Time of each task on each GPU, s, shape (n, k)."""
        return self.time_of_kind[:, self.kind_of]

    @cached_property
    def energy_j(self) -> FloatArray:
        """Energy of each task on each GPU, J, shape (n, k)."""
        return self.energy_of_kind[:, self.kind_of]

    @cached_property
    def fits(self) -> BoolArray:
        """Whether each task fits each GPU, shape (n, k)."""
        return self.fits_of_kind[:, self.kind_of]

    def part(self, tasks: IntArray, gpus: IntArray) -> Instance:
        """Return the instance of some tasks on some GPUs, both given by index in the wanted order."""
        places = np.ix_(tasks, self.kind_of[gpus])
        return Instance(
            tuple([self.tasks[task] for task in tasks.tolist()]),
            Cluster(tuple([self.cluster.gpus[gpu] for gpu in gpus.tolist()])),
            self.time_of_kind[places],
            self.energy_of_kind[places],
            self.fits_of_kind[places],
            self.needs_mib[tasks],
            self.begin_s[gpus],
        )


def make_kind_instance(
    tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, ready_s: FloatArray | None = None
) -> KindInstance:
    """Return the instance of a task set with the values of `make_instance`, by type of GPU; same arguments.

    Raises:
        InputError: there is no task, or a task fits no GPU.
    """
    workloads, workload_of = numbered_workloads(tasks)
    iterations = np.array([task.iterations for task in tasks])
    needs_mib = np.array([memory_mib(workload) for workload in workloads])[workload_of] if workloads else np.zeros(0)
    fits = needs_mib[:, None] <= np.array([gpu.memory_mib for gpu in cluster.kinds])
    if not len(fits) or not fits.any(axis=1).all():
        fit_mask(tasks, cluster)  # raises, with the task that fits no GPU
    time_s, energy_j = np.empty(fits.shape), np.empty(fits.shape)
    for kind, gpu in enumerate(cluster.kinds):
        alone = predictor.solo(workloads, gpu)
        time_s[:, kind] = alone.time_s[workload_of, 0] * iterations
        energy_j[:, kind] = time_s[:, kind] * alone.power_w[workload_of]
    time_s[~fits], energy_j[~fits] = np.inf, np.inf
    begin_s = np.zeros(0) if ready_s is None else np.asarray(ready_s, dtype=np.float64)
    return KindInstance(tuple(tasks), cluster, time_s, energy_j, needs_mib, begin_s)
