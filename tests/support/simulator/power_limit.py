"""What a run with a power limit promises, checked at every change of power."""

from __future__ import annotations

from support.simulator.edges import SimMachine
from support.simulator.faults import Schedule
from support.simulator.kernel import Process

BLIND = ("hang", "slow", "refuse", "lie", "lost", "counter", "kill-card_process", "kill-clock_service", "power-cut")
"""Faults by which a run does not know the power of its cards, or the clocks that it has set are gone."""
READ_S, LOWER_S = 1.5, 8.0
"""Longest delay of a reading, and until power that is more than foreseen is below the limit again, s."""


class PowerLimit:
    """Watches the power of a machine's cards while an executor lives that has a limit."""

    def __init__(self, machine: SimMachine, schedule: Schedule) -> None:
        self._machine, self._limit_w, self._foreseen = machine, schedule.limit_w, schedule.foreseen
        self._executor: Process | None = None
        self._over_s: float | None = None
        self._began_s = 0.0
        if self._limit_w is not None and not schedule.has(*BLIND):
            machine.powered = self._changed

    def begin(self, executor: Process) -> None:
        self._executor, self._over_s, self._began_s = executor, None, self._machine.now
        executor.on_end.append(self._changed)

    def _changed(self, starts: bool = False) -> None:
        machine, over_s, executor = self._machine, self._over_s, self._executor
        if executor is None or self._limit_w is None:
            return
        power_w = sum(card.power_w() for card in machine.cards)
        for_s = 0.0 if over_s is None else machine.now - over_s
        said = f"where {self._limit_w:g} W are allowed"
        if starts and for_s > READ_S:
            machine.violate(f"a job starts, or a clock rises, after {for_s:.1f} s of too much power {said}")
        # Once an executor was killed its clocks are given back while its jobs end, maybe beside the next one.
        left = any(run.code is None and run.began_s < self._began_s for run in machine.jobs.runs)
        over = executor.alive and not left and power_w > self._limit_w + 1e-6
        if over and over_s is None:
            self._over_s = machine.now
            if self._foreseen:
                machine.violate(f"{power_w:.1f} W are drawn {said}")
        if over_s is not None and not over:
            self._over_s = None
            if for_s > LOWER_S:
                machine.violate(f"for {for_s:.1f} s too much power was drawn {said}")
