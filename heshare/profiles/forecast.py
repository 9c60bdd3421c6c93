"""What a budget will buy before a GPU is touched: the plan's order, its minutes and its points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heshare.profiles.protocol import Protocol
from heshare.profiles.session import Item
from heshare.profiles.visit import Setup
from heshare.world.workload import Resident, Workload


@dataclass(frozen=True, slots=True)
class Costs:
    """What a recording takes beside warm-up and windows. Assumptions: a GPU's own journal (`took_s`) says what is true.

    Attributes:
        standby_s: from the order to the first iteration of a process that has imported PyTorch: its CUDA context, its
            libraries' kernels, weights, the worker's own second of warm-up, s.
        warm_s: the same of a process that is warm: weights and warm-up, s.
        stop_s: from the word to stop until the task has left and its memory is free, s.
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


FREE = Costs(standby_s=0.0, warm_s=0.0, stop_s=0.0, trace_s=0.0)
"""An emulated device loads nothing."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One item of the plan.

    Attributes:
        what: the setting, or the workload to trace.
        begin_s: when it begins, s from the start of the recording.
        start_s: of that time, what starting and stopping tasks takes, s.
        took_s: what all of it takes, s.
        points: rows of the profile that are new with it.
    """

    what: str
    begin_s: float
    start_s: float
    took_s: float
    points: int


class Pool:
    """The processes of a recording as far as their shares go: who is warm, and what the next set costs."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._running: list[Resident] = []
        self._warm: list[int] = []

    def arrange(self, wanted: Iterable[Resident]) -> float:
        """Have exactly these tasks run; returns the seconds that it takes."""
        rest, kept = list(wanted), list[Resident]()
        for one in self._running:
            if one in rest:
                rest.remove(one)
                kept.append(one)
        if rest:
            rest, kept = rest + kept, []
        took_s = self._stop(kept)
        self._running = kept + rest
        return took_s + self._start(rest)

    def clear(self) -> float:
        """Stop every task; returns the seconds that it takes."""
        return self.arrange(())

    def _stop(self, kept: list[Resident]) -> float:
        going = list(self._running)
        for one in kept:
            going.remove(one)
        self._warm = [*self._warm, *(one.mps_pct for one in going)][-self._costs.keep :] if self._costs.keep else []
        return self._costs.stop_s * len(going)

    def _start(self, residents: list[Resident]) -> float:
        each = []
        for one in residents:
            if one.mps_pct in self._warm:
                self._warm.remove(one.mps_pct)
                each.append(self._costs.warm_s)
            else:
                each.append(self._costs.standby_s)
        return (max(each, default=0.0) if self._costs.together else sum(each)) if each else 0.0


def forecast(
    items: Iterable[Item], protocol: Protocol, budget_s: float | None = None, *, costs: Costs | None = None
) -> list[Planned]:
    """The items that fit into a budget and what they yield, without measuring anything.

    Time per point = (starting and stopping + kernel traces + idle power + visits x (warm-up + window)) / points. The
    chains make it short: seven tasks are started once, and observed in seven sets, which are 28 points.

    Args:
        items: the plan, in its order; it may be endless with a budget.
        protocol: how to measure.
        budget_s: time to spend, s; None takes all items.
        costs: what starting takes; by default that of a live GPU.
    """
    costs = costs or Costs()
    pool, seen, planned = Pool(costs), set[str](), list[Planned]()
    now_s = protocol.repeats * protocol.window_s
    for item in items:
        if isinstance(item, Workload):
            start_s, took_s, points, what = pool.clear(), costs.trace_s, 0, f"kernels of {item}"
        else:
            setup = item[0]
            start_s, took_s, what = pool.arrange(setup.residents), protocol.visit_s, str(setup)
            points = _new(setup, seen)
        if budget_s is not None and now_s + start_s + took_s > budget_s:
            break
        planned.append(Planned(what, now_s, start_s, start_s + took_s, points))
        now_s += start_s + took_s
    return planned


def _new(setup: Setup, seen: set[str]) -> int:
    found = {str(point) for point in setup.points()} - seen
    seen |= found
    return len(found)
