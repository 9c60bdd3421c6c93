"""The counts of a drill, added up over its runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Tally:
    """What was counted.

    Attributes:
        kind: what was killed.
        kills: how often.
        locked: kills at which a clock was locked.
        running: kills at which jobs ran.
        restored: kills after which everything was as before; of workers, after which the run went on.
        runs: runs that were carried to their end.
        lost: jobs that did not complete.
        counted_twice: jobs that completed twice in a journal.
        worked_twice: jobs that did their work twice; the executor promises at least once.
        took_s: the time from each kill until everything was as before, s.
        faults: what was wrong.
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
        """Count what a kill has left behind, after so long."""
        self.restored += not wrong
        self.took_s += [] if wrong else [took_s]
        self.faults += [f"{self.kind}, kill {self.kills}: {fault}" for fault in wrong]

    def after_run(self, counts: tuple[int, int, int], wrong: list[str]) -> None:
        """Count the jobs of a run that is over, and what it has left behind."""
        self.runs += 1
        lost, counted_twice, worked_twice = counts
        self.lost, self.counted_twice = self.lost + lost, self.counted_twice + counted_twice
        self.worked_twice += worked_twice
        self.faults += [f"{self.kind}, run {self.runs}, over: {fault}" for fault in wrong]
        if lost or counted_twice:
            self.faults.append(f"{self.kind}, run {self.runs}: {lost} jobs lost, {counted_twice} counted twice")

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as JSON has them."""
        return asdict(self)


def added(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies of one kind."""
    first, *others = tallies
    total = Tally(**first.as_dict())
    for one in others:
        for name, value in one.as_dict().items():
            if name != "kind":
                setattr(total, name, getattr(total, name) + value)
    return total


def table(tallies: Iterable[Tally]) -> str:
    """Return the counts as a Markdown table."""
    lines = [
        "| killed | kills | restored | clock locked | jobs ran | runs | jobs lost | counted twice | worked twice "
        "| restored after, mean s | most s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in tallies:
        mean_s = sum(one.took_s) / max(len(one.took_s), 1)
        cells = [one.kind, one.kills, one.restored, one.locked, one.running, one.runs, one.lost, one.counted_twice]
        cells += [one.worked_twice, f"{mean_s:.2f}", f"{max(one.took_s, default=0.0):.2f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
