"""The recorder's journal: each point goes to disk as soon as it is measured, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heshare.devices.device import Device
from heshare.errors import InputError
from heshare.profiles import store
from heshare.profiles.columns import NAMES, parse_co_runners
from heshare.profiles.design import Point
from heshare.world.workload import Resident, Workload


class Journal:
    """Rows measured so far, in memory and (with a path) on disk.

    Args:
        path: the journal's file, or None to keep rows in memory alone.
        device: the device being recorded.
        points: the design.
        repeats: windows for each point.

    Raises:
        InputError: the file holds rows of another recording.
    """

    def __init__(self, path: str | Path | None, device: Device, points: Sequence[Point], repeats: int) -> None:
        self._path = None if path is None else Path(path)
        self.rows: dict[Point, list[object]] = {}
        if self._path is not None and self._path.exists():
            self._load(self._path, (device.gpu.name, device.provenance, repeats), frozenset(points))

    def append(self, point: Point, row: list[object]) -> None:
        """Add a measured row; a row that was cut off by a crash is measured again next time."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            line = store.as_csv(store.frame([row])).splitlines()[1]
            fresh = not self._path.exists()
            with self._path.open("a", encoding="utf-8", newline="\n") as stream:
                stream.write((",".join(NAMES) + "\n" if fresh else "") + line + "\n")
        self.rows[point] = row

    def _load(self, path: Path, recording: tuple[str, str, int], points: frozenset[Point]) -> None:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        for number, line in enumerate(whole.splitlines()[1:], start=2):
            row = store.parse_row(line.split(","), file=path, row=number)
            cells = dict(zip(NAMES, row, strict=True))
            point = _point(cells)
            if point not in points or (cells["gpu"], cells["provenance"], cells["repeats"]) != recording:
                raise InputError(
                    file=path,
                    row=number,
                    found=f"{point} on {cells['gpu']}, {cells['provenance']}, {cells['repeats']} repeats",
                    expected="points of the recording that is asked for",
                    action="Record with the same samples, seed and repeats to go on, or delete the journal.",
                )
            self.rows[point] = row
        if whole != text:
            path.write_text(whole, encoding="utf-8", newline="\n")
        if not whole:
            path.unlink()


def _point(cells: dict[str, object]) -> Point:
    precision, engine = str(cells["precision"]), str(cells["engine"])
    workload = Workload(str(cells["workload"]), int(str(cells["batch_size"])), precision, engine)
    return Point(
        Resident(workload, int(str(cells["mps_pct"]))),
        parse_co_runners(str(cells["co_runners"]), precision=precision, engine=engine),
        int(str(cells["sm_mhz"])),
    )
