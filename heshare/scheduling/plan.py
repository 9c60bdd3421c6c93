"""Plans: which task runs on which GPU, in which batch, at which MPS percentage and clock (Eqs. 1-3, 11-12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heshare.errors import PlanError
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks that start together on a GPU and run under MPS until the last one ends (Eq. 11).

    Attributes:
        tasks: task ids.
        mps_pct: the MPS percentage of each, in the same order.
        sm_mhz: the GPU's clock during the batch, MHz; None leaves the card to itself.
    """

    tasks: tuple[int, ...]
    mps_pct: tuple[int, ...]
    sm_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete decision for a task set on a cluster; one that no GPU could run cannot be built.

    Attributes:
        cluster: the GPUs.
        tasks: the task set.
        queues: for each GPU, its batches in order of execution.
        energy_j: predicted energy, active account, J.
        jct_s: predicted average job completion time, s.

    Raises:
        PlanError: a task is missing or doubled, a batch does not fit the GPU's memory, has more clients than MPS
            allows, or names a clock that the GPU does not offer.
    """

    cluster: Cluster
    tasks: tuple[Task, ...]
    queues: tuple[tuple[Batch, ...], ...]
    energy_j: float
    jct_s: float

    def __post_init__(self) -> None:
        check_queues(self.cluster, self.tasks, self.queues)

    @property
    def scheme(self) -> dict[int, int]:
        """The scheme S (Eq. 1): the GPU's index by task id."""
        return {task: gpu for gpu, queue in enumerate(self.queues) for batch in queue for task in batch.tasks}


def check_queues(cluster: Cluster, tasks: Sequence[Task], queues: Sequence[Sequence[Batch]]) -> None:
    """Raise `PlanError` unless the queues are a plan for the tasks on the cluster (Eqs. 2 and 12)."""
    if len(queues) != len(cluster):
        raise _bad(f"queues for {len(queues)} GPUs", f"one for each of the {len(cluster)} GPUs")
    by_id = {task.id: task for task in tasks}
    planned = [task for queue in queues for batch in queue for task in batch.tasks]
    doubled = sorted({task for task in planned if planned.count(task) > 1}) if len(set(planned)) < len(planned) else []
    missing, strange = sorted(set(by_id) - set(planned)), sorted(set(planned) - set(by_id))
    if doubled or missing or strange:
        raise _bad(f"tasks missing {missing}, twice {doubled}, unknown {strange}", "each task exactly once")
    for gpu, label, queue in zip(cluster.gpus, cluster.labels, queues, strict=True):
        for batch in queue:
            _check_batch(batch, gpu.memory_mib, gpu.mps_clients, label, by_id)
            if batch.sm_mhz is not None:
                gpu.check_clock(batch.sm_mhz)


def _check_batch(batch: Batch, capacity_mib: float, clients: int, label: str, by_id: dict[int, Task]) -> None:
    if not batch.tasks or len(batch.tasks) != len(batch.mps_pct):
        raise _bad(f"a batch of {len(batch.tasks)} tasks and {len(batch.mps_pct)} shares", "as many shares as tasks")
    if len(batch.tasks) > clients:
        raise _bad(f"{len(batch.tasks)} tasks in one batch on {label}", f"at most {clients} MPS clients")
    if not all(1 <= pct <= 100 for pct in batch.mps_pct):
        raise _bad(f"MPS percentages {batch.mps_pct} on {label}", "percentages from 1 to 100")
    needed_mib = sum(memory_mib(by_id[task].workload) for task in batch.tasks)
    if needed_mib > capacity_mib:
        raise _bad(f"a batch that needs {needed_mib:.0f} MiB on {label}", f"at most {capacity_mib:.0f} MiB")


def _bad(found: str, expected: str) -> PlanError:
    return PlanError(column="plan", found=found, expected=expected, action="Correct the plan.")
