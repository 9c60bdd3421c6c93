"""The replay device (`replay:PATH`): recorded points looked up in virtual time; other points are an error."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.devices.device_model import Estimate, TaskEstimate
from heshare.devices.uncertainty import Uncertainty
from heshare.devices.virtual_device import VirtualDevice
from heshare.profiles import store
from heshare.profiles.schema import residents_of
from heshare.shared.errors import InputError, UnansweredError
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

NEAREST = 3
"""Recorded points that the error for another point names."""

_Key = tuple[tuple[Resident, ...], int]
"""A sorted set of tasks, and the SM clock, MHz."""


@dataclass(frozen=True, slots=True)
class RecordedPoint:
    """One measured task of a recorded point.

    Attributes:
        task: the measured task.
        co_runners: the tasks beside it.
        sm_mhz: the SM clock requested, MHz.
        time_s: time of one iteration of the task, s.
        power_w: board power, W.
        sm_mhz_reached: the SM clock reached, MHz.
        utils_pct: SM, memory bandwidth and L2 utilisation of the whole GPU, %, NaN where unknown.
    """

    task: Resident
    co_runners: tuple[Resident, ...]
    sm_mhz: int
    time_s: float
    power_w: float
    sm_mhz_reached: float
    utils_pct: tuple[float, float, float]


class ReplayDevice(VirtualDevice):
    """A device that looks up recorded points; a set of tasks runs if each of them was measured in it, at that clock.

    A clock of None is the top clock, as in the record. Tasks may be started and stopped freely: only a set that runs
    for any time, or is read, must have been recorded.

    Args:
        gpu: the GPU that was recorded.
        record: the recorded points.
        idle_w: its power with nothing running, W.
        provenance: of the record: `emulated` or `measured`.
        source: the record's place, for messages.

    Raises:
        InputError: nothing was recorded.
    """

    def __init__(
        self, gpu: Gpu, record: Iterable[RecordedPoint], *, idle_w: float, provenance: str, source: str = "a record"
    ) -> None:
        super().__init__(gpu, provenance=provenance)
        self._idle_w, self._source = idle_w, source
        self._points: dict[_Key, dict[Resident, RecordedPoint]] = {}
        for point in record:
            key = _key((point.task, *point.co_runners), point.sm_mhz)
            self._points.setdefault(key, {})[point.task] = point
        if not self._points:
            raise InputError(
                f"no points of {gpu.name} in {source}",
                "a recorded GPU",
                "Record it with `heshare profile`.",
                column="gpu",
            )

    def is_recorded(self, residents: Iterable[Resident], sm_mhz: int | None = None) -> bool:
        """Return whether each of these tasks was measured while they run together."""
        residents = tuple(residents)
        measured = self._points.get(_key(residents, self._request(sm_mhz)), {})
        return all(task in measured for task in residents)

    def _request(self, sm_mhz: int | None) -> int:
        return self._gpu.max_mhz if sm_mhz is None else sm_mhz

    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        clock_mhz = self._request(sm_mhz)
        if not residents:
            return Estimate(self._gpu.name, float(clock_mhz), self._idle_w, ())
        key = _key(residents, clock_mhz)
        if not self.is_recorded(residents, clock_mhz):
            raise self._unanswered(key)
        # Each task of the set was measured in visits of its own: power and clock are the means over its rows.
        rows = [self._points[key][task] for task in residents]
        reached_mhz = fsum(row.sm_mhz_reached for row in rows) / len(rows)
        power_w = fsum(row.power_w for row in rows) / len(rows)
        tasks = tuple(_task_estimate(row, len(rows)) for row in rows)
        return Estimate(self._gpu.name, min(reached_mhz, float(clock_mhz)), power_w, tasks)

    def _unanswered(self, key: _Key) -> UnansweredError:
        missing = [str(task) for task in key[0] if task not in self._points.get(key, {})]
        partly = f" (only without measuring {', '.join(missing)})" if key in self._points else ""
        return UnansweredError(
            f"{self._gpu.name} ({self.provenance}, replayed from {self._source}): {_text(key)} was not recorded"
            f"{partly}. Nearest recorded: {'; '.join(map(_text, self._nearest(key)))}. Use one of these or record it."
        )

    def _nearest(self, key: _Key) -> list[_Key]:
        complete = [point for point, measured in self._points.items() if all(task in measured for task in point[0])]
        return sorted(complete, key=lambda point: (*_distance(point, key), _text(point)))[:NEAREST]


def open_replay(path: str | Path) -> ReplayDevice:
    """Return the device that a table recorded; errors as of `replay_table`."""
    return replay_table(store.read(path), source=str(path))


def replay_table(table: pd.DataFrame, *, source: str = "a table") -> ReplayDevice:
    """Return a device that replays a table of the profile schema; `source` is its place, for messages.

    Raises:
        InputError: the table holds more than one GPU or provenance.
    """
    kinds = sorted(set(zip(table["gpu"], table["provenance"], strict=True)))
    if len(kinds) != 1:
        raise InputError(
            ", ".join(f"{gpu} ({provenance})" for gpu, provenance in kinds) or "no rows",
            "one GPU, emulated or measured",
            "Name the table of one GPU, such as replay:data/profiles/emulated/T4/profile.csv.",
            file=source,
            column="gpu",
        )
    name, provenance = kinds[0]
    idle_w = float(table["idle_w"].mean())
    record = list(map(_recorded_point, table.itertuples(index=False)))
    return ReplayDevice(find_gpu(name), record, idle_w=idle_w, provenance=provenance, source=source)


def _task_estimate(row: RecordedPoint, tasks: int) -> TaskEstimate:
    # Only the whole GPU's utilisation is recorded: each task is given an even part of it.
    sm_pct, dram_pct, l2_pct = (value / tasks for value in row.utils_pct)
    workload = row.task.workload
    return TaskEstimate(
        workload=workload.model,
        batch_size=workload.batch_size,
        mps_pct=row.task.mps_pct,
        time_s=row.time_s,
        sm_util_pct=sm_pct,
        dram_util_pct=dram_pct,
        l2_util_pct=l2_pct,
        anchored=True,
        uncertainty_parts=Uncertainty(),
    )


def _recorded_point(row: Any) -> RecordedPoint:
    task, *co_runners = residents_of(row)
    utils_pct = (row.sm_util_pct, row.dram_util_pct, row.l2_util_pct)
    return RecordedPoint(task, tuple(co_runners), row.sm_mhz, row.time_s, row.power_w, row.sm_mhz_reached, utils_pct)


def _key(residents: Iterable[Resident], sm_mhz: int) -> _Key:
    return tuple(sorted(residents, key=lambda task: (str(task), task))), sm_mhz


def _text(key: _Key) -> str:
    return f"{'+'.join(map(str, key[0]))} at {key[1]} MHz"


def _distance(point: _Key, other: _Key) -> tuple[int, int, int, int]:
    # The different models, then batch sizes and precisions, then shares, then the clocks' distance, MHz.
    tasks, others = point[0], other[0]
    return (
        _differences([task.workload.model for task in tasks], [task.workload.model for task in others]),
        _differences([task.workload for task in tasks], [task.workload for task in others]),
        _differences(tasks, others),
        abs(point[1] - other[1]),
    )


def _differences(items: Iterable[Hashable], others: Iterable[Hashable]) -> int:
    counts, other_counts = Counter(items), Counter(others)
    return (counts - other_counts).total() + (other_counts - counts).total()
