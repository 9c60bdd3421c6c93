"""Energy of each task of a run on shared GPUs, in equal shares and by the power that each task draws alone."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from heshare.lab.tenants.tenant_power import TenantPower
from heshare.running.result import Run
from heshare.running.timeline import Interval
from heshare.shared.errors import InputError
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


def tenant_energy(done: Run, power: TenantPower | None = None) -> pd.DataFrame:
    """Return the energy of each task of a run, one row a task, in two ways that both sum to the GPUs' energy.

    In every segment of the timeline the GPU's energy is divided among the tasks that ran: equally; and its idle power
    equally and what it drew above that in proportion to the power that each draws alone at its MPS percentage and the
    GPU's clock. Energy of a GPU on which nothing ran is no task's: the sums over tasks and that energy are the cluster
    account.

    Args:
        done: a run with its timeline.
        power: what tasks draw alone; by default the device model's. A task that shares in another way than MPS is
            weighed as if it had its percentage under MPS.

    Returns:
        Columns task, workload, batch_size, gpu (its last one), energy_j (equal shares), energy_model_j, provenance.

    Raises:
        InputError: the run kept totals and no timeline.

    Example:
        >>> import heshare as hs
        >>> run = hs.run(4, "1xA100", "random")
        >>> energy = run.tenant_energy()
        >>> bool(abs(energy["energy_j"].sum() / energy["energy_model_j"].sum() - 1) < 1e-9)
        True
    """
    if not done.record.segments:
        raise InputError("a run that kept only totals", "a run with its timeline", "Run it again.", column="run")
    power, workloads = power or TenantPower(), _RunningWorkloads(done.tasks, done.record.intervals)
    equal_j, model_j = np.zeros(len(done.tasks)), np.zeros(len(done.tasks))
    for segment in done.record.segments:
        if segment.residents:
            duration_s = segment.end_s - segment.start_s
            energy_j = segment.power_w * duration_s
            residents = [
                Resident(workloads.at(task, segment.gpu, segment.start_s), pct) for task, pct, _ in segment.residents
            ]
            parts_j = power.shares_j(done.cluster.gpus[segment.gpu], residents, segment.sm_mhz, energy_j, duration_s)
            for (task, _, _), part_j in zip(segment.residents, parts_j, strict=True):
                equal_j[task] += energy_j / len(residents)
                model_j[task] += part_j
    frame = done.to_frame()[["task", "workload", "batch_size", "gpu", "provenance"]]
    frame.insert(4, "energy_j", equal_j)
    frame.insert(5, "energy_model_j", model_j)
    return frame


class _RunningWorkloads:
    """The workload as which a task runs on a GPU at a moment: policies may change inference batch sizes."""

    def __init__(self, tasks: Sequence[Task], intervals: Sequence[Interval]) -> None:
        self._tasks = tasks
        self._intervals: defaultdict[tuple[int, int], list[Interval]] = defaultdict(list)
        for interval in sorted(intervals, key=lambda each: each.start_s):
            self._intervals[interval.task, interval.gpu].append(interval)

    def at(self, task: int, gpu: int, time_s: float) -> Workload:
        """Return the workload of a task that runs on this GPU at this time, s."""
        own, intervals = self._tasks[task].workload, self._intervals[task, gpu]
        place = bisect_right(intervals, time_s, key=lambda each: each.start_s) - 1
        size = intervals[max(0, place)].batch_size
        return own if size == own.batch_size else replace(own, batch_size=size)
