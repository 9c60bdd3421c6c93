"""Gymnasium environment in which an agent makes the decisions of an online scheduling policy.

It needs the extra `gym`, and uses the event loop of every run (`heshare.running.loop`).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Unpack, cast

import numpy as np

from heshare import arguments
from heshare.lab.sweeps.random_streams import Repetition
from heshare.policies.policy import Action, Event, Policy, SetClock, Start, Traits, View
from heshare.prediction.predictor import Predictor
from heshare.running.loop import Loop
from heshare.running.result import Run
from heshare.running.run import BegunRun
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError, require
from heshare.shared.extras import require_extra
from heshare.shared.inputs.bounds import check_whole
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import TaskSet
from heshare.world.task_set import TaskOptions
from heshare.world.workload import Workload

require_extra("gym", "heshare.gym")

import gymnasium  # noqa: E402
from gymnasium import spaces  # noqa: E402

_HELD, _PCT, _FREE, _POWER, _NEXT = 0, 1, 2, 4, 5
_Result = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]


class SchedulingEnv(gymnasium.Env[dict[str, Any], Any]):
    """Online scheduling: at each event the agent starts waiting tasks, one a step, or waits for the next event.

    Actions: 0 waits until the next arrival or completion. `1 + np.ravel_multi_index((slot, gpu, percentage, clock),
    env.shape)` starts the waiting task of that slot, in the order of arrival, on a GPU, with that one of `percentages`
    and of `clocks`; a start takes no simulated time. `info["action_mask"]`, (n,), int8, is 1 for valid actions: starts
    that fit into memory and `most`, and waiting unless nothing runs and no task is still to arrive. An invalid action
    is replaced by the first valid one, so every episode ends: when all tasks have completed. The clock of a GPU on
    which nothing runs is released.

    Observations, all 0 to 1: `gpus`, one row each: tasks over `most`, sum of percentages, free memory over all memory,
    SM clock over the top clock, power over the limit, and time until its next task completes, the last three as of the
    last event. `waiting`, one row a slot: 1 for a task, memory over the largest GPU's, time since arrival, and for each
    of `cluster.kinds` predicted time and energy of the whole task alone at the top clock, 0 where it does not fit.
    `counts`: tasks waiting and to arrive, over all. Unbounded values x are x / (x + a): a is 1 h, 1 MJ, 100 %.

    Reward: `-(energy_weight * joules + time_weight * task-seconds)` since the last step (the first: since 0 s), of all
    GPUs and of tasks that wait or run: over an episode `run.energy_cluster_j` and the sum of `run.jct_s`. `info["run"]`
    of the last step is the `Run` of the episode.

    Args:
        tasks: number of tasks that an episode draws, or the task set of all; see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation.
        slots: number of waiting tasks that the agent sees and can start.
        most: number of tasks that may share a GPU.
        percentages: MPS percentages to choose from.
        clocks: SM clocks to choose from, as parts of the top clock, each rounded down to a clock that the GPU offers;
            None leaves the clock to the GPU.
        energy_weight: of the reward, 1/J.
        time_weight: of the reward, 1/s.
        predictor: of the times and energies in observations; by default that of `load_predictor`.
        **drawn: options of the drawn task set, as of `heshare.task_set`: `load`, `arrivals`, `interval_s`,
            `batch_sizes`, `trace`.

    Raises:
        InputError: a bad argument; at `reset`, a gang, or a task that fits no GPU at its own inference batch size.

    Example:
        >>> from heshare.gym import SchedulingEnv
        >>> env = SchedulingEnv(4, "1xT4,1xA100")
        >>> observation, info = env.reset(seed=0)  # the tasks of hs.task_set(4, seed=0)
        >>> env.action_space, int(info["action_mask"].sum())
        (Discrete(145), 72)
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - the type that the base class has

    def __init__(
        self,
        tasks: arguments.TasksLike = 20,
        cluster: Cluster | str = "1xT4,1xV100,1xA100",
        *,
        slots: int = 8,
        most: int = 2,
        percentages: Sequence[int] = (25, 50, 100),
        clocks: Sequence[float | None] = (None, 0.8, 0.6),
        energy_weight: float = 1e-6,
        time_weight: float = 1e-4,
        predictor: Predictor | None = None,
        **drawn: Unpack[TaskOptions],
    ) -> None:
        self._predictor = arguments.as_predictor(predictor)
        self.cluster = arguments.as_cluster(cluster)
        self._source: Any = tasks
        self._drawn = arguments.draw_options(tasks, **drawn)

        good = len(percentages) > 0 and all(each in range(1, 101) for each in percentages)
        require("percentages", percentages, good, "MPS percentages of 1 to 100", "Write them like (25, 50, 100).")
        good = len(clocks) > 0 and all(each is None or 0 < each <= 1 for each in clocks)
        require("clocks", clocks, good, "None, or parts of the top clock", "Write them like (None, 0.8).")
        self._weights = (energy_weight, time_weight)
        self._percentages = percentages
        slots = check_whole("slots", slots, least=1)
        most = check_whole("most", most, least=1)

        # For each GPU: the clocks to choose from, and the upper limits of its values in an observation.
        gpus = self.cluster.gpus
        grids = [(gpu.max_mhz, np.array(gpu.clocks_mhz)) for gpu in gpus]
        below = [[each and grid[grid <= max(each * top, grid[0])][-1] for each in clocks] for top, grid in grids]
        self._clocks = [[None if each is None else int(each) for each in row] for row in below]
        limits = [(min(most, gpu.mps_clients), 1, gpu.memory_mib, gpu.max_mhz, gpu.tdp_w, 1) for gpu in gpus]
        self._limits = np.array(limits, float).T
        self._alone: dict[Workload, FloatArray] = {}

        self.shape = (slots, len(gpus), len(percentages), len(clocks))
        self.action_space = spaces.Discrete(1 + int(np.prod(self.shape)))
        shapes = {"gpus": (len(gpus), 6), "waiting": (slots, 3 + 2 * len(self.cluster.kinds)), "counts": (2,)}
        boxes: Any = {name: spaces.Box(0.0, 1.0, shape, np.float32) for name, shape in shapes.items()}
        self.observation_space = cast(Any, spaces.Dict(boxes))
        self._seed = -1
        self._repetition = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; return the observation and info.

        Its tasks are those of `hs.task_set(n, seed=seed)`; without a seed, of the last seed's next repetition.
        """
        super().reset(seed=seed)
        self._repetition += 1
        if seed is not None or self._seed < 0:
            self._seed = int(self.np_random.integers(2**31)) if seed is None else seed
            self._repetition = 0
        streams = Repetition(self._repetition, self._seed)
        if self._drawn:
            tasks = TaskSet(streams.task_set(int(self._source), cluster=self.cluster, **self._drawn))
        else:
            tasks = arguments.as_tasks(self._source, streams)

        self._begun = BegunRun(
            tasks,
            self.cluster,
            _Agent(),
            predictor=self._predictor,
            rng=self.np_random,
            kind=_SteppingLoop,
        )
        self._loop = cast(_SteppingLoop, self._begun.loop)
        self._steps = self._loop.steps()
        self._run: Run | None = None

        # The row of each task in observations; column 2 is its waiting time, set at each observation.
        self._memory_mib = np.array([memory_mib(task.workload) for task in tasks])
        self._arrival_s = np.array([task.arrival_s for task in tasks])
        alone = np.array([self._alone_of(task.workload) for task in tasks])
        time_s = alone[:, 0] * np.array([task.iterations for task in tasks])[:, None]
        energy_j = time_s * alone[:, 1]
        one = np.ones(len(tasks))
        size = self._memory_mib / self._limits[_FREE].max()
        parts = one, size, one, *(time_s / (time_s + 3600)).T, *(energy_j / (energy_j + 1e6)).T
        self._features = np.array(parts, np.float32).T

        self._gpus = np.zeros(self._limits.shape)
        self._versions = [-1] * self.shape[1]
        self._requested: list[int | None] = [None] * self.shape[1]
        self._actions: list[Action] = []
        self._now_s = self._energy_j = self._task_s = self._spent = 0.0
        self._present = 0

        self._read_gpus()
        self._proceed()
        return self._observation(), self._info()

    def step(self, action: Any) -> _Result:
        """Start a task or wait; return the observation, the reward, whether all tasks are complete, False, and info."""
        if not 0 <= action < len(self._mask):
            raise InputError(repr(action), f"an action of {self.action_space}", "Choose one of info['action_mask'].")
        if self._run is not None:
            raise gymnasium.error.ResetNeeded("The episode has ended: call reset().")
        chosen = int(action) if self._mask[action] else int(self._mask.argmax())
        if chosen:
            slot, gpu, percentage, clock = map(int, np.unravel_index(chosen - 1, self.shape))
            task, mps_pct = self._waiting.pop(slot), int(self._percentages[percentage])
            self._set_clock(gpu, self._clocks[gpu][clock])
            self._actions.append(Start(task.id, gpu, mps_pct))
            self._gpus[: _FREE + 1, gpu] += (1, mps_pct, -self._memory_mib[task.id])
            self._mark()
        else:
            self._answer()
            self._proceed()
        spent, self._spent = self._spent, float(np.dot(self._weights, (self._energy_j, self._task_s)))
        return self._observation(), spent - self._spent, self._run is not None, False, self._info()

    def _proceed(self) -> None:
        # Process events until one needs a decision of the agent, or to the end.
        loop = self._loop
        for _ in self._steps:
            event = loop.pending_event
            if event is None:
                continue

            passed_s = event.time_s - self._now_s
            self._now_s = event.time_s
            self._energy_j += passed_s * float(self._gpus[_POWER].sum())
            self._task_s += passed_s * self._present

            view = loop.view(self._now_s)
            self._waiting = list(view.waiting)
            self._pending = view.pending
            if event.gpu is not None:
                gpu = loop.gpus[event.gpu]
                held_pct = sum([task.mps_pct for task in gpu.tasks.values()])
                self._gpus[: _FREE + 1, event.gpu] = len(gpu.tasks), held_pct, gpu.free_mib

            self._mark()
            if loop.ended < len(self._arrival_s):
                return
            self._answer()
        self._run = self._begun.result()

    def _mark(self) -> None:
        held, _, free_mib = self._gpus[: _FREE + 1]
        self._ids = ids = [task.id for task in self._waiting[: self.shape[0]]]
        self._mask = np.zeros(1 + int(np.prod(self.shape)), np.int8)
        if ids:
            fits = (self._memory_mib[ids][:, None] <= free_mib) & (held < self._limits[_HELD])
            self._mask[1:].reshape(*self.shape[:2], -1)[: len(ids)] = fits[:, :, None]
        self._mask[0] = self._pending > 0 or not ids or held.any()

    def _set_clock(self, gpu: int, sm_mhz: int | None) -> None:
        if self._requested[gpu] != sm_mhz:
            self._requested[gpu] = sm_mhz
            self._actions.append(SetClock(gpu, sm_mhz))

    def _answer(self) -> None:
        for gpu in np.flatnonzero(self._gpus[_HELD] == 0).tolist():
            self._set_clock(gpu, None)
        self._loop.answer(self._actions)
        self._actions = []
        self._read_gpus()
        self._present = len(self._arrival_s) - self._pending - self._loop.ended

    def _read_gpus(self) -> None:
        for index, gpu in enumerate(self._loop.gpus):
            if gpu.version != self._versions[index]:
                self._versions[index] = gpu.version
                reading = gpu.read()
                running = list(reading.residents.values())
                held_pct = sum([task.resident.mps_pct for task in running])
                next_s = gpu.device.next_event_s() if running else 0.0
                self._gpus[:, index] = len(running), held_pct, gpu.free_mib, reading.sm_mhz, reading.power_w, next_s

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask, "time_s": self._now_s, **({"run": self._run} if self._run else {})}

    def _observation(self) -> dict[str, Any]:
        gpus, ids = self._gpus / self._limits, self._ids
        left_s = np.maximum(gpus[_NEXT] - self._now_s, 0.0)
        gpus[_NEXT] = left_s / (left_s + 3600)
        gpus[_PCT] /= gpus[_PCT] + 100
        waiting = np.zeros((self.shape[0], self._features.shape[1]), np.float32)
        if ids:
            waited_s = self._now_s - self._arrival_s[ids]
            waiting[: len(ids)] = self._features[ids]
            waiting[: len(ids), 2] = waited_s / (waited_s + 3600)
        counts = np.array([len(self._waiting), self._pending], np.float32) / len(self._arrival_s)
        return {"gpus": gpus.T.astype(np.float32), "waiting": waiting, "counts": counts}

    def _alone_of(self, workload: Workload) -> FloatArray:
        # Time of an iteration, s, and power, W, alone on each type of GPU, (2, kinds); 0 where it does not fit.
        if workload not in self._alone:
            found, needed_mib = np.zeros((2, len(self.cluster.kinds))), memory_mib(workload)
            for column, kind in enumerate(self.cluster.kinds):
                if needed_mib <= kind.memory_mib:
                    alone = self._predictor.solo([workload], kind, kind.max_mhz)
                    found[:, column] = alone.time_s[0, 0], alone.power_w[0]
            good = bool(found.any())
            require("tasks", workload, good, f"a task that a GPU of {self.cluster} can hold", "Leave it out.")
            self._alone[workload] = found
        return self._alone[workload]


class _Agent(Policy):
    name = "agent"
    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)
    gangs = False
    actions: Sequence[Action] = ()

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        return self.actions


class _SteppingLoop(Loop):
    """The event loop with decisions from outside: `answer` must follow each `pending_event` before the next step."""

    pending_event: Event | None = None

    def _notify(self, event: Event) -> bool:
        self.pending_event = event
        return True

    def answer(self, actions: Sequence[Action]) -> None:
        event = self.pending_event
        self.pending_event = None
        cast(_Agent, self.policy).actions = actions
        if event is not None:
            super()._notify(event)
