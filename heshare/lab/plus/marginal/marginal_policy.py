"""The policy `marginal`: keeps the tables up to date with the run, and turns placements into actions.

Only GPUs that have changed since the last event are looked at in Python. What changes with time alone, the iterations
that remain and with them every cost, is computed anew at each event by compiled code.

Example: a task of 10 iterations of 1 s, alone on the toy GPU.

>>> from heshare.running.run import run
>>> from heshare.testing.toy import ToyPredictor, toy_devices, toy_gpu
>>> from heshare.world.task import Task
>>> from heshare.world.workload import Workload
>>> cluster, tasks = Cluster((toy_gpu(),)), [Task(0, Workload("resnet18", 4), 10.0)]
>>> options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), "devices": toy_devices(cluster)}
>>> run(tasks, cluster, Marginal(), **options).jct_s.tolist()
[10.0]
"""

from collections.abc import Iterator

import numpy as np

from heshare.lab.plus.marginal.drain_costs import begin_moment, changed_clocks
from heshare.lab.plus.marginal.gpu_records import GpuRecords
from heshare.lab.plus.marginal.set_predictions import SetPredictions
from heshare.lab.plus.marginal.set_tables import SetTables, grids_mhz
from heshare.lab.plus.marginal.task_placement import WAITS, Missing, Rules, place_tasks
from heshare.lab.plus.marginal.waiting_order import WaitingOrder
from heshare.policies.policy import Action, Event, SetClock, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import IntArray
from heshare.shared.errors import require
from heshare.world.cluster import Cluster


@register("marginal", title="Marginal")
class Marginal:
    """Waiting tasks, the shortest first, each where and when it adds least to the cost E + p T.

    The defaults were chosen on task sets that no comparison uses. A gang keeps its own inference batch size and number
    of GPUs.

    Args:
        price_w: p, the cost of a second that a task spends in the system, W. About 30 is the end of least energy, 300
            and more that of least JCT.
        most: the largest number of tasks that share a GPU.
        clocks: the number of clocks of a GPU's grid that are considered.
        overlap: the share of its time alone by which a queued task delays those behind it: less than 1, because it
            will share the GPU with others.
        look: the number of waiting tasks that are considered at an event, the shortest first.
        sizes: the largest inference batch size that may be chosen, in steps of two from the task's own up; 0 keeps the
            task's own.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "marginal"
    tick_s: float | None = None
    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(
        self,
        price_w: float = 100.0,
        most: int = 4,
        clocks: int = 8,
        overlap: float = 0.7,
        look: int = 200,
        sizes: int = 0,
    ) -> None:
        require("price_w", price_w, 0 < price_w < np.inf, "watts above zero")
        require("most", most, most >= 1, "at least one task")
        require("clocks", clocks, clocks >= 1, "at least one clock")
        require("overlap", overlap, 0 <= overlap <= 1, "a share from 0 to 1")
        require("look", look, look >= 1, "at least one task")
        require("sizes", sizes, sizes >= 0, "an inference batch size, or 0 for the task's own")
        self._price_w, self._most, self._clocks, self._overlap, self._look = price_w, most, clocks, overlap, look
        self._largest_size = sizes

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all predictions and starts."""
        kinds = cluster.kinds
        predictions = SetPredictions(predictor, self._clocks, self._price_w)
        self._tables = SetTables(predictions, kinds, self._most)
        self._gpus = GpuRecords(cluster, self._tables, self._most)
        self._order = WaitingOrder(cluster, predictions, self._tables, self._largest_size)
        self._rules = Rules(
            self._price_w,
            self._overlap,
            np.array([min(self._most, kind.mps_clients) for kind in kinds]),
            np.array([kind.memory_mib for kind in kinds]),
        )
        self._missing = Missing(np.zeros(2, dtype=np.int64), np.zeros(len(kinds) + len(cluster), dtype=np.int64))
        self._grids_mhz = grids_mhz(kinds, self._clocks)
        self._changed = np.zeros((len(cluster), 2), dtype=np.int64)

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Evaluate every waiting task on every GPU; start those whose cheapest place is beside the running tasks."""
        self._gpus.update(view)
        if not self._order.update(event, view):
            self._gpus.arrays.held[:] = -1
        order = self._order.first(self._look, view.now_s)
        gpus, moment = self._gpus.arrays, self._gpus.moment
        begin_moment(
            view.now_s, self._tables.arrays, gpus, self._gpus.progress, moment, len(order) > 0, np.empty(self._most)
        )
        starts = self._place(order)
        # Clocks first: a task that starts now runs at the clock that was chosen with it.
        count = changed_clocks(self._tables.arrays, gpus, moment, self._grids_mhz, self._price_w, self._changed)
        for gpu, sm_mhz in self._changed[:count].tolist():
            yield SetClock(gpu, sm_mhz)
        yield from starts

    def _place(self, order: IntArray) -> list[Start]:
        """Place the tasks of some rows, in order, and return the starts."""
        chosen = np.full((len(order), 2), WAITS)
        at = 0
        while at < len(order):
            at = place_tasks(
                at,
                order,
                self._order.arrays,
                self._tables.arrays,
                self._gpus.arrays,
                self._gpus.moment,
                self._rules,
                self._missing,
                chosen,
            )
            if at < len(order):
                count, workload = self._missing.total.tolist()
                self._tables.join(workload, set(self._missing.sets[:count].tolist()))
        return [
            self._start(order[place], place, gpu, size) for place, (gpu, size) in enumerate(chosen.tolist()) if gpu >= 0
        ]

    def _start(self, row: int, place: int, gpu: int, size: int) -> Start:
        """Return the start of the task of a row, and note it."""
        task, workload = self._order.task(row), self._order.size(row, size)
        also = tuple([other for other in np.flatnonzero(self._gpus.moment.started == place).tolist() if other != gpu])
        self._order.remove(task.id)
        self._gpus.start(task.id, workload, (gpu, *also))
        chosen = None if workload.batch_size == task.workload.batch_size else workload.batch_size
        return Start(task.id, gpu, batch_size=chosen, also=also)
