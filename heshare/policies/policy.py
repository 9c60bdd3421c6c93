"""The one interface of every system: the event loop tells what happened, the policy answers with actions.

A policy that plans a whole task set at once (HeShare) releases its plan's batches; a feedback controller acts on
ticks; an online placer acts on arrivals. All of them, and the live executor, use this interface and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


class Kind(Enum):
    """What an event is. At equal times they are handled in this order; a failure is told as soon as it is found.

    Only a run on real GPUs has failures, and there the executor's `Guarded` policy answers them: to the policy that it
    guards, a task that is to be tried again arrives anew.
    """

    COMPLETION = 0
    ARRIVAL = 1
    TICK = 2
    FAILURE = 3


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        kind: completion, arrival, tick or failure.
        time_s: when, s.
        tasks: ids of the tasks that arrived, completed or failed, in order; empty for a tick.
        gpu: the GPU's index for completions and failures, else None.
        alone: which of the failed tasks should have a GPU to themselves when they are tried again.
        lost: whether the GPU failed for good.
    """

    kind: Kind
    time_s: float
    tasks: tuple[int, ...] = ()
    gpu: int | None = None
    alone: tuple[int, ...] = ()
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting (or paused) task on a GPU under an MPS percentage.

    Attributes:
        task: the task's id.
        gpu: the GPU's index.
        mps_pct: its MPS percentage.
        batch_size: another inference batch size than the task's own, None for its own. The samples still to do stay
            the same, so half the batch size means twice the iterations.
        also: the other GPUs of a task that runs on several; each of them gives the task the same share.
        sharing: how the task shares its GPUs, one of `heshare.world.workload.SHARINGS`; on a GPU with other tasks, as
            they do. Real devices know MPS alone.
    """

    task: int
    gpu: int
    mps_pct: int = 100
    batch_size: int | None = None
    also: tuple[int, ...] = ()
    sharing: str = "mps"


@dataclass(frozen=True, slots=True)
class SetClock:
    """Ask a GPU for an SM clock, MHz; None leaves the card to itself."""

    gpu: int
    sm_mhz: int | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Take a running task off its GPU; it keeps its completed iterations and waits. `Start` resumes it."""

    task: int


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a running task to another GPU (or another share, way of sharing or inference batch size on the same one)."""

    task: int
    gpu: int
    mps_pct: int = 100
    batch_size: int | None = None
    also: tuple[int, ...] = ()
    sharing: str = "mps"


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask for one tick at `until_s`, s; later than now. A policy that acts on nothing else can so come back."""

    until_s: float


Action = Start | SetClock | Pause | Migrate | Wait


@dataclass(frozen=True, slots=True)
class Running:
    """A task that runs on a GPU, as its policy may see it (measured, not predicted).

    Attributes:
        task: the task.
        mps_pct: its MPS percentage.
        time_s: seconds per iteration now (of the inference batch size that it runs at); `inf` while it loads.
        remaining: iterations still to do (of the same inference batch size, on as many GPUs as now).
        sharing: how it shares its GPUs.
        gpus: the indices of all its GPUs, in the order of its start; several for a gang.
    """

    task: Task
    mps_pct: int
    time_s: float
    remaining: float
    sharing: str = "mps"
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU at this moment, as a policy may see it.

    Attributes:
        index: its index in the cluster.
        gpu: its type.
        running: what runs on it, by task id.
        requested_mhz: the clock asked for, MHz, or None.
        sm_mhz: the clock reached, MHz.
        power_w: power now, W.
        free_mib: device memory that is free, MiB.
    """

    index: int
    gpu: Gpu
    running: Mapping[int, Running]
    requested_mhz: int | None
    sm_mhz: float
    power_w: float
    free_mib: float


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at this moment, as a policy may see it; valid until `decide` returns.

    Attributes:
        now_s: the time, s.
        waiting: tasks that have arrived and do not run (never started, or paused), by (arrival, id).
        remaining: iterations still to do, by the id of a waiting task.
        gpus: every GPU, in the cluster's order.
        pending: how many tasks have not arrived yet (0 once the task set is complete).
    """

    now_s: float
    waiting: Sequence[Task]
    remaining: Mapping[int, float]
    gpus: Sequence[GpuView]
    pending: int


@dataclass(frozen=True, slots=True)
class Traits:
    """What a system does (Table I); a test holds each against the actions that the policy takes.

    Attributes:
        frequency: sets GPU clocks.
        multi_task: has several tasks under way on one GPU at once, however they share it: side by side under MPS or in
            MIG instances, in turns of time slices, or one in the gaps of another.
        heterogeneous: places a task by how it runs on each type of GPU.
    """

    frequency: bool
    multi_task: bool
    heterogeneous: bool


class Policy(Protocol):
    """A system that decides who runs where, when, at which clock and share.

    One that runs every task on one GPU may say so with an attribute `gangs = False`: task sets that it cannot run are
    then refused before anything runs.
    """

    @property
    def name(self) -> str:
        """Its name on the command line and in figures, such as `heshare:trade-off`."""
        ...

    @property
    def traits(self) -> Traits:
        """What it does (Table I)."""
        ...

    @property
    def tick_s(self) -> float | None:
        """The period of ticks that it wants, s; None for none."""
        ...

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything and get ready for a run on this cluster."""
        ...

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        """Answer one event. The actions are carried out in the order given, once all of them are known.

        A task that completes between this answer and its being carried out (a real device does not wait) is left
        alone by `Pause` and `Migrate`; its completion is the next event.
        """
        ...


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What a policy used without doing it again, such as a front that its sister policy planned.

    Attributes:
        planning_s: wall time that it took then, s.
        predictor_calls: rows predicted then.
    """

    planning_s: float
    predictor_calls: int

    def __add__(self, other: Borrowed) -> Borrowed:
        """Both together."""
        return Borrowed(self.planning_s + other.planning_s, self.predictor_calls + other.predictor_calls)


@runtime_checkable
class Borrows(Protocol):
    """A policy that can reuse planning done before; the run's account charges it as if it had done it itself."""

    @property
    def borrowed(self) -> Borrowed:
        """What was reused since the last reset."""
        ...
