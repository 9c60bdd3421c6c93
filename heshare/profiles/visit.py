"""The measurement protocol, the setups that a recording visits, and the result of one visit."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from heshare.profiles.design import Point
from heshare.profiles.schema import write_co_runners
from heshare.shared.errors import require
from heshare.world.workload import Resident


@dataclass(frozen=True, slots=True)
class MeasurementProtocol:
    """Parameters of the measurement of a setup; the manifest of a table keeps them.

    A setup is visited `repeats` times, in random order among the others. A visit starts the tasks, waits until all of
    them work, lets them warm up, and observes one window. The window is long because NVML's energy counter moves only
    every 20 to 100 ms, and because the power sensor of an A100 or H100 samples a quarter of the time.

    Attributes:
        repeats: visits to each setup; a row holds their mean and standard deviation.
        window_s: least length of a visit's window, s.
        warmup_s: how long the tasks run before the window, s.
        iterations: least number of iterations of every task in a window.
        readings: readings of a window, evenly spaced.
        cool_c: the temperature that the GPU cools down to before the first visit, and whenever it is hot, degrees C.
        hot_c: the temperature above which it cools down before a visit, degrees C.
        cool_limit_s: longest wait for that, s; the temperature of each visit is recorded.
        ready_limit_s: longest time until each task has done an iteration, s.
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
            value, minimum = getattr(self, field.name), least.get(field.name, 0)
            require(field.name, value, value >= minimum, f"at least {minimum}", "Correct the measurement protocol.")

    @property
    def visit_s(self) -> float:
        """Least time of a visit, s."""
        return self.warmup_s + self.window_s


NOTHING = "nothing"
"""The beginning of the text of a setup without tasks."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Tasks that run together at a clock; each of them as the measured one is a `Point`.

    Without tasks it measures the power of a GPU on which nothing runs, while workers may keep their CUDA contexts. Such
    a visit is in the journal and has no row in the profile.

    Attributes:
        residents: the tasks, sorted as they are written; equal ones are copies.
        sm_mhz: the SM clock, MHz; the top clock is the default of a GPU without a clock setting.
    """

    residents: tuple[Resident, ...]
    sm_mhz: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "residents", tuple(sorted(self.residents, key=str)))

    @classmethod
    def of(cls, point: Point) -> "Setup":
        """Return the setup in which a point is measured."""
        return cls((point.target, *point.co_runners), point.sm_mhz)

    def points(self) -> list[Point]:
        """Return the points of the setup: every task as the measured one, equal tasks once."""
        # Of equal tasks the first is measured. Sorting by the text of (task, place) is part of the recorded order.
        first = {task: place for place, task in reversed(list(enumerate(self.residents)))}
        return [
            Point(task, self.residents[:place] + self.residents[place + 1 :], self.sm_mhz)
            for task, place in sorted(first.items(), key=str)
        ]

    def __str__(self) -> str:
        if not self.residents:
            return f"{NOTHING}/{self.sm_mhz}"
        first = self.residents[0].workload
        return f"{write_co_runners(self.residents)}/{self.sm_mhz}/{first.precision}/{first.engine}"


@dataclass(frozen=True, slots=True)
class Visit:
    """The measurements of one visit to a setup.

    Attributes:
        setup: the setup, as text.
        took_s: the device's time that the whole visit took, s.
        window_s: length of the window, s.
        spent_j: increase of the board's energy counter in the window, J.
        power_w: board power, mean over the readings, W.
        sm_mhz: SM clock reached, mean over the readings, MHz.
        time_s: time of one iteration of each task, mean over the readings, in the order of the setup, s.
        done: iterations that each task completed in the window.
        sm_util_pct: of the whole GPU, mean over the readings, %; NaN if the device does not report it, as the next two.
        dram_util_pct: of the whole GPU, %.
        l2_util_pct: of the whole GPU, %.
        temperature_c: at the end of the window, degrees C, NaN where there is none.
        throttled: whether a limit held the clock below the request at any reading.
    """

    setup: str
    number: int
    took_s: float
    window_s: float
    spent_j: float
    power_w: float
    sm_mhz: float
    time_s: tuple[float, ...]
    done: tuple[float, ...]
    sm_util_pct: float
    dram_util_pct: float
    l2_util_pct: float
    temperature_c: float
    throttled: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, in which NaN is null."""
        return {key: None if value != value else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, cells: dict[str, Any]) -> "Visit":
        """Return the visit that `as_dict` wrote; a `TypeError` for other fields."""
        values: dict[str, Any] = {key: math.nan if cell is None else cell for key, cell in cells.items()}
        return cls(**{**values, "time_s": tuple(cells["time_s"]), "done": tuple(cells["done"])})
