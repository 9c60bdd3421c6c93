"""Morak: equal MPS shares on each GPU, and a feedback over clock and inference batch size under a power cap and limits.

Liu, Ma, Zhang and Zheng, Efficient GPU Resource Management under Latency and Power Constraints for Deep Learning
Inference, IEEE MASS 2023, pp. 548-556, doi:10.1109/MASS58611.2023.00074. No code was published, and the full text was
not available.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from heshare.lab.systems.shared.run_queues import QueuePolicy, is_loading, request_clock
from heshare.policies.policy import Action, GpuView, Migrate, Traits
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

Move = Literal["hold", "faster", "slower", "larger", "smaller"]
SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
"""Inference batch sizes that the feedback steps through if tasks allow it (PctoDL)."""
ALPHA, BETA, HOLD = 0.95, 0.9, 1.02
"""Shares of the cap below which power is to spare, of the limit below which time is, and of the cap up to which the law
holds (PctoDL)."""
_STEPS = ((0.2, 10), (0.1, 5), (0.05, 2))


# From its abstract: a GPU is divided among models, and clock and inference batch size are searched under a power cap
# and latency limits. From third parties that use it as a baseline (PctoDL, 2024 and 2026): the control law
# (`feedback_move`), alpha 0.95, beta 0.9, the band up to 1.02 times the cap, the list of inference batch sizes, and
# steps of 10, 5, 2 or 1 clocks. From HeShare's paper: random placement (Section IV).
#
# Assumed: two tasks at once, a cap of 0.8 TDP, a limit of 1.5 times the time alone and a period of 1 s. The paper
# states neither cap nor limit, which determine Morak's result, so both should always be swept. The rules that keep caps
# and limits while the clock moves (see `Morak`) are ours.


def feedback_move(power_w: float, cap_w: float, latency: float) -> Move:
    """Return the move of the control law for one period's readings.

    With power P, cap C, and the worst latency of the residents L as a share of its limit:

        P <= ALPHA C             : larger batch if L <= BETA, else higher clock
        ALPHA C < P <= HOLD C    : hold
        P > HOLD C               : smaller batch if L > BETA, else lower clock
    """
    if power_w <= ALPHA * cap_w:
        return "larger" if latency <= BETA else "faster"
    if power_w <= HOLD * cap_w:
        return "hold"
    return "smaller" if latency > BETA else "slower"


def clock_steps(power_w: float, cap_w: float) -> int:
    """Return the steps of the clock grid at once: 10, 5, 2 or 1 if power is over 20, 10, 5 or less % from the cap."""
    distance = abs(power_w - cap_w) / cap_w
    return next((steps for least, steps in _STEPS if distance > least), 1)


@dataclass(slots=True)
class _ControlState:
    """Clock of one GPU, an index of the grid, and the inference batch size of all residents, None for each task's.

    `ceiling` is the lowest index at which the present mix exceeded the cap, beyond the grid if none did; `largest` the
    largest index of `SIZES` that the mix may take.
    """

    clock: int
    ceiling: int = 1 << 30
    size: int | None = None
    largest: int = len(SIZES) - 1


@register("morak", title="Morak")
@register("morak:heshare-placement", title="Morak, HeShare's placement", preset={"placement": "heshare"})
class Morak(QueuePolicy):
    """Each GPU runs up to k tasks, first come, first served, at 100/k % each, and refills free places at once.

    `feedback` applies `feedback_move` once a period to measured power and time per iteration. It starts in the middle
    of the clock grid. Three rules of ours enforce caps and limits:

    - Over the cap the clock falls at once to where predicted power, corrected by the measured one, is within the cap.
      So no cap is exceeded for longer than a period.
    - A mix of tasks never returns to a clock at which it exceeded the cap.
    - While a latency limit is missed, the clock rises through the band in which the law holds.

    With fixed inference batch sizes, the law's moves of the batch size become moves of the clock.

    Args:
        k: tasks on a GPU at once; assumed.
        cap: the power cap, as a share of each GPU's TDP; assumed.
        limit: the latency limit, as a multiple of a task's time per iteration alone at the top clock; assumed.
        dt_s: the period of control, s; assumed.
        placement: see `heshare.lab.systems.shared.placement`.
        elastic: whether it may change inference batch sizes.
        sizes: the largest inference batch size that it may choose (PctoDL: 256); assumed.
    """

    name = "morak"

    def __init__(
        self,
        k: int = 2,
        cap: float = 0.8,
        limit: float = 1.5,
        dt_s: float = 1.0,
        placement: str = "random",
        elastic: bool = False,
        sizes: int = 64,
    ) -> None:
        require("k", k, 1 <= k <= 48, "1 to 48 tasks at once")
        require("cap", cap, 0 < cap <= 10, "a share of the TDP above 0 and at most 10, such as 0.8 for 80 %")
        require("limit", limit, limit >= 1, "a multiple of the time alone, at least 1")
        require("dt_s", dt_s, dt_s > 0, "a period above 0 s")
        require("sizes", sizes, sizes >= 1, "an inference batch size of at least 1")
        super().__init__(placement, limit)
        self._largest = int(np.searchsorted(SIZES, sizes, side="right")) - 1
        self.slots, self.mps_pct = k, 100 // k
        self.tick_s = dt_s
        self.traits = Traits(frequency=True, multi_task=k > 1, heterogeneous=self.placement.heterogeneous)
        self._cap, self._elastic = cap, elastic

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._states = [_ControlState(len(gpu.clocks_mhz) // 2) for gpu in cluster.gpus]

    def on_start(self, gpu: GpuView, tasks: Sequence[Task], waiting: Sequence[Task]) -> Iterator[Action]:
        """Reset the bounds of the old mix of tasks; the clock is unchanged."""
        state = self._states[gpu.index]
        state.ceiling, state.largest = len(gpu.gpu.clocks_mhz), self._largest
        if not gpu.running:
            state.size = None
        yield from request_clock(gpu, gpu.gpu.clocks_mhz[state.clock])

    def control(self, gpu: GpuView) -> Iterator[Action]:
        residents = [resident for resident in gpu.running.values() if not is_loading(resident)]
        if not residents:
            return
        state, cap_w = self._states[gpu.index], self._cap * gpu.gpu.tdp_w
        # A limit is for an iteration of the task's requested batch size, at any batch size that it runs with.
        latency = max(
            resident.time_s / self.predictions.limit_s(resident.task.workload, gpu.gpu) for resident in residents
        )
        move = feedback_move(gpu.power_w, cap_w, latency)
        over = gpu.power_w > HOLD * cap_w
        if over:
            state.ceiling = min(state.ceiling, state.clock)
        size = self._next_size(move, latency, gpu, state)
        if size is None or over:
            # Over the cap the clock falls even if the batch size changes too: the cap must hold after one period.
            state.clock = self._next_clock(move, latency, gpu, state)
            yield from request_clock(gpu, gpu.gpu.clocks_mhz[state.clock])
        if size is not None:
            state.size = size
            for resident in residents:
                yield Migrate(resident.task.id, gpu.index, self.mps_pct, size)

    def batch_size(self, task: Task, gpu: GpuView) -> int | None:
        """Return the GPU's inference batch size; tasks that start on an empty GPU begin at theirs."""
        return self._states[gpu.index].size if gpu.running else None

    def _next_clock(self, move: Move, latency: float, gpu: GpuView, state: _ControlState) -> int:
        cap_w = self._cap * gpu.gpu.tdp_w
        if gpu.power_w > HOLD * cap_w:
            return max(min(state.clock - 1, self._highest_within(gpu, cap_w)), 0)
        top = min(state.ceiling, len(gpu.gpu.clocks_mhz)) - 1
        if move == "hold":
            return max(min(state.clock + 1, top), state.clock) if latency > 1 + 1e-9 else state.clock
        return max(min(state.clock + clock_steps(gpu.power_w, cap_w), top), state.clock)

    def _highest_within(self, gpu: GpuView, cap_w: float) -> int:
        """Return the highest clock up to which predicted power, scaled to the measured one, meets the cap, or -1."""
        size = self._states[gpu.index].size
        residents = tuple(
            Resident(replace(task.workload, batch_size=size or task.workload.batch_size), running.mps_pct)
            for running in gpu.running.values()
            for task in [running.task]
        )
        _, power_w = self.predictions.at_clocks(residents, gpu.gpu)
        scaled_w = power_w * (gpu.power_w / power_w[self._states[gpu.index].clock])
        over = np.flatnonzero(scaled_w > cap_w)
        return int(over[0]) - 1 if len(over) else len(power_w) - 1

    def _next_size(self, move: Move, latency: float, gpu: GpuView, state: _ControlState) -> int | None:
        """Return another inference batch size for all residents, or None to change the clock instead."""
        if not self._elastic:
            return None
        size = state.size or min(running.task.workload.batch_size for running in gpu.running.values())
        place = int(np.searchsorted(SIZES, size, side="right")) - 1
        at_top = state.clock >= min(state.ceiling, len(gpu.gpu.clocks_mhz)) - 1
        if place > 0 and (move == "smaller" or (latency > 1 and at_top)):
            state.largest = min(state.largest, place - 1)
            return SIZES[place - 1]
        if move == "larger" and place < state.largest and self._fits(gpu, SIZES[place + 1]):
            return SIZES[place + 1]
        return None

    def _fits(self, gpu: GpuView, size: int) -> bool:
        models = [running.task.workload.model for running in gpu.running.values()]
        return sum(memory_mib(Workload(model, size)) for model in models) <= gpu.gpu.memory_mib
