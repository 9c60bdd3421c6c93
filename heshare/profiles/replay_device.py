"""The replay device (`replay:PATH`): recorded points looked up in virtual time; other points are an error."""

from collections import Counter
from collections.abc import Hashable, Iterable
from math import fsum
from typing import Any

import pandas as pd

from heshare.devices.device_model import Estimate, TaskEstimate
from heshare.devices.uncertainty import Uncertainty
from heshare.devices.virtual_device import VirtualDevice
from heshare.profiles.schema import residents_of
from heshare.shared.errors import UnansweredError, require
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.workload import Resident

NEAREST = 3
"""Recorded points that the error for another point names."""

_Key = tuple[tuple[Resident, ...], int]
"""A sorted set of tasks, and the SM clock, MHz."""


class ReplayDevice(VirtualDevice):
    """A device that looks up recorded points; a set of tasks runs if each of them was measured in it, at that clock.

    A clock of None is the top clock, as in the record. Tasks may be started and stopped freely: only a set that runs
    for any time, or is read, must have been recorded. The table has rows of the profile schema, of one GPU and one
    provenance; `source` is its place, for messages.

    Raises:
        InputError: the table is empty, or holds more than one GPU or provenance.
    """

    def __init__(self, table: pd.DataFrame, *, source: str = "a table") -> None:
        kinds = sorted(set(zip(table["gpu"], table["provenance"], strict=True)))
        found = ", ".join(f"{gpu} ({provenance})" for gpu, provenance in kinds) or "no rows"
        action = "Name the table of one GPU, such as replay:data/profiles/emulated/T4/profile.csv."
        require("gpu", found, len(kinds) == 1, "one GPU, emulated or measured", action, file=source)
        name, provenance = kinds[0]
        super().__init__(find_gpu(name), provenance=provenance)
        self._idle_w, self._source = float(table["idle_w"].mean()), source
        # The row of each measured task, by the set in which it was measured.
        self._points: dict[_Key, dict[Resident, Any]] = {}
        rows: Iterable[Any] = table.itertuples(index=False)
        for row in rows:
            residents = residents_of(row)
            self._points.setdefault(_key(residents, row.sm_mhz), {})[residents[0]] = row

    def is_recorded(self, residents: Iterable[Resident], sm_mhz: int | None = None) -> bool:
        """Return whether each of these tasks was measured while they run together."""
        residents = tuple(residents)
        measured = self._points.get(_key(residents, self._request(sm_mhz)), {})
        return all(task in measured for task in residents)

    def _request(self, sm_mhz: int | None) -> int:
        return self.gpu.max_mhz if sm_mhz is None else sm_mhz

    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        clock_mhz = self._request(sm_mhz)
        if not residents:
            return Estimate(self.gpu.name, float(clock_mhz), self._idle_w, ())
        key = _key(residents, clock_mhz)
        if not self.is_recorded(residents, clock_mhz):
            raise self._unanswered(key)
        # Each task of the set was measured in visits of its own: power and clock are the means over its rows.
        rows = [self._points[key][task] for task in residents]
        reached_mhz = fsum(row.sm_mhz_reached for row in rows) / len(rows)
        power_w = fsum(row.power_w for row in rows) / len(rows)
        tasks = tuple(_task_estimate(task, row, len(rows)) for task, row in zip(residents, rows, strict=True))
        return Estimate(self.gpu.name, min(reached_mhz, float(clock_mhz)), power_w, tasks)

    def _unanswered(self, key: _Key) -> UnansweredError:
        missing = [str(task) for task in key[0] if task not in self._points.get(key, {})]
        partly = f" (only without measuring {', '.join(missing)})" if key in self._points else ""
        return UnansweredError(
            f"{self.gpu.name} ({self.provenance}, replayed from {self._source}): {_text(key)} was not recorded"
            f"{partly}. Nearest recorded: {'; '.join(map(_text, self._nearest(key)))}. Use one of these or record it."
        )

    def _nearest(self, key: _Key) -> list[_Key]:
        complete = [point for point, measured in self._points.items() if all(task in measured for task in point[0])]
        return sorted(complete, key=lambda point: (*_distance(point, key), _text(point)))[:NEAREST]


def _task_estimate(task: Resident, row: Any, tasks: int) -> TaskEstimate:
    # Only the whole GPU's utilisation is recorded: each task is given an even part of it.
    return TaskEstimate(
        workload=task.workload.model,
        batch_size=task.workload.batch_size,
        mps_pct=task.mps_pct,
        time_s=row.time_s,
        sm_util_pct=row.sm_util_pct / tasks,
        dram_util_pct=row.dram_util_pct / tasks,
        l2_util_pct=row.l2_util_pct / tasks,
        anchored=True,
        uncertainty_parts=Uncertainty(),
    )


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
