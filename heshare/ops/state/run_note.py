"""The note of a run on real GPUs: what a cleanup after it needs, and which GPUs it has."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from heshare.ops.state.held_note import FoundNote, HeldNote, Life, MachinePlace, found_note, state_folder
from heshare.shared.errors import DeviceError
from heshare.shared.processes import started_at


class RunNote(msgspec.Struct, frozen=True):
    """The note that a cleanup after a run needs; on disk before the run changes anything.

    Attributes:
        token: the mark of the run's processes.
        started: when the process was started (`processes.started_at`).
    """

    token: str
    pid: int
    started: int
    folder: str
    gpus: tuple[str, ...]

    @property
    def path(self) -> Path:
        return note_path(self.token)

    def hold(self) -> HeldNote:
        """Write the note of this process's run, synced and locked; it is seen once it is published."""
        with self._noting():
            return HeldNote(self.path, {"token": self.token, "folder": self.folder, "gpus": self.gpus})

    def publish(self, held: HeldNote) -> None:
        """Have the note seen by others."""
        with self._noting():
            held.publish()

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DeviceError(
                f"{self.path}: cannot note the run there ({error.strerror}). Set XDG_STATE_HOME to a folder that can "
                "be written."
            ) from error

    @classmethod
    def of(cls, found: FoundNote) -> "RunNote":
        try:
            note = msgspec.convert(found.facts, cls)
        except msgspec.ValidationError as error:
            raise DeviceError(f"{found.path}: not a note of a run ({error}). Delete it.") from error
        if note.path.name != found.path.name:
            raise DeviceError(f"{found.path}: not the note of the run that it names ({note.token}). Delete it.")
        return note


def note_of_this_process(folder: Path, token: str, gpus: Sequence[str]) -> RunNote:
    return RunNote(token, os.getpid(), started_at(os.getpid()), str(folder), tuple(gpus))


def note_path(token: str) -> Path:
    """Return the note of the run whose processes have this mark."""
    return state_folder() / f"run-{token}.json"


def run_notes() -> list[Path]:
    """Return the notes of runs that continue, or were killed and not cleaned up."""
    return sorted(state_folder().glob("run-*.json"))


@dataclass(frozen=True, slots=True)
class NotedRun:
    """A run that has a note; `token` is empty for one that cannot be read, `text` says in words what to do."""

    token: str
    life: Life
    gpus: tuple[str, ...]
    text: str


def noted_runs() -> list[NotedRun]:
    runs = []
    for path in run_notes():
        with contextlib.suppress(FileNotFoundError):
            try:
                with found_note(path) as found:
                    note = RunNote.of(found)
                    runs.append(NotedRun(note.token, found.life, note.gpus, _described(note, found)))
            except DeviceError as error:
                runs.append(NotedRun("", Life.UNKNOWN, (), str(error)))
    return runs


def _described(note: RunNote, found: FoundNote) -> str:
    run = f"run in {note.folder} (process {note.pid})"
    if found.life is Life.RUNS:
        where = "" if found.place.same_processes(MachinePlace.here()) else f" of {found.place}"
        return f"{', '.join(note.gpus) or 'GPUs'}: in use by the {run}{where}."
    if found.life.cleanable:
        return f"The {run} was killed, and nothing cleaned up after it. Run `heshare restore`."
    return f"The {run}: {found.elsewhere()}"
