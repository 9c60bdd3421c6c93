"""Plans (Eqs. 1-3, 11-12): the GPU, batch and MPS percentage of each task, and the clock of each batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from heshare.shared import display
from heshare.shared.errors import PlanError
from heshare.shared.html_tables import html_table
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


@dataclass(frozen=True, slots=True)
class Batch:
    """Batch B_k (Eq. 11): tasks that start together on a GPU and share it under MPS until the last one ends.

    Attributes:
        tasks: task ids.
        mps_pct: the MPS percentage of each, in the same order.
        sm_mhz: the SM clock during the batch, MHz; None is the GPU's default clock.
    """

    tasks: tuple[int, ...]
    mps_pct: tuple[int, ...]
    sm_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a task set on a cluster; the constructor raises on a plan that no GPU could run.

    Attributes:
        cluster: the GPUs.
        tasks: the task set.
        queues: each GPU's batches in order of execution.
        energy_j: predicted energy, active account, J.
        jct_s: predicted average job completion time, s.

    Raises:
        PlanError: a task is missing or planned twice; a batch does not fit the GPU's memory, has more clients than
            MPS allows, or has a clock that the GPU does not offer.

    Example:
        >>> import heshare as hs
        >>> hs.plan(4, "1xT4").trade_off
        Plan(4 tasks in 3 batches on 1xT4, 656 kJ, average JCT 4,419 s)
    """

    cluster: Cluster
    tasks: tuple[Task, ...]
    queues: tuple[tuple[Batch, ...], ...]
    energy_j: float
    jct_s: float

    def __post_init__(self) -> None:
        check_queues(self.cluster, self.tasks, self.queues)

    def __repr__(self) -> str:
        batches = sum(len(queue) for queue in self.queues)
        size = f"{len(self.tasks)} tasks in {batches} batches on {display.short(str(self.cluster), 80)}"
        return f"Plan({size}, {display.energy(self.energy_j)}, average JCT {display.number(self.jct_s)} s)"

    def _repr_html_(self) -> str:
        return html_table(self, self.to_frame())

    def to_frame(self) -> pd.DataFrame:
        """Return one row a task, by GPU and batch.

        Returns:
            Columns gpu (label), batch (its place in the GPU's queue, from 0), task, workload, batch_size, mps_pct, and
            sm_mhz (missing: the GPU's default clock).
        """
        by_id = {task.id: task.workload for task in self.tasks}
        rows = [
            (label, number, task, by_id[task].model, by_id[task].batch_size, mps_pct, batch.sm_mhz)
            for label, queue in zip(self.cluster.labels, self.queues, strict=True)
            for number, batch in enumerate(queue)
            for task, mps_pct in zip(batch.tasks, batch.mps_pct, strict=True)
        ]
        columns = ["gpu", "batch", "task", "workload", "batch_size", "mps_pct", "sm_mhz"]
        return pd.DataFrame(rows, columns=columns).astype({"sm_mhz": "Int64"})

    @property
    def scheme(self) -> dict[int, int]:
        """The scheme S (Eqs. 1 and 3): the index of its GPU by task id."""
        return {task: gpu for gpu, queue in enumerate(self.queues) for batch in queue for task in batch.tasks}


def check_queues(cluster: Cluster, tasks: Sequence[Task], queues: Sequence[Sequence[Batch]]) -> None:
    """Raise `PlanError` unless the queues are a plan for the tasks on the cluster: each task once (Eqs. 2 and 12)."""
    if len(queues) != len(cluster):
        raise _error(f"queues for {len(queues)} GPUs", f"one for each of the {len(cluster)} GPUs")
    by_id = {task.id: task for task in tasks}
    planned = [task for queue in queues for batch in queue for task in batch.tasks]
    twice = sorted({task for task in planned if planned.count(task) > 1}) if len(set(planned)) < len(planned) else []
    missing, unknown = sorted(set(by_id) - set(planned)), sorted(set(planned) - set(by_id))
    if twice or missing or unknown:
        raise _error(f"tasks missing {missing}, twice {twice}, unknown {unknown}", "each task exactly once")
    for gpu, label, queue in zip(cluster.gpus, cluster.labels, queues, strict=True):
        for batch in queue:
            _check_batch(batch, gpu.memory_mib, gpu.mps_clients, label, by_id)
            if batch.sm_mhz is not None:
                gpu.check_clock(batch.sm_mhz)


def _check_batch(batch: Batch, capacity_mib: float, clients: int, label: str, by_id: dict[int, Task]) -> None:
    if not batch.tasks or len(batch.tasks) != len(batch.mps_pct):
        raise _error(f"a batch of {len(batch.tasks)} tasks and {len(batch.mps_pct)} shares", "as many shares as tasks")
    if len(batch.tasks) > clients:
        raise _error(f"{len(batch.tasks)} tasks in one batch on {label}", f"at most {clients} MPS clients")
    if not all(1 <= pct <= 100 for pct in batch.mps_pct):
        raise _error(f"MPS percentages {batch.mps_pct} on {label}", "percentages from 1 to 100")
    needed_mib = sum(memory_mib(by_id[task].workload) for task in batch.tasks)
    if needed_mib > capacity_mib:
        raise _error(f"a batch that needs {needed_mib:.0f} MiB on {label}", f"at most {capacity_mib:.0f} MiB")


def _error(found: str, expected: str) -> PlanError:
    return PlanError(found, expected, "Correct the plan.", column="plan")
