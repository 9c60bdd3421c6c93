"""Entries of a run's journal: a tagged union of typed structs, one line `{"kind": {...}}` each on disk.

Times are seconds since the start of the entry's session.
"""

import math
from pathlib import Path
from typing import Any

import msgspec

from heshare.ops.jobs.job_file import MOST_JOBS, JobSpec


class Entry(msgspec.Struct, frozen=True):
    """One entry; `kind` is its key on disk."""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


class Run(Entry, frozen=True):
    """The description of a run, its first entry; `power_limit` is [time, s; limit, W] of each step."""

    policy: str
    jobs: tuple[JobSpec, ...] = ()
    version: str = ""
    devices: tuple[str, ...] = ()
    seed: int = 0
    allow_clocks: bool = False
    file: str = ""
    power_limit: list[list[float]] | None = None

    def __post_init__(self) -> None:
        if sum(spec.count for spec in self.jobs) > MOST_JOBS:
            raise ValueError("more jobs than a file may have")


class SessionGpu(msgspec.Struct, frozen=True):
    """A GPU of a session; `planned_mhz` are the clocks that the policy may choose from, `sharing` is how jobs share."""

    uuid: str
    name: str
    planned_mhz: str = ""
    sharing: str = "mps"


class Session(Entry, frozen=True):
    """The begin of a session at the Unix time `at`, s, with the energy counter of each GPU, None if it has none."""

    at: float
    gpus: tuple[SessionGpu, ...] = ()
    set_back_s: float = 0.0
    pid: int | None = None
    counters_j: tuple[float | None, ...] = ()
    token: str | None = None


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """A job that begins on a GPU with its share."""

    job: str
    gpu: int
    mps_pct: int
    batch_size: int | None = None


class Started(Placed, frozen=True, array_like=True, tag="start"):
    """A start."""


class Migrated(Placed, frozen=True, array_like=True, tag="migrate"):
    """A migration."""


class Clocked(msgspec.Struct, frozen=True, array_like=True, tag="clock"):
    """A requested clock, MHz; None leaves it to the GPU."""

    gpu: int
    sm_mhz: int | None


class Paused(msgspec.Struct, frozen=True, array_like=True, tag="pause"):
    """A pause."""

    job: str


class Waited(msgspec.Struct, frozen=True, array_like=True, tag="wait"):
    """A tick that was requested, s."""

    until_s: float


JournalledAction = Started | Migrated | Clocked | Paused | Waited


class Decision(Entry, frozen=True):
    """A decision of the policy on an event at `t`, s, made by `decided_s`."""

    t: float
    actions: tuple[JournalledAction, ...] = ()
    decided_s: float = 0.0
    event: str = ""
    jobs: tuple[str, ...] = ()
    gpu: int | None = None

    @property
    def placed(self) -> list[Placed]:
        return [action for action in self.actions if isinstance(action, Placed)]


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """Energy account of a GPU in a session so far, and the GPU's state.

    `energy_j` is the sum of `idle_j`, of `shares_j`, and of the energies of attempts that have ended in the session.

    Attributes:
        energy_j: the GPU's energy since the begin of the session, J.
        idle_j: while no job ran, J.
        shares_j: of each job that runs, or whose end is not journalled yet, J.
        counter_j: the GPU's energy counter, J, None if unknown.
        state: `ok`, `drained` or `lost`; `drained` is the reason why no new job may start.
        estimated_j: the part of `energy_j` that is an integral of power readings, J.
        unknown_s: time whose energy is not counted, s.
    """

    energy_j: float
    idle_j: float = 0.0
    shares_j: dict[str, float] = {}
    counter_j: float | None = None
    sm_mhz: float | None = None
    power_w: float | None = None
    state: str = "ok"
    requested_mhz: int | None = None
    drained: str = ""
    estimated_j: float = 0.0
    unknown_s: float = 0.0


class End(Entry, frozen=True):
    """The end of an attempt: its energy, J, and the account of its GPU at that time, without the attempt."""

    job: str
    gpu: int
    outcome: str
    end_s: float
    iterations: float
    energy_j: float
    account: Account
    start_s: float = 0.0
    began_s: float | None = None
    released_s: float | None = None
    mps_pct: int = 100
    attempt: int = 1
    exit_code: int | None = None
    sm_mhz: float | None = None
    limits: tuple[str, ...] = ()
    log: str = ""
    reason: str = ""
    charged: bool = False
    again: bool = False

    @property
    def completed(self) -> bool:
        return self.outcome == "completed"

    @property
    def failure(self) -> str:
        """The kind of the failure, empty if the attempt did not fail."""
        return self.outcome.removeprefix("failed: ") if self.outcome.startswith("failed") else ""

    @property
    def wasted(self) -> bool:
        """Whether the work of the attempt is lost: it failed, or it was paused and its iterations do not count."""
        return bool(self.failure) or (not self.completed and self.iterations == 0)


class Sample(Entry, frozen=True):
    """The accounts of all GPUs at `t`, s."""

    t: float
    gpus: tuple[Account, ...] = ()


class Note(Entry, frozen=True):
    """A message for the operator, on one GPU or on the run."""

    text: str
    gpu: int | None = None


_KINDS = {kind.__name__.lower(): kind for kind in (Run, Session, Decision, End, Sample, Note)}


def decode(line: dict[str, Any]) -> Entry:
    """Return the entry of a line's JSON.

    Raises:
        msgspec.ValidationError: it is no entry of this version.
    """
    kind, value = next(iter(line.items()), ("", None))
    if kind not in _KINDS:
        raise msgspec.ValidationError(f"an entry of the kind {kind!r}")
    entry: Entry = msgspec.convert(value, _KINDS[kind], dec_hook=_path)
    return entry


def encode(entry: Entry) -> dict[str, Any]:
    """Return the JSON of an entry's line."""
    return {entry.kind: msgspec.to_builtins(entry, enc_hook=str)}


def entry_time_s(entry: Entry) -> float:
    """Return the time of an entry, s since the start of its session; 0 if it has none."""
    if isinstance(entry, Decision | Sample):
        return entry.t
    return entry.end_s if isinstance(entry, End) else 0.0


def known(value: float) -> float | None:
    """Return a value for the journal: None for NaN."""
    return None if math.isnan(value) else value


def _path(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError
