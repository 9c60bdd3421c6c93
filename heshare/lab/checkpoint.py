"""Checkpoints of runs in virtual time.

A run that was interrupted continues from its last checkpoint and ends with the same bytes. A checkpoint is the pickled
state between two events: event loop, devices, recorder, policy with its random generator, and predictor. Unpickling
executes code of the file: one that anyone but its user can have written is refused before that.
"""

import hashlib
import os
import pickle
import signal
import stat
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np

from heshare.devices.device import Device
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import RunState, begin, complete
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.shared.signals import EndRequested, handling
from heshare.shared.version import __version__
from heshare.world.cluster import Cluster
from heshare.world.task import Task

_KIND, _HEADER_BYTES = b"heshare-checkpoint", 1000
EVERY_S = 60.0
"""Wall time from one checkpoint to the next, s."""


class Checkpoints:
    """The checkpoint file of a run: written between events, after an interval and when a signal ends the run.

    Args:
        path: the file.
        key: identifies the run; see `run_key`.
        every_s: wall time between two checkpoints, s.
        every: events between two checkpoints, whatever the time; None for no such limit.
    """

    def __init__(self, path: str | Path, key: str, *, every_s: float = EVERY_S, every: int | None = None) -> None:
        self.path, self._key, self._every_s, self._every = Path(path), key, every_s, every
        self._saved_s, self._count, self._signal = monotonic(), 0, 0

    def load(self) -> RunState | None:
        """Return the state of this run in the file, or None if there is no file.

        Raises:
            InputError: others can have written the file, it holds another run, a run of another version, or no
                checkpoint. Nothing of it is unpickled then.
            OSError: it cannot be read.
        """
        try:
            stream = files.open_input(self.path)
        except FileNotFoundError:
            return None
        with stream:
            self._check_owner(os.fstat(stream.fileno()), "The file")
            self._check_owner(self.path.resolve().parent.stat(), "Its folder")
            kind, _, of_run = stream.readline(_HEADER_BYTES).rstrip(b"\n").partition(b" ")
            content = stream.read()
        if kind != _KIND or of_run.count(b" ") != 2:
            raise self._error("no checkpoint that can be read")
        if of_run.rpartition(b" ")[0] != self._of_run():
            raise self._error("a checkpoint of another run, or of another version of heshare")
        if of_run.rpartition(b" ")[2] != hashlib.sha256(content).hexdigest().encode():
            raise self._error("a damaged checkpoint")
        state: RunState = pickle.loads(content)
        return state

    def _check_owner(self, status: os.stat_result, what: str) -> None:
        """Raise `InputError` if anyone but this user and root could have written a file, or put it in its folder."""
        others = stat.S_IWGRP | stat.S_IWOTH if not status.st_mode & stat.S_ISVTX else 0
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & others:
            found = f"{what.lower()} of the user {status.st_uid} with the mode {stat.S_IMODE(status.st_mode):o}"
            raise InputError(
                f"a checkpoint that others can have written ({found})",
                "a file and a folder that belong to this user and that only this user may write to",
                "Loading it runs code of it: chmod go-w both if you wrote it, and delete it otherwise.",
                file=self.path,
            )

    def save(self, state: RunState) -> None:
        """Write the state, whole or not at all.

        Raises:
            InputError: a part of it cannot be pickled, such as a policy made of a local function.
        """
        try:
            content = pickle.dumps(state)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"a run that cannot be pickled ({error})",
                "a policy, a predictor and devices that can be pickled",
                "Do without a checkpoint, or define them at the top of a module.",
                column="checkpoint",
            ) from error
        header = b" ".join((_KIND, self._of_run(), hashlib.sha256(content).hexdigest().encode())) + b"\n"
        files.write_atomic(self.path, lambda temporary: temporary.write_bytes(header + content))
        self._saved_s, self._count = monotonic(), 0

    def after_event(self, state: RunState) -> None:
        """Save the state if the interval is over or a signal has come.

        Raises:
            EndRequested: a signal has come; the state has been saved.
        """
        self._count += 1
        if self._signal:
            self.save(state)
            name = signal.Signals(self._signal).name
            raise EndRequested(self._signal, f"{name}; {self.path} continues from here")
        if self._count == self._every or monotonic() - self._saved_s >= self._every_s:
            self.save(state)

    def request_end(self, number: int) -> None:
        """Handle a signal: the first one ends the run after the present event.

        Raises:
            EndRequested: it is the second signal.
        """
        if self._signal:
            raise EndRequested(number, signal.Signals(number).name)
        self._signal = number

    def remove(self) -> None:
        """Remove the file of a run that has completed."""
        self.path.unlink(missing_ok=True)

    def _of_run(self) -> bytes:
        return f"{__version__} {self._key}".encode()

    def _error(self, found: str) -> InputError:
        return InputError(
            found,
            "a checkpoint of this run: the same tasks, cluster, policy, seed and settings",
            "Give the settings that it was made with, or another file.",
            file=self.path,
        )


def run_key(parts: Sequence[object], rng: np.random.Generator) -> str:
    """Return a hash that identifies a run: of its parts and of the state of its random generator."""
    digest = hashlib.sha256()
    for part in (*parts, sorted(rng.bit_generator.state.items(), key=str)):
        digest.update(repr(part).encode() + b"\n")
    return digest.hexdigest()


def run_with_checkpoint(
    tasks: Sequence[Task],
    cluster: Cluster,
    policy: Policy,
    *,
    predictor: Predictor,
    rng: np.random.Generator,
    checkpoint: str | Path | None,
    devices: Sequence[Device] | None = None,
    start_cost_s: float = 0.0,
    progress: bool = False,
    checkpoint_s: float = EVERY_S,
) -> Run:
    """Run a task set in virtual time, as `heshare.running.run.run` does; the other arguments are those of it.

    An interrupted run continues from the file `checkpoint` when this function is called again with the same arguments;
    the result is the same to the last byte. The file is removed when the run has completed. `checkpoint_s` is the wall
    time from one checkpoint to the next, s; SIGINT and SIGTERM write a checkpoint too. None writes no file.

    Raises:
        InputError: as `run`, or a checkpoint of another run.
        PolicyError: as `run`.
        DeviceError: as `run`.
    """
    ordered = tuple(sorted(tasks, key=lambda task: task.id))
    kinds = None if devices is None else [type(device) for device in devices]
    parts = (policy.name, cluster.gpus, ordered, start_cost_s, kinds)
    checkpoints = None if checkpoint is None else Checkpoints(checkpoint, run_key(parts, rng), every_s=checkpoint_s)
    state = checkpoints.load() if checkpoints else None
    if state is None:
        state = begin(
            ordered, cluster, policy, predictor=predictor, rng=rng, devices=devices, start_cost_s=start_cost_s
        )
    if checkpoints is None:
        return complete(state, progress=progress)
    with handling(checkpoints.request_end):
        result = complete(state, progress=progress, after_event=lambda: checkpoints.after_event(state))
    checkpoints.remove()
    return result
