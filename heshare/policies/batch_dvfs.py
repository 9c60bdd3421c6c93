"""BatchDVFS (Nabavinejad et al., IEEE TPDS 2022): one task a GPU, its inference batch size and clock under a power cap.

The control law is known exactly, from the published code: a binary search over the inference batch size; the clock
moves only at an end of that search. Where it runs which task is not its subject: a queue a GPU, first come, first
served. `law` also names what the paper sets it against: the clock alone at a fixed inference batch size, the inference
batch size alone, and Clipper's additive increase with multiplicative decrease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heshare.policies.description import check
from heshare.policies.policy import Action, GpuView, Migrate, SetClock, Start, Traits
from heshare.policies.queues import RunsQueues
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

LAWS = ("batch-dvfs", "batch", "dvfs", "clipper")


@dataclass(frozen=True, slots=True)
class Knobs:
    """Where the search stands; everything is a place in a list, 0 the least.

    Attributes:
        size: the inference batch size now.
        level: the clock now.
        low: the lower end of the search for the inference batch size.
        high: its upper end.
    """

    size: int
    level: int
    low: int
    high: int


def next_knobs(at: Knobs, power_w: float, cap_w: float, last: int, top: int, band: float = 0.8) -> Knobs:
    """BatchDVFS's control law: one decision.

    Args:
        at: where the search stands.
        power_w: the highest power since the last decision, W.
        cap_w: the power cap, W.
        last: the place of the largest inference batch size.
        top: the place of the highest clock.
        band: the share of the cap above which power is left as it is.
    """
    if power_w > cap_w:
        if at.size == 0:
            return replace(at, level=max(at.level - 1, 0))
        low, high = (0, at.low) if at.size == at.low else (at.low, at.size)
        return replace(at, size=(low + high) // 2, low=low, high=high)
    if power_w >= band * cap_w:
        return at
    if at.size == last:
        return replace(at, level=min(at.level + 1, top))
    low, high = (at.high, last) if at.size == at.high else (at.size, at.high)
    return replace(at, size=-(-(low + high) // 2), low=low, high=high)


def clipper(at: Knobs, power_w: float, cap_w: float, last: int, step: int = 4, factor: float = 0.9) -> Knobs:
    """Clipper's law under a power cap: `step` sizes up while below the cap, a `factor` down when above it.

    Arguments as for `next_knobs`; sizes are counted from one, so that place 0 is an inference batch size of 1.
    """
    if power_w > cap_w:
        return replace(at, size=max(int((at.size + 1) * factor) - 1, 0))
    return replace(at, size=min(at.size + step, last))


@register("batch-dvfs", title="BatchDVFS")
@register("batch-dvfs:dvfs-only", title="Clock alone", preset={"law": "dvfs"})
@register("batch-dvfs:batch-only", title="Inference batch size alone", preset={"law": "batch"})
@register("batch-dvfs:clipper", title="Clipper under a cap", preset={"law": "clipper"})
class BatchDvfs(RunsQueues):
    """One task a GPU; every period its inference batch size, and at the ends its clock, follow the power.

    Each task begins with the smallest inference batch size at a middle clock, as the published code does. Changing the
    size restarts the task's process, at whatever a start costs in the run.

    Args:
        cap: the power cap, as a share of the GPU's board power limit.
        law: `batch-dvfs`; `batch` leaves the clock to the card; `dvfs` keeps the inference batch size; `clipper`.
        sizes: the largest inference batch size; memory may hold less.
        fixed: the inference batch size that `dvfs` keeps, 0 for the task's own.
        levels: how many clocks it uses, spread evenly over the card's.
        start: the level at which a task begins.
        band: the share of the cap above which power is left as it is.
        period_s: the time between two decisions, s.
        placement: see `heshare.policies.placement`.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "batch-dvfs"

    def __init__(
        self,
        cap: float = 0.8,
        law: str = "batch-dvfs",
        sizes: int = 255,
        fixed: int = 0,
        levels: int = 10,
        start: int = 5,
        band: float = 0.8,
        period_s: float = 3.0,
        placement: str = "random",
    ) -> None:
        check("cap", cap, 0 < cap <= 1, "a share of the board power limit, above 0 and at most 1")
        check("law", law, law in LAWS, " or ".join(LAWS))
        check("sizes", sizes, sizes >= 1, "an inference batch size of at least 1")
        check("fixed", fixed, fixed >= 0, "an inference batch size, or 0 for the task's own")
        check("levels", levels, levels >= 1, "at least one clock")
        check("start", start, 0 <= start < levels, "a level, 0 for the lowest clock")
        check("band", band, 0 < band < 1, "a share of the cap between 0 and 1")
        check("period_s", period_s, period_s > 0, "a period above 0 s")
        super().__init__(placement, limit=1.5)
        self.tick_s = period_s
        self.traits = Traits(
            frequency=law in ("batch-dvfs", "dvfs"), multi_task=False, heterogeneous=self.placement.heterogeneous
        )
        self._cap, self._law, self._sizes, self._fixed = cap, law, sizes, fixed
        self._levels, self._start, self._band = levels, start, band

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything."""
        super().reset(cluster, predictor, rng)
        self._knobs: dict[int, tuple[int, Knobs]] = {}

    def started(self, gpu: GpuView, tasks: Sequence[Task], waiting: Sequence[Task]) -> Iterator[Action]:
        """Begin a task's search where the published code begins it."""
        task = tasks[0]
        if self._knobs.get(gpu.index, (-1, None))[0] != task.id:
            knobs = Knobs(0, self._start, 0, self._last(task, gpu.gpu))
            self._knobs[gpu.index] = task.id, knobs
            yield from self._clock(gpu, knobs)

    def start(self, task: Task, gpu: GpuView) -> Start:
        """The action that starts a task, with the first inference batch size of its search."""
        return Start(task.id, gpu.index, batch_size=self._size(task, 0))

    def need_mib(self, task: Task, gpu: GpuView) -> float:
        """Device memory that a task takes when it starts, MiB."""
        return memory_mib(replace(task.workload, batch_size=self._size(task, 0)))

    def control(self, gpu: GpuView) -> Iterator[Action]:
        """One decision on one GPU; nothing while its task still loads."""
        for each in gpu.running.values():
            if not np.isfinite(each.time_s):
                return
            before = self._knobs[gpu.index][1]
            after = self._next(before, gpu, self._last(each.task, gpu.gpu))
            self._knobs[gpu.index] = each.task.id, after
            yield from self._clock(gpu, after)
            if self._size(each.task, after.size) != self._size(each.task, before.size):
                yield Migrate(each.task.id, gpu.index, batch_size=self._size(each.task, after.size))

    def _next(self, at: Knobs, gpu: GpuView, last: int) -> Knobs:
        cap_w = self._cap * gpu.gpu.tdp_w
        if self._law == "clipper":
            return clipper(at, gpu.power_w, cap_w, last)
        if self._law == "dvfs":
            # With one size only, the law is at both ends of its search at once.
            return next_knobs(replace(at, low=0, high=0), gpu.power_w, cap_w, 0, self._levels - 1, self._band)
        return next_knobs(at, gpu.power_w, cap_w, last, self._levels - 1, self._band)

    def _size(self, task: Task, place: int) -> int:
        if self._law == "dvfs":
            return self._fixed or task.workload.batch_size
        return place + 1

    def _last(self, task: Task, gpu: Gpu) -> int:
        """The place of the largest inference batch size that the card's memory holds."""
        return _largest(task.workload, gpu, self._sizes) - 1

    def _clock(self, gpu: GpuView, knobs: Knobs) -> Iterator[Action]:
        if not self.traits.frequency:
            return
        grid = gpu.gpu.clocks_mhz
        place = 1.0 if self._levels == 1 else knobs.level / (self._levels - 1)
        wanted = grid[round(place * (len(grid) - 1))]
        if wanted != gpu.requested_mhz:
            yield SetClock(gpu.index, wanted)


def _largest(workload: Workload, gpu: Gpu, sizes: int) -> int:
    """The largest inference batch size, up to `sizes`, that fits; 1 where not even that does: a start then says so."""
    fixed_mib = memory_mib(replace(workload, batch_size=1))
    each_mib = memory_mib(replace(workload, batch_size=2)) - fixed_mib
    room = sizes if each_mib <= 0 else 1 + int((gpu.memory_mib - fixed_mib) / each_mib)
    return max(min(sizes, room), 1)
