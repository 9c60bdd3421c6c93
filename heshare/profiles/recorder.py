"""The recorder: measures the points of a design on any `Device` and returns a profile table (Section III-A).

The same code records an emulated GPU and a real one. Recording within a time budget and with a journal on disk is in
`heshare.ops.recording`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from statistics import fmean, stdev
from typing import NoReturn

import numpy as np
import pandas as pd
from tqdm import tqdm

from heshare.devices.device import Device
from heshare.profiles import store
from heshare.profiles.design import Point
from heshare.profiles.measure import MeasurementBench
from heshare.profiles.schema import UTILISATIONS, check, write_co_runners
from heshare.profiles.visit import MeasurementProtocol, Setup, Visit
from heshare.shared.errors import DeviceError, require
from heshare.world.catalogue import gpu as find_gpu

DIGITS = 7
"""Significant digits that are recorded: more than any sensor has, fewer than differ from one machine to another."""
Step = tuple[Setup, int]
"""A visit to make: the setup, and the number of the visit to it, from 1."""


class VisitLog:
    """The visits of a recording so far, in memory.

    The visits are by setup and number, in the order in which they were made. `idle_w` is power with nothing running, W,
    None until it is measured; that took `idle_s` of the device's time, and everything `spent_s`.
    """

    def __init__(self) -> None:
        self.visits: dict[tuple[str, int], Visit] = {}
        self.idle_w: float | None = None
        self.idle_s = self.spent_s = 0.0

    def add_idle(self, idle_w: float, took_s: float) -> None:
        """Keep the power with nothing running."""
        self.idle_w, self.idle_s = idle_w, took_s
        self.spent_s += took_s

    def add(self, visit: Visit) -> None:
        """Append a visit to the log."""
        self.visits[visit.setup, visit.number] = visit
        self.spent_s += visit.took_s


class RecordingSession:
    """A device under measurement and the log of its visits, to which new ones are added.

    The device is idle, and is so again when a run is over, with no clock set.
    """

    def __init__(self, device: Device, protocol: MeasurementProtocol, log: VisitLog) -> None:
        self.device, self.protocol, self.log = device, protocol, log
        self.bench = MeasurementBench(device, protocol)

    def run(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Make the visits that the log does not hold; yield every one when it is done."""
        self.device.stand_by()
        try:
            if self.log.idle_w is None:
                self.log.add_idle(*self.bench.measure_idle())
            for setup, number in steps:
                if (str(setup), number) not in self.log.visits:
                    self.log.add(self.bench.visit(setup, number))
                yield setup, number
        except BaseException:
            # The first error is the one to report.
            with suppress(DeviceError):
                self.bench.release()
            raise
        self.bench.release()

    def measure(self, points: Sequence[Point], *, seed: int, progress: bool = True) -> pd.DataFrame:
        """Visit the setups of points in random order; return the profile table."""
        steps = list(repeated_visits(setups_of(points), self.protocol.repeats, np.random.default_rng(seed)))
        with progress_bar(self.device, len(steps), "visit", progress) as bar:
            for _ in self.run(steps):
                bar.update()
        return profile_table(self.device, points, self.log)


def record(
    device: Device,
    points: Sequence[Point],
    *,
    protocol: MeasurementProtocol | None = None,
    seed: int = 0,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure every point on a device, in random order, as often as the protocol requires.

    The device is idle before, and idle with no clock set afterwards. Each point is given once; `seed` is of their
    order. The table of the profile schema has a row for each point, in their order.

    Raises:
        DeviceError: the device refuses a point or does not report a utilisation.
        InputError: a row breaks the schema.
    """
    check_catalogue(device)
    session = RecordingSession(device, protocol or MeasurementProtocol(), VisitLog())
    return session.measure(points, seed=seed, progress=progress)


def setups_of(points: Sequence[Point]) -> list[Setup]:
    """Return the setups of points, each once, in order."""
    return list(dict.fromkeys(map(Setup.of, points)))


def repeated_visits(setups: Sequence[Setup], repeats: int, rng: np.random.Generator) -> Iterator[Step]:
    """Yield visits to each setup `repeats` times, in random order within each round."""
    for number in range(1, repeats + 1):
        yield from ((setups[place], number) for place in rng.permutation(len(setups)))


def progress_bar(device: Device, total: int, unit: str, progress: bool) -> "tqdm[NoReturn]":
    """Return the progress bar of a recording."""
    return tqdm(total=total, unit=unit, desc=f"profile {device.gpu.name}", disable=None if progress else True)


def check_catalogue(device: Device) -> None:
    """Raise `InputError` unless the catalogue describes the device: written tables are checked against it."""
    gpu, top_mhz = find_gpu(device.gpu.name), device.gpu.max_mhz
    found = f"a top clock of {gpu.max_mhz} MHz, where the GPU offers {top_mhz} MHz"
    column, expected = f"{gpu.name} clocks_mhz", "the clocks that the GPU offers"
    action = "Correct clocks_mhz of this GPU, or describe the variant under a name of its own."
    require(column, found, top_mhz == gpu.max_mhz, expected, action, file="data/gpus.csv")


def profile_table(device: Device, points: Sequence[Point], log: VisitLog) -> pd.DataFrame:
    """Return the profile table of visited points, checked against the schema."""
    visits: dict[str, list[Visit]] = {}
    for setup, keys in groupby(sorted(log.visits), key=lambda key: key[0]):
        visits[setup] = [log.visits[key] for key in keys]
    idle_w = log.idle_w or 0.0
    rows = [_row(device, point, visits[str(Setup.of(point))], idle_w) for point in points]
    return check(store.make_table(rows))


def _row(device: Device, point: Point, visits: Sequence[Visit], idle_w: float) -> list[object]:
    place, workload = Setup.of(point).residents.index(point.target), point.target.workload
    times_s = [visit.time_s[place] for visit in visits]
    powers_w = [visit.power_w for visit in visits]

    # Energy comes from the board's counter, not from the power readings, which may miss short peaks.
    mean_w = math.fsum(visit.spent_j for visit in visits) / math.fsum(visit.window_s for visit in visits)

    cells: list[object] = [
        device.gpu.name,
        device.provenance,
        workload.model,
        workload.batch_size,
        workload.precision,
        workload.engine,
        point.target.mps_pct,
        point.sm_mhz,
        fmean(visit.sm_mhz for visit in visits),
        write_co_runners(point.co_runners),
        fmean(times_s),
        _standard_deviation(times_s),
        fmean(powers_w),
        _standard_deviation(powers_w),
        mean_w * fmean(times_s),
        *(_utilisation_pct(device, name, visits) for name in UTILISATIONS),
        idle_w,
        len(visits),
        any(visit.throttled for visit in visits),
    ]
    return [float(f"{cell:.{DIGITS}g}") if isinstance(cell, float) else cell for cell in cells]


def _standard_deviation(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _utilisation_pct(device: Device, name: str, visits: Sequence[Visit]) -> float:
    value = fmean(getattr(visit, name) for visit in visits)
    if math.isnan(value) and device.provenance != "measured":
        raise DeviceError(
            f"{device.gpu.name} ({device.provenance}) does not report {name}, which Table II's features need; "
            "record with a device that does."
        )
    return min(value, 100.0) if value == value else value
