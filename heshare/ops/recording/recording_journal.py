"""The recorder's journal: each visit and each kernel trace is written to disk as soon as it is over."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from heshare.lab.systems.fikit.kernel_table import KernelRow
from heshare.profiles.recorder import VisitLog
from heshare.profiles.visit import Visit
from heshare.shared.errors import InputError
from heshare.shared.journal import Journal
from heshare.world.workload import Workload


class RecordingJournal(VisitLog):
    """Visits and kernel traces so far, in memory and (with a path) in a `heshare.shared.journal.Journal`.

    A visit whose line a crash tore is made again.

    Args:
        path: the journal's file, or None to keep visits in memory alone.
        identity: the parameters of the recording; a file of another recording is refused.

    Attributes:
        kernels: rows of the kernel traces, by workload.
        kernels_s: the device's time that each trace took, s.

    Raises:
        InputError: the file holds another recording, or as `Journal`.
    """

    def __init__(self, path: str | Path | None, identity: Mapping[str, Any]) -> None:
        super().__init__()
        self.kernels: dict[str, tuple[KernelRow, ...]] = {}
        self.kernels_s: dict[str, float] = {}
        self._journal = None if path is None else Journal(Path(path), "recording")
        if self._journal is not None:
            try:
                self._load(self._journal, json.loads(json.dumps(identity)))
            except BaseException:
                self.close()
                raise

    def add_idle(self, idle_w: float, took_s: float) -> None:
        """Keep the power with nothing running."""
        self._write({"idle_w": idle_w, "took_s": took_s})
        super().add_idle(idle_w, took_s)

    def add(self, visit: Visit) -> None:
        """Append a visit to the journal."""
        self._write({"visit": visit.as_dict()})
        super().add(visit)

    def add_kernels(self, workload: Workload, rows: Sequence[KernelRow], took_s: float) -> None:
        """Append a kernel trace to the journal."""
        self._write({"traced": str(workload), "rows": [astuple(row) for row in rows], "took_s": took_s})
        self._keep_kernels(str(workload), tuple(rows), took_s)

    def close(self) -> None:
        """Close the file. May be repeated."""
        if self._journal is not None:
            self._journal.close()

    def _keep_kernels(self, workload: str, rows: tuple[KernelRow, ...], took_s: float) -> None:
        self.kernels[workload], self.kernels_s[workload] = rows, took_s
        self.spent_s += took_s

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(entry)

    def _load(self, journal: Journal, identity: dict[str, Any]) -> None:
        """Restore the entries of an earlier session, or begin a new journal."""
        if not journal.entries:
            journal.append({"recording": identity})
            return
        recorded: dict[str, Any] = journal.entries[0]["recording"]
        differing = [key for key in sorted(recorded | identity) if recorded.get(key) != identity.get(key)]
        if differing:
            found = "a recording with " + ", ".join(f"{key}={recorded.get(key)}" for key in differing)
            raise _refused(journal.path, 1, found, ", ".join(f"{key}={identity.get(key)}" for key in differing))
        for number, entry in enumerate(journal.entries[1:], start=2):
            try:
                repeated = self._restore(entry)
            except (KeyError, TypeError, ValueError):
                raise _refused(journal.path, number, "a damaged line") from None
            if repeated:
                raise _refused(journal.path, number, f"{repeated} a second time")

    def _restore(self, entry: dict[str, Any]) -> str:
        """Restore an entry; return a description of its subject if that was restored before, else nothing."""
        if "idle_w" in entry:
            super().add_idle(float(entry["idle_w"]), float(entry["took_s"]))
        elif "traced" in entry:
            if entry["traced"] in self.kernels:
                return f"the kernels of {entry['traced']}"
            rows = tuple(KernelRow(*cells) for cells in entry["rows"])
            self._keep_kernels(str(entry["traced"]), rows, float(entry["took_s"]))
        else:
            visit = Visit.from_dict(entry["visit"])
            if (visit.setup, visit.number) in self.visits:
                return f"visit {visit.number} to {visit.setup}"
            super().add(visit)
        return ""


def _refused(path: Path, row: int, found: str, expected: str = "the requested recording") -> InputError:
    return InputError(
        found,
        expected,
        "Record with the same options to continue, record into another folder, or delete the journal.",
        file=path,
        row=row,
    )
