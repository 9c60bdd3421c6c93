"""Placements: which GPU a task goes to, as a part of its own, so that every system can be run with every one of them.

`random` is what the paper gives to Morak and mu-Serve; `heshare` is the knee of HeShare's first stage; `trade-off` is
the scheme of HeShare's Trade-off; `sensitivity` groups tasks that answer alike to the clock (mu-Serve's idea);
`earliest` sends each task where it will be done first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from heshare.errors import InputError
from heshare.policies.beliefs import Beliefs
from heshare.policies.fronts import NOTHING, Planner, draw_gpus
from heshare.policies.policy import Borrowed
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import fit_mask
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


class Placement(Protocol):
    """Says where tasks go.

    Attributes:
        heterogeneous: whether it looks at the types of the GPUs.
        borrowed: planning that was reused since the last reset.
    """

    heterogeneous: bool
    borrowed: Borrowed

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything and get ready for a run on this cluster."""
        ...

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        """The GPU's index for each of the tasks that wait, newcomers and others, by task id."""
        ...


class RandomPlacement:
    """A GPU drawn uniformly among those whose memory holds the task, once, in order of arrival."""

    heterogeneous = False
    borrowed = NOTHING

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every draw."""
        self._cluster, self._rng = cluster, rng
        self._drawn: dict[int, int] = {}

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        """Draw for the newcomers and leave the others where they are.

        Raises:
            InputError: a task fits no GPU.
        """
        new = [task for task in tasks if task.id not in self._drawn]
        self._drawn.update(draw_gpus(new, self._cluster, self._rng))
        return {task.id: self._drawn[task.id] for task in tasks}


class HeSharePlacement:
    """Where HeShare would put the tasks that wait, planned anew whenever tasks have arrived.

    Args:
        scheme: `stage-1` is the knee of stage 1, `trade-off` the scheme of the Trade-off plan.
        planner: where plans come from; shared with others that plan alike.
    """

    heterogeneous = True

    def __init__(self, scheme: str = "stage-1", planner: Planner | None = None) -> None:
        self.planner = planner or Planner()
        self.borrowed = NOTHING
        self._scheme = scheme

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget what was borrowed."""
        self._cluster, self._predictor, self._rng = cluster, predictor, rng
        self.borrowed = NOTHING

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        """The scheme.

        Raises:
            InputError: a task fits no GPU.
        """
        asked = (tuple(tasks), self._cluster, self._predictor, self._rng)
        if self._scheme == "stage-1":
            scheme, cost = self.planner.stage_1(*asked)
        else:
            front, cost = self.planner.front(*asked)
            scheme = front.trade_off.scheme
        self.borrowed = self.borrowed + cost
        return scheme


class SensitivityPlacement:
    """Tasks that answer alike to the clock share a GPU; the type of GPU is drawn by lot, as if each had its cluster.

    Each task draws a GPU as in `RandomPlacement`, which fixes its type. Within a type the tasks are sorted by
    sensitivity and cut into contiguous groups of equal predicted load, one for each GPU of the type.
    """

    heterogeneous = True
    borrowed = NOTHING

    def __init__(self) -> None:
        self._lot = RandomPlacement()

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every draw."""
        self._cluster = cluster
        self._beliefs = Beliefs(predictor)
        self._lot.reset(cluster, predictor, rng)

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        """Group the tasks that wait.

        Raises:
            InputError: a task fits no GPU.
        """
        drawn = self._lot.place(tasks)
        placed: dict[int, int] = {}
        for kind in self._cluster.kinds:
            here = [index for index, gpu in enumerate(self._cluster.gpus) if gpu == kind]
            placed.update(self._grouped([task for task in tasks if drawn[task.id] in here], kind, here))
        return placed

    def _grouped(self, tasks: Sequence[Task], kind: Gpu, gpus: Sequence[int]) -> dict[int, int]:
        """Contiguous groups of equal load along the order of sensitivity; a task belongs where its middle lies."""
        ordered = sorted(tasks, key=lambda task: (self._beliefs.sensitivity(task.workload, kind), task.id))
        loads = np.array([self._beliefs.whole_s(task, kind) for task in ordered])
        middle = (np.cumsum(loads) - loads / 2) / loads.sum() if len(loads) else loads
        return {task.id: gpus[int(at * len(gpus))] for task, at in zip(ordered, middle, strict=True)}


class EarliestPlacement:
    """The GPU on which a task is predicted to be done first, behind all that was sent there before; once, on arrival.

    The plainest placement that looks at types, for systems that have none of their own.
    """

    heterogeneous = True
    borrowed = NOTHING

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every task."""
        self._cluster = cluster
        self._beliefs = Beliefs(predictor)
        self._chosen: dict[int, int] = {}
        self._ready_s = np.zeros(len(cluster))

    def place(self, tasks: Sequence[Task]) -> dict[int, int]:
        """Send the newcomers, in order of arrival, and leave the others where they are.

        Raises:
            InputError: a task fits no GPU.
        """
        for task in tasks:
            if task.id not in self._chosen:
                self._chosen[task.id] = self._send(task)
        return {task.id: self._chosen[task.id] for task in tasks}

    def _send(self, task: Task) -> int:
        fits = fit_mask([task], self._cluster)[0]
        whole_s = {kind: self._beliefs.whole_s(task, kind) for kind in self._cluster.kinds}
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


def placement(name: str) -> Placement:
    """A placement by name.

    Raises:
        InputError: no such placement; the message lists them.
    """
    if name not in PLACEMENTS:
        raise InputError(
            column="placement", found=repr(name), expected="one of " + ", ".join(PLACEMENTS), action="Choose one."
        )
    return PLACEMENTS[name]()
