"""Tasks: a workload with a number of iterations and an arrival (Section III-B)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heshare.errors import InputError
from heshare.world.workload import Workload


@dataclass(frozen=True, slots=True)
class Task:
    """One task t_i of a task set T.

    Attributes:
        id: its index in the task set, 0 .. n-1.
        workload: what it runs.
        iterations: how many iterations (inference batches) it runs, > 0; need not be whole.
        arrival_s: when it arrives, seconds after the start.
    """

    id: int
    workload: Workload
    iterations: float
    arrival_s: float = 0.0

    def __post_init__(self) -> None:
        for column, value, good in (
            ("iterations", self.iterations, self.iterations > 0),
            ("arrival_s", self.arrival_s, self.arrival_s >= 0),
        ):
            if not (good and math.isfinite(value)):
                raise InputError(
                    column=column,
                    found=f"{value} for task {self.id}",
                    expected="a finite number above zero" if column == "iterations" else "a time of at least zero",
                    action="Correct the task.",
                )
