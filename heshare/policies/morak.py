"""Morak (Liu et al., MASS 2023): equal MPS shares, and a feedback over clock and inference batch size under limits.

The paper's text was not at hand. The control law is the one that third parties use for it as a baseline (PctoDL,
2024 and 2026), and every value that it needs is a parameter here. HeShare runs Morak with random placement and states
neither a power cap nor a latency limit, which decide its result; so both should always be swept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from heshare.policies.description import check
from heshare.policies.policy import Action, GpuView, Migrate, SetClock, Start, Traits
from heshare.policies.queues import RunsQueues
from heshare.policies.registry import register
from heshare.prediction.predictor import FloatArray, Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

Move = Literal["hold", "faster", "slower", "larger", "smaller"]
SIZES = (1, 2, 4, 8, 16, 32, 48, 64)
"""Inference batch sizes that the feedback steps through where tasks allow it."""
_STEPS = ((0.2, 10), (0.1, 5), (0.05, 2))


def law(power_w: float, cap_w: float, latency: float, *, alpha: float, beta: float, hold: float) -> Move:
    """The control law: what one period's readings ask for.

    Args:
        power_w: the board's power, W.
        cap_w: the cap, W.
        latency: time per iteration as a share of the latency limit, the worst of the residents.
        alpha: below this share of the cap there is power to spare.
        beta: below this share of the limit there is time to spare.
        hold: up to this share of the cap nothing is done.
    """
    if power_w <= alpha * cap_w:
        return "larger" if latency <= beta else "faster"
    if power_w <= hold * cap_w:
        return "hold"
    return "smaller" if latency > beta else "slower"


def stride(power_w: float, cap_w: float) -> int:
    """Clock steps of the grid at once: 10, 5, 2 or 1 as power is more than 20, 10, 5 or less % from the cap."""
    off = abs(power_w - cap_w) / cap_w
    return next((steps for least, steps in _STEPS if off > least), 1)


@dataclass(slots=True)
class _Knobs:
    """One GPU's state of control.

    Attributes:
        at: place of its clock in the grid.
        ceiling: the lowest place at which the present mix broke the cap; beyond the grid while none did.
        size: the inference batch size of all residents, None for each task's own.
        largest: the largest place in `SIZES` that the present mix may take.
    """

    at: int
    ceiling: int = 1 << 30
    size: int | None = None
    largest: int = len(SIZES) - 1


@register("morak", title="Morak")
@register("morak:heshare-placement", title="Morak, HeShare's placement", preset={"placement": "heshare"})
@register("morak:search", title="Morak, searching", preset={"mode": "search"})
class Morak(RunsQueues):
    """Each GPU runs up to k tasks, first come, first served, at 100/k % each; a share that falls free is refilled.

    `feedback` applies `law` once a period to measured power and time per iteration. It starts in the middle of the
    grid, and three things keep its promises. A clock over the cap falls at once to where predicted power, corrected
    by what is measured now, is within the cap, so that no cap is broken for longer than a period. A mix never goes
    back to a clock at which it broke the cap. And while a latency limit is missed it goes on climbing through the
    band in which the law would hold. With inference batch sizes frozen, the law's moves of the batch size become
    moves of the clock.

    `search` asks the predictor instead, whenever the mix changes: of the clocks within the cap and the limits the one
    with the highest throughput (samples per second of all residents); if there is none, the one that breaks the cap
    least, and of those within the cap the one that misses the limits least.

    Args:
        k: tasks on a GPU at once.
        cap: the power cap, as a share of each GPU's TDP.
        limit: the latency limit, as a multiple of a task's time per iteration alone at the top clock.
        alpha: below this share of the cap the law speeds up.
        beta: below this share of the latency limit the law may give time away.
        hold: up to this share of the cap the law holds.
        dt_s: the period of control, s.
        mode: `feedback` or `search`.
        placement: see `heshare.policies.placement`.
        elastic: whether `feedback` may change inference batch sizes.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "morak"

    def __init__(
        self,
        k: int = 2,
        cap: float = 0.8,
        limit: float = 1.5,
        alpha: float = 0.95,
        beta: float = 0.9,
        hold: float = 1.02,
        dt_s: float = 1.0,
        mode: str = "feedback",
        placement: str = "random",
        elastic: bool = False,
    ) -> None:
        check("k", k, 1 <= k <= 48, "1 to 48 tasks at once")
        check("cap", cap, cap > 0, "a share of the TDP above 0")
        check("limit", limit, limit >= 1, "a multiple of the time alone, at least 1")
        check("alpha", alpha, 0 < alpha <= 1, "a share of the cap from 0 to 1")
        check("beta", beta, 0 < beta <= 1, "a share of the latency limit from 0 to 1")
        check("hold", hold, hold >= 1, "a share of the cap of at least 1")
        check("dt_s", dt_s, dt_s > 0, "a period above 0 s")
        check("mode", mode, mode in ("feedback", "search"), "feedback or search")
        check("elastic", elastic, not (elastic and mode == "search"), "no with mode=search, which leaves batch sizes")
        super().__init__(placement, limit)
        self.shares, self.mps_pct = k, 100 // k
        self.tick_s = dt_s if mode == "feedback" else None
        self.traits = Traits(frequency=True, multi_task=k > 1, heterogeneous=self.placement.heterogeneous)
        self._searches, self._elastic = mode == "search", elastic
        self._cap, self._alpha, self._beta, self._hold = cap, alpha, beta, hold

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything; clocks begin in the middle of their grids."""
        super().reset(cluster, predictor, rng)
        self._knobs = [_Knobs(len(gpu.clocks_mhz) // 2) for gpu in cluster.gpus]

    def started(self, gpu: GpuView, tasks: Sequence[Task], waiting: Sequence[Task]) -> Iterator[Action]:
        """A new mix: forget the bounds of the old one, and search for its clock or go on from the present one."""
        knobs = self._knobs[gpu.index]
        knobs.ceiling, knobs.largest = len(gpu.gpu.clocks_mhz), len(SIZES) - 1
        if self._searches:
            knobs.at = self._best(gpu.gpu, [task.workload for task in tasks])
        yield from self._set(gpu, knobs)

    def control(self, gpu: GpuView) -> Iterator[Action]:
        """One period of the feedback on one GPU."""
        residents = [each for each in gpu.running.values() if np.isfinite(each.time_s)]
        if not residents:
            return
        knobs, cap_w = self._knobs[gpu.index], self._cap * gpu.gpu.tdp_w
        # A limit is on a request of the task's own size, however many of them are handled at once.
        latency = max(each.time_s / self.beliefs.limit_s(each.task.workload, gpu.gpu) for each in residents)
        move = law(gpu.power_w, cap_w, latency, alpha=self._alpha, beta=self._beta, hold=self._hold)
        if gpu.power_w > self._hold * cap_w:
            knobs.ceiling = min(knobs.ceiling, knobs.at)
        size, over = self._resized(move, latency, gpu, knobs), gpu.power_w > self._hold * cap_w
        if size is None or over:
            # The cap does not wait for another batch size to help.
            knobs.at = self._clocked(move, latency, gpu, knobs)
            yield from self._set(gpu, knobs)
        if size is not None:
            knobs.size = size
            for each in residents:
                yield Migrate(each.task.id, gpu.index, self.mps_pct, size)

    def emptied(self, gpu: GpuView) -> None:
        """Tasks that find the GPU empty begin at their own inference batch sizes."""
        self._knobs[gpu.index].size = None

    def start(self, task: Task, gpu: GpuView) -> Start:
        """Start a task at its share, and at the GPU's inference batch size."""
        return Start(task.id, gpu.index, self.mps_pct, self._knobs[gpu.index].size)

    def need_mib(self, task: Task, gpu: GpuView) -> float:
        """Device memory at the GPU's inference batch size, MiB."""
        return memory_mib(self._sized(task.workload, gpu.index))

    def _sized(self, workload: Workload, gpu: int) -> Workload:
        size = self._knobs[gpu].size
        return workload if size is None else Workload(workload.model, size, workload.precision, workload.engine)

    def _clocked(self, move: Move, latency: float, gpu: GpuView, knobs: _Knobs) -> int:
        """The place in the grid that the law leads to, as far as the grid and the ceiling let it."""
        cap_w = self._cap * gpu.gpu.tdp_w
        if gpu.power_w > self._hold * cap_w:
            return max(min(knobs.at - 1, self._within(gpu, cap_w)), 0)
        top = min(knobs.ceiling, len(gpu.gpu.clocks_mhz)) - 1
        if move == "hold":
            return max(min(knobs.at + 1, top), knobs.at) if latency > 1 + 1e-9 else knobs.at
        return max(min(knobs.at + stride(gpu.power_w, cap_w), top), knobs.at)

    def _within(self, gpu: GpuView, cap_w: float) -> int:
        """The highest place below which predicted power, corrected by the present error, keeps to the cap, or -1."""
        residents = tuple(
            Resident(self._sized(each.task.workload, gpu.index), each.mps_pct) for each in gpu.running.values()
        )
        _, power_w = self.beliefs.at_clocks(residents, gpu.gpu)
        scaled_w = power_w * (gpu.power_w / power_w[self._knobs[gpu.index].at])
        over = np.flatnonzero(scaled_w > cap_w)
        return int(over[0]) - 1 if len(over) else len(power_w) - 1

    def _resized(self, move: Move, latency: float, gpu: GpuView, knobs: _Knobs) -> int | None:
        """Another inference batch size for all residents, None to leave it (and move the clock instead)."""
        if not self._elastic:
            return None
        now = knobs.size or min(each.task.workload.batch_size for each in gpu.running.values())
        place = int(np.searchsorted(SIZES, now, side="right")) - 1
        at_top = knobs.at >= min(knobs.ceiling, len(gpu.gpu.clocks_mhz)) - 1
        if place > 0 and (move == "smaller" or (latency > 1 and at_top)):
            knobs.largest = min(knobs.largest, place - 1)
            return SIZES[place - 1]
        if move == "larger" and place < knobs.largest and self._fits(gpu, SIZES[place + 1]):
            return SIZES[place + 1]
        return None

    def _fits(self, gpu: GpuView, size: int) -> bool:
        models = [each.task.workload.model for each in gpu.running.values()]
        return sum(memory_mib(Workload(model, size)) for model in models) <= gpu.gpu.memory_mib

    def _set(self, gpu: GpuView, knobs: _Knobs) -> Iterator[Action]:
        wanted = gpu.gpu.clocks_mhz[knobs.at]
        if wanted != gpu.requested_mhz:
            yield SetClock(gpu.index, wanted)

    def _best(self, gpu: Gpu, workloads: Sequence[Workload]) -> int:
        """The clock that `search` takes for a mix."""
        times_s, power_w = self.beliefs.at_clocks(tuple(Resident(each, self.mps_pct) for each in workloads), gpu)
        limits_s = np.array([self.beliefs.limit_s(each, gpu) for each in workloads])
        sizes = np.array([each.batch_size for each in workloads])
        return best(times_s / limits_s, power_w / (self._cap * gpu.tdp_w), (sizes / times_s).sum(axis=1))


def best(latency: FloatArray, power: FloatArray, throughput: FloatArray) -> int:
    """The place of the best of c clocks: within cap and limits the highest throughput, otherwise the least violation.

    Keeping the cap comes before keeping the limits; of equal clocks the lowest counts.

    Args:
        latency: time per iteration as a share of its limit, shape (c, r).
        power: power as a share of the cap, shape (c,).
        throughput: samples per second, shape (c,).
    """
    over = np.maximum(power - 1, 0.0).round(12)
    late = np.maximum(latency - 1, 0.0).sum(axis=1).round(12)
    return int(np.lexsort((np.arange(len(power)), -throughput, late, over))[0])
