"""mu-Serve (Qiu et al., USENIX ATC 2024): time sharing, shortest job first, the least clock that meets the limits.

The paper's text was not at hand: the control law is known from summaries, and everything that it needs is a parameter
here. mu-Serve places operators of models by their sensitivity to the clock; the models here fit one GPU each, so whole
models are placed. HeShare runs it with random placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from heshare.policies.description import check
from heshare.policies.policy import Action, GpuView, SetClock, Traits
from heshare.policies.queues import RunsQueues
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


def miad(at: int, missed: bool, clocks_mhz: Sequence[int], factor: float = 1.5, step: int = 1) -> int:
    """The control law: the clock up by a factor after a miss, snapped up, else down by a step; a place in the grid.

    Args:
        at: the present place in the grid.
        missed: whether a latency limit was missed in the period.
        clocks_mhz: the grid, ascending, MHz.
        factor: by which the clock rises.
        step: places by which it falls.
    """
    if not missed:
        return max(at - step, 0)
    wanted = clocks_mhz[at] * factor
    return next((place for place, mhz in enumerate(clocks_mhz) if mhz >= wanted - 1e-9), len(clocks_mhz) - 1)


@dataclass(slots=True)
class _Knob:
    """One GPU's clock: its place in the grid, whose it is, and the lowest place not known to miss that task's limit."""

    at: int
    task: int = -1
    floor: int = 0


@register("mu-serve", title="μ-Serve")
@register("mu-serve:heshare-placement", title="μ-Serve, HeShare's placement", preset={"placement": "heshare"})
@register("mu-serve:oracle", title="μ-Serve, predicting", preset={"mode": "oracle"})
@register("mu-serve:sensitivity", title="μ-Serve, grouped by sensitivity", preset={"placement": "sensitivity"})
class MuServe(RunsQueues):
    """Each GPU runs one task at a time, the one with the least predicted time first, at a clock as low as limits allow.

    `feedback` begins each task at the top clock and applies `miad` once a period: as long as the limit is met, the
    clock falls. With `remember` a task does not go back to a clock at which it missed its limit, so that it misses
    it for one period at most; without, the law alone saws up and down and misses it again and again.

    `oracle` asks the predictor for the least clock at which the limits are met: of the tasks that the GPU hosts
    (a GPU has one clock, and mu-Serve places by it), or of the task that runs.

    Args:
        limit: the latency limit, as a multiple of a task's time per iteration alone at the top clock.
        mode: `feedback` or `oracle`.
        scope: whose limits `oracle` meets, `gpu` or `task`.
        order: `ssjf` is shortest job first by prediction, `fifo` first come, first served.
        factor: by which the clock rises after a miss.
        step: places of the grid by which it falls.
        dt_s: the period of control, s.
        remember: whether `feedback` avoids clocks known to miss.
        placement: see `heshare.policies.placement`.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "mu-serve"

    def __init__(
        self,
        limit: float = 1.5,
        mode: str = "feedback",
        scope: str = "gpu",
        order: str = "ssjf",
        factor: float = 1.5,
        step: int = 1,
        dt_s: float = 1.0,
        remember: bool = True,
        placement: str = "random",
    ) -> None:
        check("limit", limit, limit >= 1, "a multiple of the time alone, at least 1")
        check("mode", mode, mode in ("feedback", "oracle"), "feedback or oracle")
        check("scope", scope, scope in ("gpu", "task"), "gpu or task")
        check("order", order, order in ("ssjf", "fifo"), "ssjf or fifo")
        check("factor", factor, factor > 1, "a factor above 1")
        check("step", step, step >= 1, "at least one place of the grid")
        check("dt_s", dt_s, dt_s > 0, "a period above 0 s")
        super().__init__(placement, limit)
        self.tick_s = dt_s if mode == "feedback" else None
        self.traits = Traits(frequency=True, multi_task=False, heterogeneous=self.placement.heterogeneous)
        self._predicts, self._scope, self._shortest_first = mode == "oracle", scope, order == "ssjf"
        self._factor, self._step, self._remember = factor, step, remember

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything; clocks begin at the top."""
        super().reset(cluster, predictor, rng)
        self._knobs = [_Knob(len(gpu.clocks_mhz) - 1) for gpu in cluster.gpus]

    def sort(self, queue: list[Task], gpu: int) -> list[Task]:
        """Shortest job first by predicted time, ties by arrival."""
        if not self._shortest_first:
            return queue
        return sorted(queue, key=lambda task: self.beliefs.whole_s(task, self.cluster.gpus[gpu]))

    def started(self, gpu: GpuView, tasks: Sequence[Task], waiting: Sequence[Task]) -> Iterator[Action]:
        """Begin at the top clock, or at the one that the predictor names."""
        knob = self._knobs[gpu.index]
        if knob.task == tasks[0].id:
            return
        knob.task, knob.floor = tasks[0].id, 0
        knob.at = len(gpu.gpu.clocks_mhz) - 1
        if self._predicts:
            hosted = tasks if self._scope == "task" else [*tasks, *waiting]
            knob.at = max(self.beliefs.least_clock(task.workload, gpu.gpu) for task in hosted)
        yield from self._set(gpu, knob)

    def control(self, gpu: GpuView) -> Iterator[Action]:
        """One period of the feedback on one GPU."""
        for each in gpu.running.values():
            if not np.isfinite(each.time_s):
                return
            knob = self._knobs[gpu.index]
            missed = each.time_s > self.beliefs.limit_s(each.task.workload, gpu.gpu) * (1 + 1e-9)
            knob.at = self._next(knob, missed, gpu.gpu)
            yield from self._set(gpu, knob)

    def _next(self, knob: _Knob, missed: bool, gpu: Gpu) -> int:
        wanted = miad(knob.at, missed, gpu.clocks_mhz, self._factor, self._step)
        if not self._remember:
            return wanted
        if missed:
            knob.floor = max(knob.floor, min(knob.at + 1, len(gpu.clocks_mhz) - 1))
        return max(wanted, knob.floor)

    def _set(self, gpu: GpuView, knob: _Knob) -> Iterator[Action]:
        wanted = gpu.gpu.clocks_mhz[knob.at]
        if wanted != gpu.requested_mhz:
            yield SetClock(gpu.index, wanted)
