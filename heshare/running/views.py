"""What a policy sees of GPUs and of those that run on them, worked out only when it looks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from heshare.policies.policy import GpuView, Running

if TYPE_CHECKING:
    from heshare.running.clock import Clock
    from heshare.running.state import Slot


class RunningTasks(Mapping[int, Running]):
    """Who runs on a GPU, with the progress of this moment worked out from the latest reading when asked for."""

    __slots__ = ("_clock", "_slot")

    def __init__(self, slot: Slot, clock: Clock) -> None:
        self._slot = slot
        self._clock = clock

    def __len__(self) -> int:
        return len(self._slot.jobs)

    def __iter__(self) -> Iterator[int]:
        return iter(self._slot.jobs)

    def __contains__(self, task: object) -> bool:
        return task in self._slot.jobs

    def __getitem__(self, task: int) -> Running:
        job = self._slot.jobs[task]
        gpus = tuple([slot.index for slot in job.slots])
        if not job.runs:
            return Running(job.task, job.mps_pct, math.inf, job.left / job.scale, job.sharing, gpus)
        first = job.slots[0]
        progress = first.look().residents[task]
        since_s = self._clock.now_s() - first.looked_s
        done = progress.done + since_s / progress.time_s
        left = max(job.left / job.scale - done, 0.0)
        return Running(job.task, job.mps_pct, progress.time_s, left, job.sharing, gpus)


class GpuViews(Sequence[GpuView]):
    """Every GPU as a policy may see it, each built only when it is asked for."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[GpuView]:
        return (slot.view() for slot in self._slots)

    @overload
    def __getitem__(self, index: int) -> GpuView: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[GpuView]: ...
    def __getitem__(self, index: int | slice) -> GpuView | Sequence[GpuView]:
        if isinstance(index, slice):
            return [slot.view() for slot in self._slots[index]]
        return self._slots[index].view()
