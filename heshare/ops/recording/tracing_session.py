"""A recording session that also traces kernels, and ends when its time budget is spent."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heshare.devices.device import Device
from heshare.lab.systems.fikit import kernel_table
from heshare.lab.systems.fikit.kernel_table import KernelRow
from heshare.ops.recording.recording_journal import RecordingJournal
from heshare.profiles.recorder import RecordingSession, Step
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared.errors import DeviceError, InputError
from heshare.world.workload import Workload

KernelTracer = Callable[[Workload], tuple[KernelRow, ...]]
"""Traces a workload alone on the GPU; if it has `close`, that is called after the last one."""
RecordingItem = Step | Workload
"""A visit to a setup, or a workload whose kernels are to be traced."""
TRACE_S = 8.0
"""Assumed time of the first kernel trace, s."""
MAX_FAILED_TRACES = 2
"""After so many failed traces the rest is left out: a cause that stops the profiler once stops it always."""


@dataclass(slots=True)
class KernelTraces:
    """The kernel traces of a recording.

    Attributes:
        trace: traces a workload.
        workloads: the workloads to trace, in this order.
        recorded: traces that the table has already, as `KernelRow.setting`.
        rows: rows of the traces made now, by workload.
        left_out: workloads that could not be traced, with the reason.
    """

    trace: KernelTracer
    workloads: Sequence[Workload]
    recorded: frozenset[tuple[str, str, int, str]] = frozenset()
    rows: dict[str, tuple[KernelRow, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the table: the new traces, and the rows of others that it held."""
        if not self.rows:
            return
        new = [row for rows in self.rows.values() for row in rows]
        settings = {row.setting for row in new}
        kept = [row for row in kernel_table.read(path) if row.setting not in settings] if path.exists() else []
        kernel_table.write([*kept, *new], path)


class TracingSession(RecordingSession):
    """A recording session whose items are visits and workloads to trace; without `traces`, visits alone.

    Attributes:
        lost_s: the device's time that failed traces took, s; it is in no journal.
    """

    log: RecordingJournal

    def __init__(
        self,
        device: Device,
        protocol: MeasurementProtocol,
        log: RecordingJournal,
        traces: KernelTraces | None = None,
    ) -> None:
        super().__init__(device, protocol, log)
        self.lost_s = 0.0
        self._traces = traces

    def process(self, item: RecordingItem) -> None:
        """Make a visit or a trace that the log does not hold."""
        if isinstance(item, Workload):
            self._trace(item)
        else:
            super().process(item)

    def affordable(self, items: Iterable[RecordingItem], budget_s: float) -> Iterator[RecordingItem]:
        """Yield items while there is time for the next one, by the time that the last one of its kind took.

        Items of the journal count as if they were made now, so an interrupted recording ends where another would.
        """
        spent_s, last_s = self.log.idle_s, dict[int, float]()
        for item in items:
            traced = isinstance(item, Workload)
            tasks = 0 if isinstance(item, Workload) else len(item[0].residents)
            assumed_s = TRACE_S if traced else self.protocol.visit_s
            # A visit may take longer than the last one of so many tasks, but never less than the protocol.
            expected_s = max(last_s.get(tasks, assumed_s), 0.0 if traced else assumed_s)
            if spent_s + self.lost_s + expected_s > budget_s:
                return
            yield item
            if isinstance(item, Workload):
                took_s = self.log.kernels_s.get(str(item), 0.0)
            else:
                took_s = self.log.visits[str(item[0]), item[1]].took_s
            last_s[tasks] = took_s or assumed_s
            spent_s += took_s

    def _trace(self, workload: Workload) -> None:
        log, traces, name = self.log, self._traces, str(workload)
        assert traces is not None, "a plan with kernel traces needs a tracer"
        if name not in log.kernels and not self._is_recorded(traces, workload):
            if len(traces.left_out) >= MAX_FAILED_TRACES:
                traces.left_out[name] = f"not tried after {MAX_FAILED_TRACES} that failed"
            else:
                rows, took_s = self.bench.run_alone(lambda: _rows_or_reason(traces.trace, workload))
                if isinstance(rows, str):
                    traces.left_out[name] = rows
                    self.lost_s += took_s
                    warnings.warn(f"no kernels of {workload}: {rows}", stacklevel=2)
                else:
                    log.add_kernels(workload, rows, took_s)
        if name in log.kernels:
            traces.rows[name] = log.kernels[name]
        # Closed here, not at the end of the recording: its process would hold memory of the GPU during the visits.
        if workload == traces.workloads[-1] and hasattr(traces.trace, "close"):
            traces.trace.close()

    def _is_recorded(self, traces: KernelTraces, workload: Workload) -> bool:
        return (self.device.gpu.name, workload.model, workload.batch_size, workload.precision) in traces.recorded


def with_kernels(steps: Iterable[Step], workloads: Iterable[Workload]) -> Iterator[RecordingItem]:
    """Yield a plan with kernel traces before the first tasks that share the GPU, when each has been measured alone."""
    waiting = list(workloads)
    for step in steps:
        if len(step[0].residents) > 1:
            yield from waiting
            waiting = []
        yield step
    yield from waiting


def _rows_or_reason(trace: KernelTracer, workload: Workload) -> tuple[KernelRow, ...] | str:
    """Return the rows of a workload, or the error's text: a failing profiler must not end the recording."""
    try:
        return trace(workload)
    except (DeviceError, InputError) as error:
        return str(error)
