"""The recorder: drives any `Device` through the settings of a design and writes what it says of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from heshare.devices.device import Device, Reading
from heshare.errors import DeviceError
from heshare.profiles import design, store
from heshare.profiles.columns import write_co_runners
from heshare.profiles.design import Point
from heshare.profiles.journal import Journal
from heshare.profiles.schema import check

TARGET = 0
"""The id under which the observed task runs; co-runners follow."""

DIGITS = 7
"""Significant digits that are recorded: more than any sensor tells, fewer than differ from one machine to another."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a point is measured.

    Attributes:
        repeats: windows measured for each point; their mean and standard deviation are recorded.
        window_s: least length of a window, s: longer than the power sensor's own averaging.
        warmup_s: how long the tasks run before the first window, s.
        iterations: least number of iterations of the observed task in a window.
    """

    repeats: int = 5
    window_s: float = 2.0
    warmup_s: float = 1.0
    iterations: float = 2.0


def record(
    device: Device,
    points: Sequence[Point],
    *,
    settings: Settings | None = None,
    journal: str | Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure every point on a device, one after the other.

    Args:
        device: an idle device; afterwards it is idle again and its clock is left to the card.
        points: the settings, each once.
        settings: how to measure.
        journal: a file that takes each row as it is measured; points that it already holds are not measured again.
        progress: show a progress bar on a terminal.

    Returns:
        A table of the profile schema, one row for each point, in the order of `points`.

    Raises:
        DeviceError: the device refuses a point or cannot tell a utilisation.
        InputError: the journal belongs to another recording, or a row breaks the schema.
    """
    settings = settings or Settings()
    log = Journal(journal, device, points, settings.repeats)
    todo = [point for point in points if point not in log.rows]
    if todo:
        device.set_clock(None)
        idle_w = fmean(device.read().power_w for _ in range(settings.repeats))
        for point in tqdm(todo, desc=f"profile {device.gpu.name}", unit="point", disable=None if progress else True):
            log.append(point, _row(device, point, settings, idle_w))
        device.set_clock(None)
    return check(store.frame(log.rows[point] for point in points))


def profile(
    device: Device,
    out: str | Path,
    *,
    samples: int = -(-design.SAMPLES // 3),
    seed: int = 0,
    settings: Settings | None = None,
    progress: bool = True,
) -> Path:
    """Record a GPU's profile: the reference rows and `samples` settings drawn with a seed.

    An interrupted recording goes on where it stopped when it is called again with the same arguments: measured points
    are kept and the others are measured (with an emulated device's repeat noise from its start again).

    Args:
        device: the device to record.
        out: the folder of profiles; the table becomes `out/<gpu>/profile.csv`.
        samples: training samples beside the reference rows; a third of the paper's 1,000 by default.
        seed: of the design.
        settings: how to measure.
        progress: show a progress bar on a terminal.

    Returns:
        The table's path.

    Raises:
        DeviceError: the device refuses a point.
        InputError: the journal in the folder belongs to another recording.
    """
    gpu = device.gpu
    rng = np.random.default_rng(np.random.SeedSequence([seed, *gpu.name.encode()]))
    points = design.references(gpu) + design.samples(gpu, samples, rng=rng)
    folder = Path(out) / gpu.name
    journal = folder / "journal.csv"
    table = record(device, points, settings=settings, journal=journal, progress=progress)
    path = store.write(table, folder / "profile.csv")
    journal.unlink(missing_ok=True)
    return path


def _row(device: Device, point: Point, settings: Settings, idle_w: float) -> list[object]:
    tasks = (point.target, *point.co_runners)
    started: list[int] = []
    device.set_clock(point.sm_mhz)
    try:
        for task_id, one in enumerate(tasks):
            device.start(task_id, one.workload, one.mps_pct)
            started.append(task_id)
        windows = _windows(device, settings)
    finally:
        for task_id in started:
            device.stop(task_id)
    return _cells(device, point, windows, idle_w)


def _windows(device: Device, settings: Settings) -> list[tuple[Reading, Reading]]:
    """The readings at both ends of each window."""
    before = device.read()
    device.advance(before.time_s + settings.warmup_s)
    windows = []
    for _ in range(settings.repeats):
        before = device.read()
        length_s = max(settings.window_s, settings.iterations * before.residents[TARGET].time_s)
        device.advance(before.time_s + length_s)
        windows.append((before, device.read()))
    return windows


def _cells(device: Device, point: Point, windows: list[tuple[Reading, Reading]], idle_w: float) -> list[object]:
    after = [end for _, end in windows]
    time_s = [reading.residents[TARGET].time_s for reading in after]
    power_w = [reading.power_w for reading in after]
    workload = point.target.workload
    cells: list[object] = [
        device.gpu.name,
        device.provenance,
        workload.model,
        workload.batch_size,
        workload.precision,
        workload.engine,
        point.target.mps_pct,
        point.sm_mhz,
        fmean(reading.sm_mhz for reading in after),
        write_co_runners(point.co_runners),
        fmean(time_s),
        _spread(time_s),
        fmean(power_w),
        _spread(power_w),
        _energy_j(windows),
        *(_util(device, name, after) for name in ("sm_util_pct", "dram_util_pct", "l2_util_pct")),
        idle_w,
        len(after),
        any(reading.throttled for reading in after),
    ]
    return [float(f"{cell:.{DIGITS}g}") if isinstance(cell, float) else cell for cell in cells]


def _energy_j(windows: list[tuple[Reading, Reading]]) -> float:
    """Board energy for one iteration of the observed task, J: the device's own account over all windows."""
    spent_j = sum(after.energy_j - before.energy_j for before, after in windows)
    done = sum(after.residents[TARGET].done - before.residents[TARGET].done for before, after in windows)
    if done <= 0:
        raise DeviceError("The observed task completed no iteration in the windows; lengthen window_s.")
    return spent_j / done


def _spread(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _util(device: Device, name: str, readings: list[Reading]) -> float:
    value = fmean(getattr(reading, name) for reading in readings)
    if math.isnan(value):
        raise DeviceError(
            f"{device.gpu.name} ({device.provenance}) does not report {name}, which Table II's features need; "
            "record with a device that does."
        )
    return min(value, 100.0)
