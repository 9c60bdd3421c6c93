"""A recorded GPU: measured points looked up, in virtual time. What was not recorded is refused, never guessed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

from heshare.devices.model import Estimate, TaskEstimate
from heshare.devices.virtual import VirtualDevice
from heshare.errors import InputError, UnansweredError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

NEAREST = 3
"""How many recorded points an unanswered question is told."""

_Key = tuple[tuple[Resident, ...], int]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One task observed at one recorded point.

    Attributes:
        task: the observed task.
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
    """Looks up recorded points; a set of tasks is answered if each of them was observed in it, at that clock.

    A clock of None is the top clock, as in the record. Tasks may be started and stopped freely: only a set that runs
    for any time, or is read, must have been recorded.

    Args:
        gpu: which GPU was recorded.
        record: what was observed.
        idle_w: its power with nothing running, W.
        provenance: of the record: `emulated` or `measured`.
        source: where the record is, for messages.

    Raises:
        InputError: nothing was recorded.
    """

    def __init__(
        self, gpu: Gpu, record: Iterable[Recorded], *, idle_w: float, provenance: str, source: str = "a record"
    ) -> None:
        super().__init__(gpu, provenance=provenance)
        self._idle_w, self._source = idle_w, source
        self._points: dict[_Key, dict[Resident, Recorded]] = {}
        for one in record:
            self._points.setdefault(_key((one.task, *one.co_runners), one.sm_mhz), {})[one.task] = one
        if not self._points:
            raise InputError(
                column="gpu",
                found=f"no points of {gpu.name} in {source}",
                expected="a recorded GPU",
                action="Record it with `heshare profile`.",
            )

    def answers(self, residents: Iterable[Resident], sm_mhz: int | None = None) -> bool:
        """Whether the record says what each of these tasks does when they run together."""
        residents = tuple(residents)
        seen = self._points.get(_key(residents, self._request(sm_mhz)), {})
        return all(one in seen for one in residents)

    def _request(self, sm_mhz: int | None) -> int:
        return self._gpu.max_mhz if sm_mhz is None else sm_mhz

    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        clock = self._request(sm_mhz)
        if not residents:
            return Estimate(self._gpu.name, float(clock), self._idle_w, ())
        if not self.answers(residents, clock):
            raise self._unanswered(_key(residents, clock))
        seen = self._points[_key(residents, clock)]
        rows = [seen[one] for one in residents]
        reached = fsum(row.sm_mhz_reached for row in rows) / len(rows)
        power_w = fsum(row.power_w for row in rows) / len(rows)
        tasks = tuple(_task(row, rows) for row in rows)
        return Estimate(self._gpu.name, min(reached, float(clock)), power_w, tasks)

    def _unanswered(self, key: _Key) -> UnansweredError:
        missing = [str(one) for one in key[0] if one not in self._points.get(key, {})]
        what = "" if key not in self._points else f" (of it only without a look at {', '.join(missing)})"
        return UnansweredError(
            f"{self._gpu.name} ({self.provenance}, replayed from {self._source}): {_text(key)} was not recorded{what}. "
            f"Nearest recorded: {'; '.join(map(_text, self._nearest(key)))}. Ask for one of those, or record this one."
        )

    def _nearest(self, key: _Key) -> list[_Key]:
        whole = [point for point, seen in self._points.items() if all(one in seen for one in point[0])]
        return sorted(whole, key=lambda point: (*_distance(point, key), _text(point)))[:NEAREST]


def _task(row: Recorded, rows: list[Recorded]) -> TaskEstimate:
    # Only the whole GPU's utilisation is recorded: each task is given an even part of it.
    sm_pct, dram_pct, l2_pct = (value / len(rows) for value in row.utils_pct)
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
        uncertainty=0.0,
    )


def _key(residents: Iterable[Resident], sm_mhz: int) -> _Key:
    return tuple(sorted(residents, key=lambda one: (str(one), one))), sm_mhz


def _text(key: _Key) -> str:
    return f"{'+'.join(map(str, key[0]))} at {key[1]} MHz"


def _distance(point: _Key, asked: _Key) -> tuple[int, int, int, int]:
    """Other models, then other inference batch sizes and precisions, then other shares, then another clock."""
    here, there = ([list(map(kind, key[0])) for kind in _KINDS] for key in (point, asked))
    apart = [_apart(one, other) for one, other in zip(here, there, strict=True)]
    return apart[0], apart[1], apart[2], abs(point[1] - asked[1])


_KINDS = (lambda one: one.workload.model, lambda one: one.workload, lambda one: one)


def _apart(some: list[object], others: list[object]) -> int:
    """How many of either list the other one does not have."""
    left = list(others)
    for one in some:
        if one in left:
            left.remove(one)
    return len(some) - len(others) + 2 * len(left)
