"""PWR with FGD (Lettich et al., CCGrid 2025): tasks go, one by one, where they raise power and fragmentation least.

It decides where, and nothing else: no clocks, no run times, no future. A node here is one GPU, and a task asks for a
share of it; how PWR's users would know that share is not said, so that it is found as such users might: the least MPS
percentage at which the task is predicted to be nearly as fast as with the whole GPU.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from heshare.arrays import BoolArray, IntArray
from heshare.errors import require
from heshare.policies.policy import Action, Event, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.systems.pwr.fragmentation import WHOLE, Nodes, Request, scores, weighed
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_PERCENT = WHOLE // 100


@register("pwr", title="PWR")
@register("pwr:fgd", title="FGD", preset={"alpha": 0.0})
class Pwr:
    """A queue, first come, first served; its head goes to the GPU with the best score, or waits until one has room.

    Args:
        alpha: the weight of PWR's score; FGD's has the rest. The paper names 0.5, 0.2, 0.1 and 0.05 beside 1 and 0.
        slower: how much slower than with the whole GPU a task may be at the share that is asked for (assumed).
        step_pct: shares are multiples of this, % of a GPU (assumed).
        popular: the share of tasks that the typical classes cover, the most popular ones first.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "pwr"
    gangs = False
    tick_s: float | None = None
    traits = Traits(frequency=False, multi_task=True, heterogeneous=True)

    def __init__(self, alpha: float = 0.1, slower: float = 0.05, step_pct: int = 10, popular: float = 0.95) -> None:
        require("alpha", alpha, 0 <= alpha <= 1, "a weight from 0 to 1")
        require("slower", slower, slower >= 0, "a share of at least 0")
        require("step_pct", step_pct, 1 <= step_pct <= 100, "1 to 100 %")
        require("popular", popular, 0 < popular <= 1, "a share above 0 and at most 1")
        self._alpha, self._slower, self._step_pct, self._popular = alpha, slower, step_pct, popular

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything."""
        self._cluster, self._predictor, self._rng = cluster, predictor, rng
        self._shares: dict[tuple[Workload, Gpu], int] = {}
        self._seen: Counter[Workload] = Counter()
        self._known = -1

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Place as many tasks from the head of the queue as find room."""
        self._note(view)
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
            pct = self.share_pct(task.workload, self._cluster.gpus[gpu])
            free[gpu] -= _PERCENT * pct
            free_mib[gpu] -= need_mib
            clients[gpu] -= 1
            yield Start(task.id, gpu, pct)

    def share_pct(self, workload: Workload, gpu: Gpu) -> int:
        """The least share, %, at which a task is predicted to be nearly as fast as with the whole GPU."""
        if (workload, gpu) not in self._shares:
            pcts = [*range(self._step_pct, 100, self._step_pct), 100]
            sets = [(Resident(workload, pct),) for pct in pcts]
            times_s = self._predictor.co_run(sets, gpu, [None] * len(sets)).time_s[:, 0]
            near = np.flatnonzero(times_s <= times_s[-1] * (1 + self._slower))
            self._shares[workload, gpu] = pcts[near[0]]
        return self._shares[workload, gpu]

    def _note(self, view: View) -> None:
        """Count newcomers by workload: what PWR knows of typical tasks is what has arrived so far (assumed)."""
        new = [task for task in view.waiting if task.id > self._known]
        self._seen.update(task.workload for task in new)
        self._known = max((task.id for task in new), default=self._known)

    def _choose(self, workload: Workload, free: IntArray, able: BoolArray) -> int | None:
        """The GPU with the highest score, ties drawn by lot as Kubernetes does; None if there is no room."""
        at, found = [], []
        for kind in self._cluster.kinds:
            own = np.flatnonzero([gpu == kind for gpu in self._cluster.gpus])
            nodes = self._nodes(kind, np.where(able[own], free[own], 0))
            request = Request(1, _PERCENT * self.share_pct(workload, kind))
            (scored,) = scores(nodes, [request], *self._typical(kind))
            at.append(own[scored.node])
            found.append(scored)
        gpus = np.concatenate(at)
        if not len(gpus):
            return None
        total = weighed(
            np.concatenate([each.saved_w for each in found]), np.concatenate([each.tidy for each in found]), self._alpha
        )
        best = gpus[total >= total.max() - 1e-9]
        return int(self._rng.choice(np.sort(best)))

    def _typical(self, kind: Gpu) -> tuple[list[Request], list[float]]:
        """The most popular classes of tasks on a type of GPU and their shares, which sum to one."""
        counts: Counter[int] = Counter()
        for workload in sorted(self._seen):
            counts[self.share_pct(workload, kind)] += self._seen[workload]
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        covered = np.cumsum([count for _, count in ordered])
        enough = int(np.searchsorted(covered, self._popular * covered[-1])) + 1
        kept = ordered[:enough]
        total = sum(count for _, count in kept)
        return [Request(1, _PERCENT * pct) for pct, _ in kept], [count / total for _, count in kept]

    def _nodes(self, kind: Gpu, free: IntArray) -> Nodes:
        shape = (len(free), 1)
        none = np.zeros(len(free))
        return Nodes(
            free.reshape(shape).astype(np.int64),
            np.full(shape, WHOLE),
            np.full(shape, kind.idle_w),
            np.full(shape, kind.tdp_w),
            none,
            none,
        )
