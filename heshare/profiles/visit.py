"""One visit to one setting: what was run, and what the device said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from heshare.errors import DeviceError
from heshare.profiles.columns import write_co_runners
from heshare.profiles.design import Point
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

DIGITS = 7
"""Significant digits that are recorded: more than any sensor tells, fewer than differ from one machine to another."""
UTILISATIONS = ("sm_util_pct", "dram_util_pct", "l2_util_pct")


@dataclass(frozen=True, slots=True)
class Setup:
    """Tasks that run together at a clock.

    Attributes:
        residents: the tasks, sorted as they are written.
        sm_mhz: the SM clock, MHz; the top clock is what a card does that is left to itself.
    """

    residents: tuple[Resident, ...]
    sm_mhz: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "residents", tuple(sorted(self.residents, key=str)))

    @classmethod
    def of(cls, point: Point) -> Setup:
        """What has to run for a point to be measured."""
        return cls((point.target, *point.co_runners), point.sm_mhz)

    def points(self) -> list[Point]:
        """Every task as the observed one, each different task once."""
        places = {one: place for place, one in reversed(list(enumerate(self.residents)))}
        others = [(one, self.residents[:at] + self.residents[at + 1 :]) for one, at in sorted(places.items(), key=str)]
        return [Point(one, rest, self.sm_mhz) for one, rest in others]

    def __str__(self) -> str:
        first = self.residents[0].workload
        return f"{write_co_runners(self.residents)}/{self.sm_mhz}/{first.precision}/{first.engine}"


@dataclass(frozen=True, slots=True)
class Visit:
    """What one visit found.

    Attributes:
        setup: the setting, as text.
        number: which visit to it, from 1.
        took_s: the device's time that the visit took, all in all, s.
        window_s: length of the window, s.
        spent_j: what the board's energy account grew by in the window, J.
        power_w: board power, mean over the readings, W.
        sm_mhz: SM clock reached, mean over the readings, MHz.
        time_s: time of one iteration of each task, mean over the readings, in the order of the setting, s.
        done: iterations that each task completed in the window.
        sm_util_pct: of the whole GPU, mean over the readings, %; NaN where the device cannot tell, as the next two.
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
        """For JSON: NaN becomes null."""
        return {key: None if value != value else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Visit:
        """The visit that `as_dict` wrote.

        Raises:
            TypeError: other fields.
        """
        cells: dict[str, Any] = {key: math.nan if value is None else value for key, value in found.items()}
        return cls(**{**cells, "time_s": tuple(found["time_s"]), "done": tuple(found["done"])})


def row(gpu: Gpu, provenance: str, point: Point, visits: Sequence[Visit], idle_w: float) -> list[object]:
    """The row of a point: means and standard deviations over its visits, cells in the order of `COLUMNS`.

    Raises:
        DeviceError: an emulated device cannot tell a utilisation.
    """
    at, workload = Setup.of(point).residents.index(point.target), point.target.workload
    times = [visit.time_s[at] for visit in visits]
    powers = [visit.power_w for visit in visits]
    mean_w = math.fsum(visit.spent_j for visit in visits) / math.fsum(visit.window_s for visit in visits)
    cells: list[object] = [
        gpu.name,
        provenance,
        workload.model,
        workload.batch_size,
        workload.precision,
        workload.engine,
        point.target.mps_pct,
        point.sm_mhz,
        fmean(visit.sm_mhz for visit in visits),
        write_co_runners(point.co_runners),
        fmean(times),
        _spread(times),
        fmean(powers),
        _spread(powers),
        mean_w * fmean(times),
        *(_util(gpu, provenance, name, visits) for name in UTILISATIONS),
        idle_w,
        len(visits),
        any(visit.throttled for visit in visits),
    ]
    return [float(f"{cell:.{DIGITS}g}") if isinstance(cell, float) else cell for cell in cells]


def _spread(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _util(gpu: Gpu, provenance: str, name: str, visits: Sequence[Visit]) -> float:
    value = fmean(getattr(visit, name) for visit in visits)
    if math.isnan(value) and provenance != "measured":
        raise DeviceError(
            f"{gpu.name} ({provenance}) does not report {name}, which Table II's features need; "
            "record with a device that does."
        )
    return min(value, 100.0) if value == value else value
