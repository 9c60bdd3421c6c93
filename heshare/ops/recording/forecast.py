"""Forecast of a recording: the items that fit into a time budget, and the points that they yield, without a GPU."""

from collections.abc import Iterable
from dataclasses import dataclass

from heshare.ops.recording.tracing_session import RecordingItem
from heshare.profiles.visit import MeasurementProtocol, Setup
from heshare.world.workload import Resident, Workload


@dataclass(frozen=True, slots=True)
class RecordingCosts:
    """Times of a recording beside warm-up and windows. They are assumptions: a journal (`took_s`) has the real ones.

    Attributes:
        standby_s: from the order to the first iteration of a process that has imported PyTorch: its CUDA context, its
            libraries' kernels, weights, the worker's own second of warm-up, s.
        warm_s: the same of a process that is warm: weights and warm-up, s.
        stop_s: from the order to stop until the task has left and its memory is free, s.
        trace_s: the kernels of one workload, s.
        together: whether tasks of a set start at once; otherwise one after the other.
        keep: how many processes stay warm.
    """

    standby_s: float = 5.0
    warm_s: float = 2.5
    stop_s: float = 0.5
    trace_s: float = 6.0
    together: bool = True
    keep: int = 10


LIVE_COSTS = RecordingCosts()
NO_COSTS = RecordingCosts(standby_s=0.0, warm_s=0.0, stop_s=0.0, trace_s=0.0)
"""The costs of an emulated device, which loads nothing."""


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """One setup or kernel trace of a forecast recording.

    Attributes:
        what: the setup, or the workload to trace.
        begin_s: when it begins, s from the start of the recording.
        start_s: time of starting and stopping tasks, s.
        took_s: time of the whole item, s.
        points: rows of the profile that are new with it.
    """

    what: str
    begin_s: float
    start_s: float
    took_s: float
    points: int


def forecast(
    items: Iterable[RecordingItem],
    protocol: MeasurementProtocol,
    budget_s: float | None = None,
    *,
    costs: RecordingCosts = LIVE_COSTS,
) -> list[PlannedItem]:
    """Return the items that fit into a budget and their points, without measuring anything.

    Time per point = (starting and stopping + kernel traces + idle power + visits x (warm-up + window)) / points. The
    chains make it short: seven tasks are started once, and measured in seven sets, which are 28 points.

    Args:
        items: the plan, in its order; with a budget it may be endless.
        protocol: how to measure.
        budget_s: time to spend, s; None takes all items.
        costs: times of starting tasks; by default those of a live GPU.
    """
    processes, planned_points, planned = WarmProcesses(costs), set[str](), list[PlannedItem]()
    now_s = protocol.repeats * protocol.window_s
    for item in items:
        if isinstance(item, Workload):
            start_s, rest_s, points, what = processes.arrange(()), costs.trace_s, 0, f"kernels of {item}"
        else:
            setup = item[0]
            start_s, rest_s, what = processes.arrange(setup.residents), protocol.visit_s, str(setup)
            points = _count_new(setup, planned_points)
        if budget_s is not None and now_s + start_s + rest_s > budget_s:
            break
        planned.append(PlannedItem(what, now_s, start_s, start_s + rest_s, points))
        now_s += start_s + rest_s
    return planned


class WarmProcesses:
    """The MPS percentages of the running and the warm processes, and the time until the next set of tasks runs."""

    def __init__(self, costs: RecordingCosts) -> None:
        self._costs = costs
        self._running: list[Resident] = []
        self._warm: list[int] = []

    def arrange(self, wanted: Iterable[Resident]) -> float:
        """Let exactly these tasks run; return the time that it takes, s."""
        missing, kept = list(wanted), list[Resident]()
        for resident in self._running:
            if resident in missing:
                missing.remove(resident)
                kept.append(resident)
        # As on the measurement bench: tasks run on only into a subset.
        if missing:
            missing, kept = missing + kept, []
        took_s = self._stop(kept)
        self._running = kept + missing
        return took_s + self._start(missing)

    def _stop(self, kept: list[Resident]) -> float:
        """Stop all but the kept tasks; the last processes stay warm."""
        stopped = list(self._running)
        for resident in kept:
            stopped.remove(resident)
        warm = [*self._warm, *(resident.mps_pct for resident in stopped)]
        self._warm = warm[-self._costs.keep :] if self._costs.keep else []
        return self._costs.stop_s * len(stopped)

    def _start(self, residents: list[Resident]) -> float:
        times_s = []
        for resident in residents:
            if resident.mps_pct in self._warm:
                self._warm.remove(resident.mps_pct)
                times_s.append(self._costs.warm_s)
            else:
                times_s.append(self._costs.standby_s)
        return max(times_s, default=0.0) if self._costs.together else sum(times_s)


def _count_new(setup: Setup, planned: set[str]) -> int:
    """Return how many points of a setup are not planned yet, and add them."""
    new = {str(point) for point in setup.points()} - planned
    planned |= new
    return len(new)
