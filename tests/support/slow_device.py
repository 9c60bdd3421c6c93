"""An emulated GPU on which starting tasks takes as long as on a real one, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping

from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.systems.fikit.kernel_table import KernelRow
from heshare.ops.recording.forecast import RecordingCosts
from heshare.ops.recording.kernel_events import KernelEvent, summarise
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


class SlowDevice(EmulatedDevice):
    """Tasks need time to start and to stop; processes stay warm for others of their share.

    Args:
        gpu: the GPU.
        costs: the times of starting, stopping and tracing.

    Attributes:
        spent_s: the time that has passed on it, s, over its restarts.
        started: (tasks, seconds) of each start.
    """

    def __init__(self, gpu: Gpu, costs: RecordingCosts) -> None:
        super().__init__(gpu)
        self.spent_s = 0.0
        self.started: list[tuple[int, float]] = []
        self._costs = costs
        self._warm: list[int] = []
        self._shares: dict[int, int] = {}

    def start_together(self, tasks: Mapping[int, Resident]) -> None:
        """Start tasks at once, or one after the other where `costs` is so, and advance by the time that it takes."""
        times_s = [self._start_s(resident.mps_pct) for resident in tasks.values()]
        took_s = max(times_s) if self._costs.together else sum(times_s)
        self.advance(self.read().time_s + took_s)
        self.started.append((len(tasks), took_s))
        for task, resident in tasks.items():
            self.start(task, resident.workload, resident.mps_pct)
            self._shares[task] = resident.mps_pct

    def stop(self, task_id: int) -> float:
        """Stop a task; its process stays warm."""
        done = super().stop(task_id)
        self._warm = [*self._warm, self._shares.pop(task_id)][-self._costs.keep :] if self._costs.keep else []
        self.advance(self.read().time_s + self._costs.stop_s)
        return done

    def advance(self, to_s: float) -> list[int]:
        """Advance to `to_s`."""
        self.spent_s += to_s - self.read().time_s
        return super().advance(to_s)

    def trace(self, workload: Workload) -> tuple[KernelRow, ...]:
        """Return two kernels for any workload, in the time that a trace takes."""
        self.advance(self.read().time_s + self._costs.trace_s)
        events = [KernelEvent("first", "1x1x1", "32x1x1", 0.0, 5.0), KernelEvent("second", "1x1x1", "32x1x1", 7.0, 5.0)]
        return summarise([events, events], workload, self.gpu.name, provenance=self.provenance)

    def _start_s(self, pct: int) -> float:
        if pct in self._warm:
            self._warm.remove(pct)
            return self._costs.warm_s
        return self._costs.standby_s
