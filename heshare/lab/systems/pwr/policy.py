"""PWR with FGD (Lettich et al., CCGrid 2025): tasks are placed, one by one, where power and fragmentation rise least.

It only places: it sets no clock and predicts no run time. A node here is one GPU, and a task requests a share of it.
How users choose that share is not published. Here it is the least MPS percentage at which the task is predicted to be
nearly as fast as with the whole GPU (assumed).
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from heshare.lab.systems.pwr.fragmentation import WHOLE, Nodes, Request, scores, weighed
from heshare.policies.policy import Action, Event, Policy, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import BoolArray, IntArray
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_PERCENT = WHOLE // 100
_STEP_PCT = 10
"""Shares are multiples of this, % of a GPU; assumed."""
_POPULAR = 0.95
"""The share of tasks that the typical classes cover, the most popular ones first."""


@register("pwr", title="PWR")
@register("pwr:fgd", title="FGD", preset={"alpha": 0.0})
class Pwr(Policy):
    """A queue, first come, first served; its head is placed on the GPU with the best score, or waits for a free share.

    Args:
        alpha: the weight of PWR's score; FGD's has the rest. The paper uses 0.5, 0.2, 0.1 and 0.05, and 1 and 0.
        slower: how much slower than with the whole GPU a task may be at the requested share (assumed).
    """

    name = "pwr"
    gangs = False
    traits = Traits(frequency=False, multi_task=True, heterogeneous=True)

    def __init__(self, alpha: float = 0.1, slower: float = 0.05) -> None:
        require("alpha", alpha, 0 <= alpha <= 1, "a weight from 0 to 1")
        require("slower", slower, 0 <= slower <= 10, "a share from 0 to 10, such as 0.05 for 5 %")
        self._alpha, self._slower = alpha, slower

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._shares: dict[tuple[Workload, Gpu], int] = {}
        self._seen: Counter[Workload] = Counter()
        self._last_seen = -1

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        new = [task for task in view.waiting if task.id > self._last_seen]
        self._seen.update(task.workload for task in new)
        self._last_seen = max((task.id for task in new), default=self._last_seen)
        if not view.waiting:
            return
        free = np.array([WHOLE - _PERCENT * sum(each.mps_pct for each in gpu.running.values()) for gpu in view.gpus])
        free_mib = np.array([gpu.free_mib for gpu in view.gpus])
        clients = np.array([gpu.gpu.mps_clients - len(gpu.running) for gpu in view.gpus])
        for task in view.waiting:
            need_mib = memory_mib(task.workload)
            gpu = self._choose(task.workload, np.maximum(free, 0), (free_mib >= need_mib) & (clients > 0))
            if gpu is None:
                return
            pct = self.share_pct(task.workload, self.cluster.gpus[gpu])
            free[gpu] -= _PERCENT * pct
            free_mib[gpu] -= need_mib
            clients[gpu] -= 1
            yield Start(task.id, gpu, pct)

    def share_pct(self, workload: Workload, gpu: Gpu) -> int:
        """Return the least share, %, at which a task is predicted to be nearly as fast as with the whole GPU."""
        if memory_mib(workload) > gpu.memory_mib:
            return 100
        if (workload, gpu) not in self._shares:
            pcts = list(range(_STEP_PCT, 101, _STEP_PCT))
            sets = [(Resident(workload, pct),) for pct in pcts]
            times_s = self.predictor.co_run(sets, gpu, [None] * len(sets)).time_s[:, 0]
            near = np.flatnonzero(times_s <= times_s[-1] * (1 + self._slower))
            self._shares[workload, gpu] = pcts[near[0]]
        return self._shares[workload, gpu]

    def _choose(self, workload: Workload, free: IntArray, able: BoolArray) -> int | None:
        """Return the GPU with the highest score, ties drawn at random as Kubernetes does; None if no GPU fits."""
        at, found = [], []
        for kind in self.cluster.kinds:
            own = np.flatnonzero([gpu == kind for gpu in self.cluster.gpus])
            nodes = _nodes(kind, np.where(able[own], free[own], 0))
            request = Request(1, _PERCENT * self.share_pct(workload, kind))
            (scored,) = scores(nodes, [request], *self._typical(kind))
            at.append(own[scored.node])
            found.append((scored.saved_w, scored.fragmentation))
        gpus = np.concatenate(at)
        if not len(gpus):
            return None
        saved_w, fragmentation = (np.concatenate(values) for values in zip(*found, strict=True))
        total = weighed(saved_w, fragmentation, self._alpha)
        return int(self.rng.choice(np.sort(gpus[total >= total.max() - 1e-9])))

    def _typical(self, kind: Gpu) -> tuple[list[Request], list[float]]:
        counts: Counter[int] = Counter()
        for workload, count in self._seen.items():
            counts[self.share_pct(workload, kind)] += count
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        covered = np.cumsum([count for _, count in ordered])
        kept = ordered[: int(np.searchsorted(covered, _POPULAR * covered[-1])) + 1]
        total = sum(count for _, count in kept)
        return [Request(1, _PERCENT * pct) for pct, _ in kept], [count / total for _, count in kept]


def _nodes(kind: Gpu, free: IntArray) -> Nodes:
    shape, no_vcpus = (len(free), 1), np.zeros(len(free))
    return Nodes(
        free.reshape(shape).astype(np.int64),
        np.full(shape, WHOLE),
        np.full(shape, kind.idle_w),
        np.full(shape, kind.tdp_w),
        no_vcpus,
        no_vcpus,
    )
