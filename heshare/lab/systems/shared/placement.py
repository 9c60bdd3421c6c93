"""Placements: the choice of a GPU for each task, separate from the systems so that each can run with every placement.

- `random`: a random GPU, which the paper gives to Morak and mu-Serve (Section IV);
- `heshare`: the knee of HeShare's first stage;
- `trade-off`: the scheme of HeShare's Trade-off;
- `sensitivity`: tasks of similar sensitivity to the clock share a GPU, the idea of mu-Serve;
- `earliest`: the GPU on which the task is predicted to complete first.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from heshare.policies.cached_planner import CachedPlanner
from heshare.policies.policy import ReusedPlanning
from heshare.policies.predictions import TaskPredictions
from heshare.policies.random_placement import RandomPlacement
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import fit_mask
from heshare.shared.errors import unknown
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


class Placement(Protocol):
    """A rule that assigns tasks to GPUs.

    Attributes:
        heterogeneous: whether it considers the types of the GPUs.
        reused: planning that was reused since the last reset.
    """

    heterogeneous: bool
    reused: ReusedPlanning

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None: ...

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        """Return the index of a GPU for each waiting task, new or not, by task id."""
        ...


class HeSharePlacement:
    """The scheme that HeShare plans for the waiting tasks, planned again whenever tasks have arrived.

    Args:
        scheme: `stage-1` is the knee of stage 1, `trade-off` the scheme of the Trade-off plan.
        planner: makes the plans; policies with equal settings share one.
    """

    heterogeneous = True

    def __init__(self, scheme: str = "stage-1", planner: CachedPlanner | None = None) -> None:
        self.planner = planner or CachedPlanner()
        self.reused = ReusedPlanning()
        self._scheme = scheme

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        self._cluster, self._predictor, self._rng = cluster, predictor, rng
        self.reused = ReusedPlanning()

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        if self._scheme == "stage-1":
            scheme, reused = self.planner.stage_1_scheme(tuple(tasks), self._cluster, self._predictor, self._rng)
        else:
            front, reused = self.planner.front(tuple(tasks), self._cluster, self._predictor, self._rng)
            scheme = front.trade_off.scheme
        self.reused = self.reused + reused
        return scheme


class SensitivityPlacement:
    """Tasks of similar sensitivity to the clock share a GPU; the type of GPU is drawn at random.

    A GPU has one clock, so mu-Serve places what reacts strongly to the clock apart from what does not. mu-Serve has
    one type of GPU; here each task draws a GPU as in `RandomPlacement`, which fixes its type (our extension). Within a
    type the tasks are sorted by sensitivity and cut into contiguous groups of equal predicted load, one for each GPU.
    """

    heterogeneous = True
    reused = ReusedPlanning()

    def __init__(self) -> None:
        self._random = RandomPlacement()

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        self._cluster = cluster
        self._predictions = TaskPredictions(predictor)
        self._random.reset(cluster, predictor, rng)

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        drawn = self._random.place(tasks)
        placed: dict[int, int] = {}
        for kind in self._cluster.kinds:
            gpus = [index for index, gpu in enumerate(self._cluster.gpus) if gpu == kind]
            placed.update(self._grouped([task for task in tasks if drawn[task.id] in gpus], kind, gpus))
        return placed

    def _grouped(self, tasks: Sequence[Task], kind: Gpu, gpus: Sequence[int]) -> dict[int, int]:
        ordered = sorted(tasks, key=lambda task: (self._predictions.sensitivity(task.workload, kind), task.id))
        loads_s = np.array([self._predictions.whole_s(task, kind) for task in ordered])
        # A task at a boundary belongs to the group that holds the middle of its load.
        middles = (np.cumsum(loads_s) - loads_s / 2) / loads_s.sum() if len(loads_s) else loads_s
        return {task.id: gpus[int(middle * len(gpus))] for task, middle in zip(ordered, middles, strict=True)}


class EarliestPlacement:
    """The GPU on which a task is predicted to complete first, behind all tasks placed there before; fixed on arrival.

    The simplest placement that considers types, for systems that have no placement of their own.
    """

    heterogeneous = True
    reused = ReusedPlanning()

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        self._cluster = cluster
        self._predictions = TaskPredictions(predictor)
        self._chosen: dict[int, int] = {}
        self._ready_s = np.zeros(len(cluster))

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        for task in tasks:
            if task.id not in self._chosen:
                self._chosen[task.id] = self._choose(task)
        return {task.id: self._chosen[task.id] for task in tasks}

    def _choose(self, task: Task) -> int:
        fits = fit_mask([task], self._cluster)[0]
        whole_s = {kind: self._predictions.whole_s(task, kind) for kind in self._cluster.kinds}
        done_s = np.maximum(self._ready_s, task.arrival_s) + [whole_s[gpu] for gpu in self._cluster.gpus]
        done_s[~fits] = np.inf
        gpu = int(np.argmin(done_s))
        self._ready_s[gpu] = done_s[gpu]
        return gpu


PLACEMENTS: dict[str, Callable[[], Placement]] = {
    "random": RandomPlacement,
    "heshare": HeSharePlacement,
    "trade-off": lambda: HeSharePlacement("trade-off"),
    "sensitivity": SensitivityPlacement,
    "earliest": EarliestPlacement,
}


def make_placement(name: str) -> Placement:
    """Return a new placement by its name in `PLACEMENTS`."""
    if name not in PLACEMENTS:
        raise unknown(name, PLACEMENTS, column="placement")
    return PLACEMENTS[name]()
