"""An emulated GPU on which starting tasks takes as long as on a real one, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping

from heshare.devices.emulated import EmulatedDevice
from heshare.profiles.forecast import Costs
from heshare.profiles.kernels import Event, KernelRow, summarise
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


class SlowDevice(EmulatedDevice):
    """Tasks need time to start and to stop; processes stay warm for others of their share.

    Args:
        gpu: the GPU.
        costs: what takes how long.

    Attributes:
        spent_s: the time that has passed on it, s, over its restarts.
        started: (tasks, seconds) of each start.
    """

    def __init__(self, gpu: Gpu, costs: Costs) -> None:
        super().__init__(gpu)
        self.spent_s = 0.0
        self.started: list[tuple[int, float]] = []
        self._costs = costs
        self._warm: list[int] = []
        self._shares: dict[int, int] = {}

    def start_together(self, tasks: Mapping[int, Resident]) -> None:
        """Start tasks at once, or one after the other if the costs say so; then the time for it has passed."""
        each = [self._price(one.mps_pct) for one in tasks.values()]
        took_s = max(each) if self._costs.together else sum(each)
        self.advance(self.read().time_s + took_s)
        self.started.append((len(tasks), took_s))
        for task, one in tasks.items():
            self.start(task, one.workload, one.mps_pct)
            self._shares[task] = one.mps_pct

    def stop(self, task_id: int) -> float:
        """Stop a task; its process stays warm."""
        done = super().stop(task_id)
        self._warm = [*self._warm, self._shares.pop(task_id)][-self._costs.keep :] if self._costs.keep else []
        self.advance(self.read().time_s + self._costs.stop_s)
        return done

    def advance(self, to_s: float) -> list[int]:
        """Go on to `to_s`."""
        self.spent_s += to_s - self.read().time_s
        return super().advance(to_s)

    def trace(self, workload: Workload) -> tuple[KernelRow, ...]:
        """Two kernels for any workload, in the time that a trace takes."""
        self.advance(self.read().time_s + self._costs.trace_s)
        events = [Event("first", "1x1x1", "32x1x1", 0.0, 5.0), Event("second", "1x1x1", "32x1x1", 7.0, 5.0)]
        return summarise([events, events], workload, self.gpu.name, provenance=self.provenance)

    def _price(self, pct: int) -> float:
        if pct in self._warm:
            self._warm.remove(pct)
            return self._costs.warm_s
        return self._costs.standby_s
