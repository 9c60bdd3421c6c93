"""The counts of a drill, added up over its runs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """What was counted.

    Attributes:
        locked: kills at which a clock was locked.
        running: kills at which jobs ran.
        restored: kills after which everything was as before; of workers, after which the run went on.
        counted_twice: jobs that completed twice in a journal.
        worked_twice: jobs that did their work twice; the executor promises at least once.
        took_s: the time from each kill until everything was as before, s.
    """

    kind: str
    kills: int = 0
    locked: int = 0
    running: int = 0
    restored: int = 0
    runs: int = 0
    lost: int = 0
    counted_twice: int = 0
    worked_twice: int = 0
    took_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def after_kill(self, wrong: list[str], took_s: float) -> None:
        self.restored += not wrong
        self.took_s += [] if wrong else [took_s]
        self.faults += [f"{self.kind}, kill {self.kills}: {fault}" for fault in wrong]

    def after_run(self, counts: tuple[int, int, int], wrong: list[str]) -> None:
        self.runs += 1
        lost, counted_twice, worked_twice = counts
        self.lost, self.counted_twice = self.lost + lost, self.counted_twice + counted_twice
        self.worked_twice += worked_twice
        self.faults += [f"{self.kind}, run {self.runs}, over: {fault}" for fault in wrong]
        if lost or counted_twice:
            self.faults.append(f"{self.kind}, run {self.runs}: {lost} jobs lost, {counted_twice} counted twice")
