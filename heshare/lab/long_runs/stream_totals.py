"""Recorder of a run whose tasks are a stream: a row of a file for each finished task, and sums in place of lists."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from heshare.lab.long_runs.exact_sum import ExactSum
from heshare.lab.long_runs.streaming import CsvSink, TotalsRecorder
from heshare.running.state import TaskRun
from heshare.running.timeline import Interval

TASKS = "tasks.csv"


class FinishedTask(NamedTuple):
    """Row of `tasks.csv`, in the order in which tasks complete; `gpu` is the label of the last GPU, times are in s."""

    task: int
    workload: str
    batch_size: int
    iterations: float
    gpu: str
    arrival_s: float
    waiting_s: float
    execution_s: float
    jct_s: float


class StreamTotals(TotalsRecorder):
    """Adds up times and energies of a run, and writes a row for each task that completes.

    The times of a task are computed as by `TotalsRecorder`, so that both are equal to the last bit.

    Args:
        labels: those of the GPUs.
        live: the tasks that are not over, by id.
        folder: for `tasks.csv`; None writes no rows.

    Attributes:
        count: how many tasks have completed.
        jct_s: the sum of their job completion times, s.
        waiting_s: the sum of their waiting times, s.
        execution_s: the sum of their execution times, s.
        last_s: the time of the last completion, s.
    """

    def __init__(self, labels: tuple[str, ...], live: Mapping[int, TaskRun], folder: Path | None) -> None:
        super().__init__(labels, ())
        self._live = live
        # Of tasks that were taken off their GPUs and wait: times waited and run, and the end of the last run, s.
        self._earlier: dict[int, tuple[float, float, float]] = {}
        self._rows = None if folder is None else CsvSink(folder / TASKS, FinishedTask._fields)
        self.count, self.last_s = 0, 0.0
        self.jct_s, self.waiting_s, self.execution_s = ExactSum(), ExactSum(), ExactSum()

    def add_interval(self, last: Interval, gpus: Sequence[int]) -> None:
        """Add the interval of a task that has left its GPUs; `last` is the one on the last of them."""
        end_s = last.end_s
        arrival_s = self._live[last.task].spec.arrival_s
        waiting_s, execution_s, left_s = self._earlier.pop(last.task, (0.0, 0.0, arrival_s))
        waiting_s += last.start_s - left_s
        execution_s += end_s - last.start_s
        if last.outcome == "completed":
            self._add_task(last.task, gpus[-1], waiting_s, execution_s, end_s)
        else:
            self._earlier[last.task] = waiting_s, execution_s, end_s
        self._account_active(gpus, end_s)

    def _add_task(self, task_id: int, gpu: int, waiting_s: float, execution_s: float, end_s: float) -> None:
        task = self._live[task_id].spec
        jct_s = end_s - task.arrival_s
        self.count, self.last_s = self.count + 1, max(self.last_s, end_s)
        self.jct_s.add(jct_s)
        self.waiting_s.add(waiting_s)
        self.execution_s.add(execution_s)
        if self._rows is not None:
            what = task.workload.model, task.workload.batch_size, task.iterations, self.labels[gpu]
            self._rows.append(FinishedTask(task_id, *what, task.arrival_s, waiting_s, execution_s, jct_s))

    def release(self) -> None:
        """Close the file."""
        if self._rows is not None:
            self._rows.close()
