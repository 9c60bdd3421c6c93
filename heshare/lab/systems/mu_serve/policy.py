"""μ-Serve: one task at a time on each GPU, shortest job first, at the lowest clock that meets the latency limits.

Qiu, Mao, Patke, Cui, Jha, Wang, Franke, Kalbarczyk, Başar and Iyer, USENIX ATC 2024, pp. 75-93. The public code (the
predictor and the queue) sets no clocks, and the full text was not available.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from heshare.lab.systems.shared.run_queues import QueuePolicy, is_loading, request_clock
from heshare.policies.policy import Action, Event, EventKind, GpuView, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import require
from heshare.world.cluster import Cluster
from heshare.world.task import Task

MODES = ("feedback", "oracle", "none")
LATENCIES = ("iteration", "response")
FACTOR = 1.5
"""Factor by which the clock rises after a miss; assumed."""


# From its abstract and summaries: shortest job first by predicted time (SSJF); a clock for each GPU as low as the
# latency limits allow; placement by sensitivity to the clock. That the clock is tuned by multiplicative increase and
# additive decrease (`miad`) is recalled and not confirmed. From HeShare's paper: random placement (Section IV).
#
# Assumed: a limit of 1.5 times the time alone, a factor of 1.5 and a step of one clock in the tuner, and a period of 1
# s. In HeShare's comparison a task is many requests, so that limits are those of iterations and each task begins at the
# top clock (ours). Where tasks are single requests, `latency=response` is the law as recalled: one clock a GPU that
# passes from task to task, judged by the responses of each period.
#
# μ-Serve places operators of models. Here whole models are placed, because each model fits one GPU.


def miad(clock: int, missed: bool, clocks_mhz: Sequence[int], step: int = 1) -> int:
    """Return the next clock by multiplicative increase, additive decrease, as an index of the grid.

    f <- min(f_max, FACTOR f), snapped up to the grid, after a period with a missed limit
    f <- f - step indices of the grid, at least the lowest, otherwise
    """
    if not missed:
        return max(clock - step, 0)
    least_mhz = clocks_mhz[clock] * FACTOR
    return next((place for place, mhz in enumerate(clocks_mhz) if mhz >= least_mhz - 1e-9), len(clocks_mhz) - 1)


@dataclass(slots=True)
class _ClockState:
    """The clock of one GPU, an index of the grid, and the task that runs or ran last.

    `floor` is the index above the highest clock at which the task missed its limit; `missed` is whether a response of
    the present period missed its limit, None while there is none.
    """

    clock: int
    task: Task | None = None
    floor: int = 0
    missed: bool | None = None


@register("mu-serve", title="μ-Serve")
@register("mu-serve:heshare-placement", title="μ-Serve, HeShare's placement", preset={"placement": "heshare"})
@register("mu-serve:oracle", title="μ-Serve, predicting", preset={"mode": "oracle"})
@register("mu-serve:no-control", title="One at a time", preset={"mode": "none"})
class MuServe(QueuePolicy):
    """Each GPU runs the task of least predicted time first, one at a time, at a clock as low as the limits allow.

    `feedback` begins each task at the top clock and applies `miad` once a period, so the clock falls as long as the
    limit is met. A task does not return to a clock at which it missed its limit, so it misses the limit for one period
    at most (ours). The law alone misses the limit again and again.

    With `latency=response` it judges the tasks that completed in the period, from arrival to completion, and moves the
    clock of the GPU, for any running task; after a period without a completion the clock is unchanged (ours).

    `oracle` takes the lowest clock at which the limits are predicted to be met: those of all tasks that the GPU hosts
    (a GPU has one clock, and μ-Serve places by it), or that of the task that runs.

    `none` sets no clock. It is the baseline of one task at a time on each GPU, the shortest first, without control.

    Args:
        limit: the latency limit, as a multiple of the time alone at the top clock, of an iteration or (with
            `latency=response`) of the task; assumed.
        mode: `feedback`, `oracle` or `none`.
        scope: the limits that `oracle` meets, those of the `gpu` or of the `task`.
        order: `ssjf` is shortest job first by prediction, `fifo` first come, first served.
        step: steps of the grid by which it falls; assumed.
        dt_s: the period of control, s; assumed.
        placement: see `heshare.lab.systems.shared.placement`.
        latency: the quantity that `feedback` limits, the time of an `iteration` or the `response` of a task.
    """

    name = "mu-serve"

    def __init__(
        self,
        limit: float = 1.5,
        mode: str = "feedback",
        scope: str = "gpu",
        order: str = "ssjf",
        step: int = 1,
        dt_s: float = 1.0,
        placement: str = "random",
        latency: str = "iteration",
    ) -> None:
        require("limit", limit, limit >= 1, "a multiple of the time alone, at least 1")
        require("mode", mode, mode in MODES, " or ".join(MODES))
        require("scope", scope, scope in ("gpu", "task"), "gpu or task")
        require("order", order, order in ("ssjf", "fifo"), "ssjf or fifo")
        require("step", step, step >= 1, "at least one place of the grid")
        require("dt_s", dt_s, dt_s > 0, "a period above 0 s")
        require("latency", latency, latency in LATENCIES, " or ".join(LATENCIES))
        require("latency", latency, latency == "iteration" or mode == "feedback", "iteration unless mode=feedback")
        super().__init__(placement, limit)
        self._responses = latency == "response"
        self.tick_s = dt_s if mode == "feedback" else None
        self.traits = Traits(frequency=mode != "none", multi_task=False, heterogeneous=self.placement.heterogeneous)
        self._mode, self._scope, self._shortest_first = mode, scope, order == "ssjf"
        self._step = step

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._states = [_ClockState(len(gpu.clocks_mhz) - 1) for gpu in cluster.gpus]

    def order(self, queue: list[Task], gpu: int) -> list[Task]:
        if not self._shortest_first:
            return queue
        return sorted(queue, key=lambda task: self.predictions.whole_s(task, self.cluster.gpus[gpu]))

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        if self._responses and event.kind is EventKind.COMPLETION and event.gpu is not None:
            state, gpu = self._states[event.gpu], self.cluster.gpus[event.gpu]
            if state.task is not None:
                limit_s = self._limit * self.predictions.whole_s(state.task, gpu)
                late = event.time_s - state.task.arrival_s > limit_s * (1 + 1e-9)
                state.missed = late or bool(state.missed)
        yield from super().decide(event, view)

    def on_start(self, gpu: GpuView, tasks: Sequence[Task], waiting: Sequence[Task]) -> Iterator[Action]:
        state = self._states[gpu.index]
        if self._mode == "none" or state.task == tasks[0]:
            return
        state.task, state.floor = tasks[0], 0
        if not self._responses:
            state.clock = len(gpu.gpu.clocks_mhz) - 1
        if self._mode == "oracle":
            hosted = tasks if self._scope == "task" else [*tasks, *waiting]
            state.clock = max(self.predictions.least_clock(task.workload, gpu.gpu) for task in hosted)
        yield from request_clock(gpu, gpu.gpu.clocks_mhz[state.clock])

    def control(self, gpu: GpuView) -> Iterator[Action]:
        if self._responses:
            yield from self._after_responses(gpu)
            return
        for running in gpu.running.values():
            if is_loading(running):
                return
            state = self._states[gpu.index]
            missed = running.time_s > self.predictions.limit_s(running.task.workload, gpu.gpu) * (1 + 1e-9)
            clocks_mhz = gpu.gpu.clocks_mhz
            if missed:
                state.floor = max(state.floor, min(state.clock + 1, len(clocks_mhz) - 1))
            state.clock = max(miad(state.clock, missed, clocks_mhz, self._step), state.floor)
            yield from request_clock(gpu, gpu.gpu.clocks_mhz[state.clock])

    def _after_responses(self, gpu: GpuView) -> Iterator[Action]:
        state, clocks_mhz = self._states[gpu.index], gpu.gpu.clocks_mhz
        if state.missed is not None:
            state.clock = miad(state.clock, state.missed, clocks_mhz, self._step)
            state.missed = None
            yield from request_clock(gpu, clocks_mhz[state.clock])
