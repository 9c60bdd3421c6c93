"""Placements: the choice of a GPU for each task, separate from the systems, each of which can run with every placement.

- `random`: a random GPU, as the paper uses for Morak and mu-Serve (Section IV);
- `heshare`: the knee of HeShare's first stage;
- `earliest`: the GPU on which the task is predicted to complete first.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from heshare.policies.planning_cache import PlanningCache, PlansOnce, SharesPlanning
from heshare.policies.policy import Policy, ReusedPlanning
from heshare.policies.predictions import TaskPredictions
from heshare.policies.random_placement import RandomPlacement
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import fit_mask, make_instance
from heshare.scheduling.pareto import knee
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.errors import unknown
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class Placement(Protocol):
    """A rule that assigns tasks to GPUs; `heterogeneous` if it considers their types."""

    heterogeneous: bool
    reused: ReusedPlanning

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None: ...

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        """Return the index of a GPU for each waiting task, new or not, by task id."""
        ...


class HeSharePlacement(PlansOnce):
    """The knee of HeShare's stage 1 for the waiting tasks, planned again whenever tasks have arrived.

    Policies of one repetition share the search.
    """

    heterogeneous = True

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        super().__init__()
        self.settings = settings

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        self._cluster = cluster
        self._predictor = predictor
        self._rng = rng
        self.reused = ReusedPlanning()

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        waiting = tuple(tasks)
        request = ("stage 1", self.settings, waiting, self._cluster)
        return self.once(request, self._predictor, self._rng, lambda: self._plan(waiting))

    def _plan(self, tasks: Sequence[Task]) -> dict[int, int]:
        instance = make_instance(tasks, self._cluster, self._predictor)
        schemes = self.cache.search(instance, self.settings, self._predictor, self._rng)
        chosen = schemes.gpus[knee(schemes.objectives)].tolist()
        return {task.id: gpu for task, gpu in zip(tasks, chosen, strict=True)}


class EarliestPlacement:
    """The GPU on which a task is predicted to complete first, after all tasks placed there before; fixed on arrival.

    The simplest placement that considers types, for systems without a placement.
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
    "earliest": EarliestPlacement,
}


def make_placement(name: str) -> Placement:
    if name not in PLACEMENTS:
        raise unknown(name, PLACEMENTS, column="placement")
    return PLACEMENTS[name]()


class PlacingPolicy(SharesPlanning, Policy):
    """Base of the systems whose tasks a placement assigns to GPUs; `placement` is a name of `PLACEMENTS`."""

    def __init__(self, placement: str) -> None:
        self.placement = make_placement(placement)

    def share_planning(self, cache: PlanningCache) -> None:
        """Reuse the plans of other policies of the same repetition."""
        if isinstance(self.placement, SharesPlanning):
            self.placement.share_planning(cache)

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self.placement.reset(cluster, predictor, rng)

    def placed(self, tasks: Sequence[Task]) -> dict[int, int]:
        """Return the index of a GPU for each waiting task by task id, and count the planning that was reused."""
        gpus = self.placement.place(tasks)
        self.reused = self.placement.reused
        return gpus
