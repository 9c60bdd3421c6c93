"""State file of a run on real GPUs: its GPUs, and the data that a cleanup after a kill needs."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from heshare.ops.state.state_file import (
    FoundStateFile,
    OwnerStatus,
    ProcessLocation,
    StateFile,
    open_state_file,
    state_folder,
)
from heshare.shared.errors import DeviceError
from heshare.shared.processes import started_at


class RunStateFile(msgspec.Struct, frozen=True):
    """Content of the state file of a run, which is on disk before the run changes anything.

    Attributes:
        token: identifies the run's processes (`processes.MARK`).
        started: start of the executor's process (`processes.started_at`).
    """

    token: str
    pid: int
    started: int
    folder: str
    gpus: tuple[str, ...]

    @property
    def path(self) -> Path:
        return run_state_path(self.token)

    def write(self) -> StateFile:
        """Write the state file of this process's run, synced and locked; others see it once it is published."""
        with self._write_errors():
            return StateFile(self.path, {"token": self.token, "folder": self.folder, "gpus": self.gpus})

    def publish(self, file: StateFile) -> None:
        """Make the state file visible to other processes."""
        with self._write_errors():
            file.publish()

    @contextlib.contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DeviceError(
                f"{self.path}: the state file of the run cannot be written ({error.strerror}). Set XDG_STATE_HOME to a "
                "writable folder."
            ) from error

    @classmethod
    def of(cls, found: FoundStateFile) -> "RunStateFile":
        try:
            run = msgspec.convert(found.facts, cls)
        except msgspec.ValidationError as error:
            raise DeviceError(f"{found.path}: not a state file of a run ({error}). Delete it.") from error
        if run.path.name != found.path.name:
            raise DeviceError(f"{found.path}: not the state file of the run that it names ({run.token}). Delete it.")
        return run


def run_state_file_of_this_process(folder: Path, token: str, gpus: Sequence[str]) -> RunStateFile:
    return RunStateFile(token, os.getpid(), started_at(os.getpid()), str(folder), tuple(gpus))


def run_state_path(token: str) -> Path:
    """Return the path of the state file of a run."""
    return state_folder() / f"run-{token}.json"


def run_state_paths() -> list[Path]:
    """Return the state files of runs that are running, or were killed and not cleaned up."""
    return sorted(state_folder().glob("run-*.json"))


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run with a state file; `text` describes it and what to do. `token` is empty if the file cannot be read."""

    token: str
    owner_status: OwnerStatus
    gpus: tuple[str, ...]
    text: str


def find_runs() -> list[FoundRun]:
    runs = []
    for path in run_state_paths():
        with contextlib.suppress(FileNotFoundError):
            try:
                with open_state_file(path) as found:
                    run = RunStateFile.of(found)
                    runs.append(FoundRun(run.token, found.owner_status, run.gpus, _describe(run, found)))
            except DeviceError as error:
                runs.append(FoundRun("", OwnerStatus.UNKNOWN, (), str(error)))
    return runs


def _describe(run: RunStateFile, found: FoundStateFile) -> str:
    name = f"run in {run.folder} (process {run.pid})"
    if found.owner_status is OwnerStatus.RUNNING:
        where = "" if found.location.same_processes(ProcessLocation.here()) else f" of {found.location}"
        return f"{', '.join(run.gpus) or 'GPUs'}: in use by the {name}{where}."
    if found.owner_status.cleanable:
        return f"The {name} was killed, and nothing cleaned up after it. Run `heshare restore`."
    return f"The {name}: {found.elsewhere()}"
