"""MISO (Li et al., SoCC 2022): MIG partitions of A100 GPUs, found by search after a probe of the tasks under MPS."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from heshare.lab.systems.miso.mig import COMPUTE, SLICES, Partition, has_mig, least, placeable, sharing_of
from heshare.policies.policy import Action, Event, EventKind, Pause, Policy, Start, Traits, View, Wait
from heshare.policies.predictions import TaskPredictions
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

CHOICES = ("first", "fastest")


# Its control law is that of its published code. The queue is strictly first come, first served, and a task is placed on
# the feasible GPU with the fewest tasks. A task alone has the whole GPU. Otherwise all tasks of the GPU are saved, run
# under MPS for a while (from which a network predicts their speeds in MIG instances), are saved again, and continue in
# the instances of the best partition. When tasks have left and no task waits, the GPU is partitioned again. GPUs
# without MIG run one task at a time.
#
# MISO's cluster has one type of GPU; of GPUs with equally few tasks its code takes the first.


@dataclass(slots=True)
class _State:
    """State of one GPU: its tasks in order of arrival there, its phase, and when that ends, s.

    Phases: `steady` runs its tasks; `starting` has just started its only task; `saving` has paused its tasks before a
    probe; `probing` runs them under MPS; `changing` has paused them before a new partition. `hole`: a task has left
    since the last partition.
    """

    gpu: Gpu
    tasks: dict[int, Task] = field(default_factory=dict)
    phase: str = "steady"
    until_s: float = 0.0
    hole: bool = False


@register("miso", title="MISO")
class Miso(Policy):
    """MIG partitions by search, after a probe under MPS.

    Args:
        probe_s: how long tasks run under MPS before a partition is chosen, s; 0 for no probe.
        probe_pct: the MPS percentage of each during that time (its code's).
        settle_s: time after a start before the next task may join, and time in which nothing runs before a probe, s
            (its code waits so long before it saves).
        overhead_s: time in which nothing runs before a new partition, s. Its code has a mean migration overhead of
            30 s, of which 10 s are the time to start that a run charges on each start (`start_cost_s`).
        error: mean error of its network's relative speeds, of either sign (its code's).
        error_spread: standard deviation of that error (its code's).
        objective: `slowdown` minimises the mean slowdown, `throughput` maximises the sum of relative speeds.
        partitions: `published` searches those of its code, `all` every set of instances that the GPU can hold.
        gpus: of GPUs with equally few tasks, `first` takes that with the lowest index (its code's), `fastest` that on
            which the task is predicted to run fastest (ours, for clusters with several types).
    """

    name = "miso"
    gangs = False

    def __init__(
        self,
        probe_s: float = 30.0,
        probe_pct: int = 50,
        settle_s: float = 3.0,
        overhead_s: float = 20.0,
        error: float = 0.016,
        error_spread: float = 0.0032,
        objective: str = "slowdown",
        partitions: str = "published",
        gpus: str = "first",
    ) -> None:
        require("probe_s", probe_s, probe_s >= 0, "a time of at least 0 s")
        require("probe_pct", probe_pct, 1 <= probe_pct <= 100, "an MPS percentage from 1 to 100")
        require("settle_s", settle_s, settle_s > 0, "a time above 0 s")
        require("overhead_s", overhead_s, overhead_s > 0, "a time above 0 s")
        require("error", error, error >= 0 and error_spread >= 0, "errors of at least 0")
        require("objective", objective, objective in OBJECTIVES, " or ".join(OBJECTIVES))
        require("partitions", partitions, partitions in ("published", "all"), "published or all")
        require("gpus", gpus, gpus in CHOICES, " or ".join(CHOICES))
        self._probe_s, self._probe_pct, self._settle_s, self._overhead_s = probe_s, probe_pct, settle_s, overhead_s
        self._error, self._error_spread, self._objective = error, error_spread, objective
        self._partitions = choices(partitions)
        self._fastest = gpus == "fastest"
        self.traits = Traits(frequency=False, multi_task=True, heterogeneous=self._fastest)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._predictions = InstancePredictions(predictor, self._error, self._error_spread, rng)
        self._alone = TaskPredictions(predictor)
        self._states = [_State(gpu) for gpu in cluster.gpus]
        self._placed: dict[int, _State] = {}
        self._found: dict[tuple[Gpu, tuple[Workload, ...]], tuple[int, ...] | None] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        if event.kind in (EventKind.COMPLETION, EventKind.FAILURE):
            for task_id in event.tasks:
                if (left := self._placed.pop(task_id, None)) is not None:
                    del left.tasks[task_id]
                    left.hole = True
        waiting = {task.id for task in view.waiting}
        for index, state in enumerate(self._states):
            if state.phase != "steady" and state.until_s <= view.now_s:
                yield from self._due(index, state, waiting, view.now_s)
        yield from self._place(view)

    def _due(self, index: int, state: _State, waiting: set[int], now_s: float) -> Iterator[Action]:
        if state.phase == "saving":
            yield from self._enter(state, "probing", now_s, self._probe_s)
            for task_id in state.tasks:
                yield Start(task_id, index, self._probe_pct)
        elif state.phase == "probing" and state.tasks:
            yield from self._change(state, now_s)
        elif state.phase == "changing":
            yield from self._apply(index, state, waiting)
        else:
            state.phase = "steady"

    def _apply(self, index: int, state: _State, waiting: set[int]) -> Iterator[Action]:
        state.phase, state.hole = "steady", False
        for task_id, slices in zip(state.tasks, self._instances(state), strict=True):
            if task_id in waiting:
                yield Start(task_id, index, sharing=sharing_of(state.gpu, slices))

    def _place(self, view: View) -> Iterator[Action]:
        for task in view.waiting:
            if task.id in self._placed:
                continue
            able = [index for index, state in enumerate(self._states) if self._takes(state, task)]
            if not able:
                return
            yield from self._join(min(able, key=lambda index: self._rank(index, task)), task, view.now_s)
        for state in self._states:
            if state.hole and state.phase == "steady":
                state.hole = False
                if state.tasks:
                    yield from self._change(state, view.now_s)

    def _rank(self, index: int, task: Task) -> tuple[int, float, int]:
        state = self._states[index]
        alone_s = self._alone.alone_s(task.workload, state.gpu) if self._fastest else 0.0
        return len(state.tasks), alone_s, index

    def _join(self, index: int, task: Task, now_s: float) -> Iterator[Action]:
        state = self._states[index]
        self._placed[task.id] = state
        if not state.tasks:
            state.tasks[task.id], state.hole = task, False
            yield Start(task.id, index, sharing=sharing_of(state.gpu, COMPUTE))
            yield from self._enter(state, "starting", now_s, self._settle_s)
            return
        if self._probe_s > 0:
            yield from map(Pause, state.tasks)
            yield from self._enter(state, "saving", now_s, self._settle_s)
        else:
            yield from self._change(state, now_s)
        state.tasks[task.id] = task

    def _change(self, state: _State, now_s: float) -> Iterator[Action]:
        yield from map(Pause, state.tasks)
        yield from self._enter(state, "changing", now_s, self._overhead_s)

    def _enter(self, state: _State, phase: str, now_s: float, for_s: float) -> Iterator[Action]:
        state.phase, state.until_s = phase, now_s + for_s
        yield Wait(state.until_s)

    def _takes(self, state: _State, task: Task) -> bool:
        if state.phase != "steady":
            return False
        if not state.tasks:
            return memory_mib(task.workload) <= state.gpu.memory_mib
        return has_mig(state.gpu) and self._search(state.gpu, [*state.tasks.values(), task]) is not None

    def _instances(self, state: _State) -> tuple[int, ...]:
        if not state.tasks:
            return ()
        found = self._search(state.gpu, list(state.tasks.values())) if has_mig(state.gpu) else None
        return found or (COMPUTE,)

    def _search(self, gpu: Gpu, tasks: list[Task]) -> tuple[int, ...] | None:
        key = gpu, tuple([task.workload for task in tasks])
        if key not in self._found:
            table = np.stack([self._predictions.slowdowns(workload, gpu) for workload in key[1]])
            self._found[key] = best(table, self._partitions, self._objective)
        return self._found[key]


PUBLISHED: tuple[Partition, ...] = (
    (7,), (4, 2, 1), (4, 1, 1, 1), (3, 3), (3, 2, 1), (3, 1, 1, 1), (3, 2, 2), (3, 2, 1, 1), (3, 1, 1, 1, 1),
    (2, 2, 2, 1), (2, 2, 1, 1, 1), (2, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1),
)  # fmt: skip
"""The partitions that MISO's code searches: its 18 codes without those that differ in the order of instances only.

(4, 3), which the A100 offers as well, is not among them.
"""
OBJECTIVES = ("slowdown", "throughput")


class InstancePredictions:
    """Predicted slowdowns in MIG instances; each workload is predicted once for each GPU.

    `error` is the mean size of a further error of a relative speed, of either sign, and `error_spread` its standard
    deviation; `rng` draws them.
    """

    def __init__(self, predictor: Predictor, error: float, error_spread: float, rng: np.random.Generator) -> None:
        self._predictor = predictor
        self._error, self._error_spread, self._rng = error, error_spread, rng
        self._known: dict[tuple[Workload, Gpu], FloatArray] = {}

    def slowdowns(self, workload: Workload, gpu: Gpu) -> FloatArray:
        """Return the time in each kind of instance over that on the whole GPU, shape (5,); `inf` where it does not fit.

        Kinds are those of `SLICES`.
        """
        if (workload, gpu) not in self._known:
            self._known[workload, gpu] = self._predict(workload, gpu)
        return self._known[workload, gpu]

    def _predict(self, workload: Workload, gpu: Gpu) -> FloatArray:
        sets = [(Resident(workload, 100, f"mig-{slices}g"),) for slices in SLICES]
        times_s = self._predictor.co_run(sets, gpu, [None] * len(sets)).time_s[:, 0]
        speeds = times_s[-1] / times_s
        sizes = self._rng.normal(self._error, self._error_spread, len(speeds))
        speeds = np.maximum(speeds + np.where(self._rng.random(len(speeds)) > 0.5, -sizes, sizes), 1e-3)
        holds = np.array(SLICES) >= (least(gpu, memory_mib(workload)) or np.inf)
        return np.where(holds, speeds[-1] / speeds, np.inf)


def choices(name: str) -> tuple[Partition, ...]:
    """Return the partitions to search: `published` ones, or `all` sets of instances that a GPU can hold."""
    return PUBLISHED if name == "published" else tuple(sorted(placeable() - {()}, reverse=True))


def best(slowdowns: ArrayLike, partitions: Sequence[Partition], objective: str = "slowdown") -> tuple[int, ...] | None:
    """Return the compute slices of each task under the best partition with exactly one instance a task, or None.

    Exact: the best permutation of a partition is an assignment problem, so that trying all permutations, as MISO does,
    finds nothing better. `slowdowns` are times in an instance over those on the whole GPU, shape (tasks, kinds of
    `SLICES`), `inf` where a task does not fit. Of equally good partitions the first is taken. The objective `slowdown`
    minimises the mean slowdown, `throughput` maximises the sum of `1 / slowdown`.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    table = np.asarray(slowdowns, dtype=np.float64)
    costs = table if objective == "slowdown" else -1.0 / table
    found: tuple[int, ...] | None = None
    least_cost = np.inf
    for partition in partitions:
        if len(partition) != len(table):
            continue
        columns = [SLICES.index(slices) for slices in partition]
        cost, fits = costs[:, columns], np.isfinite(table[:, columns])
        # An instance that does not fit costs more than any assignment of those that do.
        rows, chosen = linear_sum_assignment(np.where(fits, cost, 2 * (np.abs(cost[fits]).sum() + 1.0)))
        mean = float(cost[rows, chosen].mean())
        if fits[rows, chosen].all() and mean < least_cost - 1e-12:
            least_cost, found = mean, tuple(partition[place] for place in chosen)
    return found
