"""BatchDVFS: one task on each GPU, its inference batch size and clock under a power cap.

Nabavinejad, Reda and Ebrahimi, Coordinated Batching and DVFS for DNN Inference on GPU Accelerators, IEEE TPDS 33(10),
2022, pp. 2496-2508, doi:10.1109/TPDS.2022.3144614.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from heshare.lab.systems.shared.run_queues import QueuePolicy, is_loading, request_clock
from heshare.policies.policy import Action, GpuView, Migrate, Traits
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

LEVELS, START = 10, 5
"""Number of clocks, spread evenly over the card's (assumed), and the level at which a task begins (published)."""
BAND = 0.8
"""The share of the cap above which power is left as it is (published)."""
LAWS = ("batch-dvfs", "batch", "dvfs", "clipper")


# From the published code (nabavinejad/BatchDVFS): the control law, a binary search over inference batch sizes 1 to 255
# in which the clock moves only at an end of the search (`next_state`); the band from 0.8 of the cap; ten clocks,
# beginning at the sixth; a decision every 3 s. Also the laws of the publication's comparison: the clock alone at a
# fixed inference batch size, the inference batch size alone, and Clipper's additive increase (4 sizes) with
# multiplicative decrease (0.9) under a cap.
#
# Assumed: a cap of 0.8 of the board power limit, as for Morak; ten clocks spread evenly over each card's grid;
# placement and queues, which the publication does not cover: a queue for each GPU, first come, first served.


@dataclass(frozen=True, slots=True)
class SearchState:
    """Present inference batch size, clock, lower and upper end of the search; each an index, 0 the least."""

    size: int
    level: int
    low: int
    high: int


def next_state(state: SearchState, power_w: float, cap_w: float, last: int, top: int) -> SearchState:
    """Return the state after one decision of BatchDVFS's control law.

    With the highest power P since the last decision, cap C, the present size b, the ends low and high of the search,
    and the clock level d:

        BAND C <= P <= C : hold
        P < BAND C       : b = last  ->  d + 1, at most top
                           b = high  ->  search from high to last      (a search that had come down goes up again)
                           otherwise ->  search from b to high
                           with b = ceil((low + high) / 2)
        P > C            : b = 0     ->  d - 1, at least 0
                           b = low   ->  search from 0 to low          (a search that had gone up comes down again)
                           otherwise ->  search from low to b
                           with b = floor((low + high) / 2)
    """
    if power_w > cap_w:
        if state.size == 0:
            return replace(state, level=max(state.level - 1, 0))
        low, high = (0, state.low) if state.size == state.low else (state.low, state.size)
        return replace(state, size=(low + high) // 2, low=low, high=high)
    if power_w >= BAND * cap_w:
        return state
    if state.size == last:
        return replace(state, level=min(state.level + 1, top))
    low, high = (state.high, last) if state.size == state.high else (state.size, state.high)
    return replace(state, size=-(-(low + high) // 2), low=low, high=high)


def clipper_state(state: SearchState, power_w: float, cap_w: float, last: int) -> SearchState:
    """Return the state after one decision of Clipper's law under a power cap.

        P <= C : b <- b + 4, at most the largest
        P > C  : b <- floor(0.9 b), at least 1

    Arguments as for `next_state`. The inference batch size b counts from 1, so index 0 is b = 1.
    """
    size = max(int((state.size + 1) * 0.9) - 1, 0) if power_w > cap_w else min(state.size + 4, last)
    return replace(state, size=size)


@register("batch-dvfs", title="BatchDVFS")
@register("batch-dvfs:dvfs-only", title="Clock alone", preset={"law": "dvfs"})
@register("batch-dvfs:batch-only", title="Inference batch size alone", preset={"law": "batch"})
@register("batch-dvfs:clipper", title="Clipper under a cap", preset={"law": "clipper"})
class BatchDvfs(QueuePolicy):
    """One task on each GPU; every period the power controls its inference batch size, and at the ends its clock.

    Each task begins with the smallest inference batch size at a middle clock, as in the published code. A change of the
    size restarts the task's process and has the start cost of the run.

    Args:
        cap: the power cap, as a share of the GPU's board power limit; assumed.
        law: `batch-dvfs`; `batch` uses the card's default clock; `dvfs` fixes the inference batch size; `clipper`.
        sizes: the largest inference batch size (published: 255); memory may hold less.
        fixed: the inference batch size of `dvfs`, 0 for that of the task.
        placement: see `heshare.lab.systems.shared.placement`.
    """

    name = "batch-dvfs"
    tick_s = 3.0  # the time between two decisions, s (published)

    def __init__(
        self,
        cap: float = 0.8,
        law: str = "batch-dvfs",
        sizes: int = 255,
        fixed: int = 0,
        placement: str = "random",
    ) -> None:
        require("cap", cap, 0 < cap <= 1, "a share of the board power limit, above 0 and at most 1")
        require("law", law, law in LAWS, " or ".join(LAWS))
        require("sizes", sizes, sizes >= 1, "an inference batch size of at least 1")
        require("fixed", fixed, fixed >= 0, "an inference batch size, or 0 for the task's own")
        super().__init__(placement, limit=1.5)
        self.traits = Traits(
            frequency=law in ("batch-dvfs", "dvfs"), multi_task=False, heterogeneous=self.placement.heterogeneous
        )
        self._cap, self._law, self._sizes, self._fixed = cap, law, sizes, fixed

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._states: dict[int, tuple[int, SearchState]] = {}

    def on_start(self, gpu: GpuView, tasks: Sequence[Task], waiting: Sequence[Task]) -> Iterator[Action]:
        task = tasks[0]
        if self._states.get(gpu.index, (-1, None))[0] != task.id:
            state = SearchState(0, START, 0, largest_size(task.workload, gpu.gpu, self._sizes) - 1)
            self._states[gpu.index] = task.id, state
            yield from self._set_clock(gpu, state)

    def batch_size(self, task: Task, gpu: GpuView) -> int:
        return self._size(task, 0)

    def control(self, gpu: GpuView) -> Iterator[Action]:
        for running in gpu.running.values():
            if is_loading(running):
                return
            task = running.task
            before = self._states[gpu.index][1]
            after = self._next(before, gpu, largest_size(task.workload, gpu.gpu, self._sizes) - 1)
            self._states[gpu.index] = task.id, after
            yield from self._set_clock(gpu, after)
            if self._size(task, after.size) != self._size(task, before.size):
                yield Migrate(task.id, gpu.index, batch_size=self._size(task, after.size))

    def _next(self, state: SearchState, gpu: GpuView, last: int) -> SearchState:
        cap_w = self._cap * gpu.gpu.tdp_w
        if self._law == "clipper":
            return clipper_state(state, gpu.power_w, cap_w, last)
        if self._law == "dvfs":
            # With a single size, the law is always at both ends of its search.
            return next_state(replace(state, low=0, high=0), gpu.power_w, cap_w, 0, LEVELS - 1)
        return next_state(state, gpu.power_w, cap_w, last, LEVELS - 1)

    def _size(self, task: Task, place: int) -> int:
        if self._law == "dvfs":
            return self._fixed or task.workload.batch_size
        return place + 1

    def _set_clock(self, gpu: GpuView, state: SearchState) -> Iterator[Action]:
        if self.traits.frequency:
            grid = gpu.gpu.clocks_mhz
            yield from request_clock(gpu, grid[round(state.level / (LEVELS - 1) * (len(grid) - 1))])


@cache
def largest_size(workload: Workload, gpu: Gpu, limit: int) -> int:
    """Return the largest inference batch size, up to `limit`, that fits a GPU's memory.

    It is 1 if not even that fits: such a task is refused when it starts.
    """
    one_mib, two_mib = (memory_mib(replace(workload, batch_size=size)) for size in (1, 2))
    if two_mib > one_mib:
        limit = min(limit, 1 + int((gpu.memory_mib - one_mib) / (two_mib - one_mib)))
    return max(limit, 1)
