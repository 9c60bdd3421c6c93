"""Tasks that no part of a cluster can ever hold are refused before a run begins, not in the middle of a long one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heshare.errors import InputError
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


def check_sizes(tasks: Sequence[Task], cluster: Cluster) -> None:
    """See that each task finds as many GPUs as it needs at least, with memory for it.

    A policy may give an inference task another inference batch size, so that the smallest counts.

    Raises:
        InputError: a task that the cluster can never hold.
    """
    able: dict[Workload, int] = {}
    for task in tasks:
        workload = task.workload
        if workload not in able:
            smallest = workload if workload.phase == "training" else replace(workload, batch_size=1)
            need_mib = memory_mib(smallest)
            able[workload] = sum(gpu.memory_mib >= need_mib for gpu in cluster.gpus)
        if able[workload] < min(task.gpus, *task.widths, task.gpus):
            raise InputError(
                column="tasks",
                found=f"task {task.id}, {workload}, for {task.gpus} GPUs, where {able[workload]} can hold it",
                expected=f"a task that {cluster} can hold",
                action="Leave the task out, or take a larger cluster.",
            )
