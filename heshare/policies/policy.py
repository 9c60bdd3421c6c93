"""The policy interface: the event loop passes each event with a view of the cluster, the policy returns actions.

A policy that plans a whole task set at once (HeShare) releases its plan's batches; a feedback controller acts on
ticks; an online placer acts on arrivals. The simulator and the live executor use this interface only.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


class EventKind(Enum):
    """Kind of an event. At equal times events are processed in this order; a failure as soon as it is detected.

    Only a run on real GPUs has failures. There the executor's `FaultTolerantPolicy` handles them; for the policy that
    it wraps, a task that is tried again arrives again.
    """

    COMPLETION = 0
    ARRIVAL = 1
    TICK = 2
    FAILURE = 3


# Events, views and starts are not frozen: one is built at every event, and a frozen one takes three times as long.
@dataclass(slots=True, unsafe_hash=True)
class Event:
    """Completion, arrival, tick or failure.

    Attributes:
        kind: the kind of event.
        time_s: its time, s.
        tasks: ids of the tasks that arrived, completed or failed, in order; empty for a tick.
        gpu: the GPU's index for completions and failures, else None.
        alone: those of the failed tasks that need a GPU to themselves when they are tried again.
        lost: whether the GPU has failed permanently.
        drained: True if nothing new may start on the GPU from now on, False if it may again, None if nothing changed.
    """

    kind: EventKind
    time_s: float
    tasks: tuple[int, ...] = ()
    gpu: int | None = None
    alone: tuple[int, ...] = ()
    lost: bool = False
    drained: bool | None = None


@dataclass(slots=True, unsafe_hash=True)
class Start:
    """Start a waiting or paused task on a GPU with an MPS percentage.

    Attributes:
        task: the task's id.
        gpu: the GPU's index.
        mps_pct: its MPS percentage.
        batch_size: inference batch size if not the task's own. The remaining samples stay the same, so half the
            batch size means twice the iterations.
        also: the other GPUs of a task that runs on several, with the same percentage.
        sharing: mode of sharing, one of `heshare.world.workload.SHARINGS`, the same for all tasks of a GPU. Real
            devices support MPS only.
    """

    task: int
    gpu: int
    mps_pct: int = 100
    batch_size: int | None = None
    also: tuple[int, ...] = ()
    sharing: str = "mps"


@dataclass(frozen=True, slots=True)
class SetClock:
    """Request an SM clock, MHz; None is the GPU's default clock."""

    gpu: int
    sm_mhz: int | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop a running task; it keeps its completed iterations, or full epochs, and waits. `Start` resumes it."""

    task: int


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a running task to another GPU, or change its percentage, mode of sharing or inference batch size."""

    task: int
    gpu: int
    mps_pct: int = 100
    batch_size: int | None = None
    also: tuple[int, ...] = ()
    sharing: str = "mps"


@dataclass(frozen=True, slots=True)
class Wait:
    """Request one tick at `until_s`, s, later than now; for a policy without regular ticks."""

    until_s: float


Action = Start | SetClock | Pause | Migrate | Wait


@dataclass(slots=True, unsafe_hash=True)
class Running:
    """A running task as a policy sees it: measured, not predicted.

    Attributes:
        task: the task.
        mps_pct: its MPS percentage.
        time_s: present seconds per iteration, at its present inference batch size; `inf` while it loads.
        remaining: iterations still to do, at the same inference batch size and number of GPUs.
        sharing: mode of sharing.
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
    """Present state of a GPU as a policy sees it; in a run the same object as long as nothing changes there.

    Attributes:
        index: its index in the cluster.
        gpu: its type.
        running: its running tasks by task id.
        requested_mhz: the requested SM clock, MHz, or None for the default.
        sm_mhz: the present SM clock, MHz.
        power_w: present power, W.
        free_mib: free device memory, MiB.
    """

    index: int
    gpu: Gpu
    running: Mapping[int, Running]
    requested_mhz: int | None
    sm_mhz: float
    power_w: float
    free_mib: float


@dataclass(slots=True)
class View:
    """Present state of the cluster as a policy sees it; valid until `decide` returns.

    Attributes:
        now_s: the time, s.
        waiting: tasks that have arrived and do not run (not started, or paused), by (arrival, id); a policy that
            changes it takes a copy.
        remaining: iterations still to do, by the id of a waiting task.
        gpus: all GPUs in the cluster's order.
        pending: number of tasks that have not arrived yet.
    """

    now_s: float
    waiting: Sequence[Task]
    remaining: Mapping[int, float]
    gpus: Sequence[GpuView]
    pending: int


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits of a system, the columns of Table I; a test compares them with the actions of the policy.

    Attributes:
        frequency: sets GPU clocks.
        multi_task: has several unfinished tasks on one GPU at once: side by side under MPS or in MIG instances, in
            time slices, or one in the gaps of another.
        heterogeneous: places a task by its time or power on each type of GPU.
    """

    frequency: bool
    multi_task: bool
    heterogeneous: bool


@dataclass(frozen=True, slots=True)
class ReusedPlanning:
    """Cost of planning that a policy reused, such as another policy's front: wall time, s, and rows predicted."""

    planning_s: float = 0.0
    predictor_calls: int = 0

    def __add__(self, other: "ReusedPlanning") -> "ReusedPlanning":
        return ReusedPlanning(self.planning_s + other.planning_s, self.predictor_calls + other.predictor_calls)


class Policy(ABC):
    """A scheduling system: decides the GPU, time, clock and MPS percentage of each task. A policy inherits from it.

    Attributes:
        name: on the command line and in results, such as `heshare:trade-off`.
        traits: the declared traits (Table I).
        tick_s: period of ticks, s; None for none.
        gangs: whether it runs tasks on several GPUs; a run with such tasks is else rejected before it begins.
        ticks_on_change: whether, after a tick without an action, the next tick that matters is the first one after a
            GPU changed; in virtual time the others are then passed over.
        reused: planning that it reused since the last reset; a run adds it to its own.
        cluster: the GPUs of the run, since the reset.
        predictor: the predictor of the run, since the reset.
        rng: the policy's randomness, since the reset.

    Example:
        >>> class FirstGpu(Policy):
        ...     name = "first-gpu"
        ...     traits = Traits(frequency=False, multi_task=False, heterogeneous=False)
        ...
        ...     def decide(self, event, view):
        ...         if view.waiting and not view.gpus[0].running:
        ...             yield Start(view.waiting[0].id, gpu=0)
        >>> import heshare as hs
        >>> run = hs.run(3, "1xA100", FirstGpu())
    """

    name: str
    traits: Traits
    tick_s: float | None = None
    gangs: bool = True
    ticks_on_change: bool = False
    reused: ReusedPlanning = ReusedPlanning()
    cluster: Cluster
    predictor: Predictor
    rng: np.random.Generator

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all state and prepare for a run on this cluster."""
        self.cluster = cluster
        self.predictor = predictor
        self.rng = rng
        self.reused = ReusedPlanning()

    @abstractmethod
    def decide(self, event: Event, view: View) -> Iterable[Action]:
        """Return the actions for an event; they are executed in this order after the last one is known.

        If a task completes before its `Pause` or `Migrate` is executed (a real device does not wait), the action has
        no effect; the completion is the next event.
        """


def check_policy(policy: Any) -> None:
    """Raise `InputError` unless an object is a policy whose functions take the arguments that a run gives them."""
    if not isinstance(policy, Policy):
        found = f"{type(policy).__name__}, which does not inherit from Policy"
        action = "Let its class inherit from heshare.policies.policy.Policy; docs/policies.md has an example."
        raise InputError(found, "a policy", action, column="policy")

    name = getattr(policy, "name", None)
    if not isinstance(name, str) or not name:
        action = f'Give {type(policy).__name__} one, such as name = "first-gpu".'
        raise InputError(f"name {name!r}", "a policy with a name", action, column="policy")

    tick_s = policy.tick_s
    number = isinstance(tick_s, Real) and not isinstance(tick_s, bool)
    if tick_s is not None and not (number and 0 < tick_s < math.inf):
        action = "Set the period of its ticks, or None for none."
        raise InputError(f"tick_s {tick_s!r} of {name}", "a time above 0 s, or None", action, column="policy")

    check_arguments(policy.reset, "the cluster, the predictor and the random generator", 3, policy.name)
    check_arguments(policy.decide, "the event and the view", 2, policy.name)


def check_arguments(function: Callable[..., Any], arguments: str, count: int, policy: str) -> None:
    """Raise `InputError` unless a function of a policy can be called with `count` arguments, named by `arguments`."""
    signature = inspect.signature(function)
    try:
        signature.bind(*range(count))
    except TypeError:
        found = f"{getattr(function, '__name__', 'a function')}{signature} of {policy}"
        expected = f"{count} arguments: {arguments}"
        raise InputError(found, expected, "Correct its arguments; docs/policies.md has an example.") from None
