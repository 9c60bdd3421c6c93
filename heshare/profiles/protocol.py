"""How a point is measured: the measurement protocol, as numbers that a manifest can keep."""

from __future__ import annotations

from dataclasses import dataclass, fields

from heshare.errors import InputError


@dataclass(frozen=True, slots=True)
class Protocol:
    """How each setting is measured.

    A setting is visited `repeats` times, in random order among the others. A visit starts the tasks, waits until all of
    them work, lets them warm up, and observes one window. The window is long because NVML's energy counter moves only
    every 20 to 100 ms, and because the power sensor of an A100 or H100 looks at a quarter of the time.

    Attributes:
        repeats: visits to each setting; a row holds their mean and standard deviation.
        window_s: least length of a visit's window, s.
        warmup_s: how long the tasks run before the window, s.
        iterations: least number of iterations of every task in a window.
        readings: readings of a window, evenly spaced.
        cool_c: the temperature that the GPU cools down to before the first visit, and whenever it is hot, degrees C.
        hot_c: the temperature above which it cools down before a visit, degrees C.
        cool_limit_s: how long to wait for that at most, s; the temperature of each visit is kept.
        ready_limit_s: how long tasks may take until each of them has done an iteration, s.
    """

    repeats: int = 5
    window_s: float = 5.0
    warmup_s: float = 1.0
    iterations: float = 2.0
    readings: int = 5
    cool_c: float = 60.0
    hot_c: float = 80.0
    cool_limit_s: float = 60.0
    ready_limit_s: float = 300.0

    def __post_init__(self) -> None:
        least = {"repeats": 1, "readings": 1, "window_s": 1e-3, "iterations": 1}
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= least.get(field.name, 0):
                raise InputError(
                    column=field.name,
                    found=str(value),
                    expected=f"at least {least.get(field.name, 0)}",
                    action="Correct the measurement protocol.",
                )

    @property
    def visit_s(self) -> float:
        """What a visit takes at least, s."""
        return self.warmup_s + self.window_s
