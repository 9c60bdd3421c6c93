"""Gymnasium environment in which an agent makes the decisions of an online scheduling policy.

It needs the extra `gym`, and uses the event loop of every run (`heshare.running.loop`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Unpack, cast

import numpy as np

from heshare import arguments
from heshare.lab.sweeps.random_streams import Repetition
from heshare.policies.policy import Action, Event, Policy, SetClock, Start, Traits, View, check_arguments
from heshare.prediction.predictor import Predictor
from heshare.running.loop import Loop
from heshare.running.result import Run
from heshare.running.run import BegunRun
from heshare.shared.arrays import FloatArray
from heshare.shared.display import found
from heshare.shared.errors import InputError, require
from heshare.shared.extras import require_extra
from heshare.shared.inputs.bounds import check_whole
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task, TaskSet
from heshare.world.task_set import TaskOptions
from heshare.world.workload import Workload

require_extra("gym", "heshare.gym")

import gymnasium  # noqa: E402
from gymnasium import spaces  # noqa: E402

_HELD, _PCT, _FREE, _CLOCK, _POWER, _NEXT = range(6)
_Result = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]
Agent = Callable[[dict[str, Any], Any], int]
"""Returns an action for an observation and its mask of valid actions."""


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
    event. `waiting`, one row a slot: 1 for a task, memory over the largest GPU's, time since arrival, then predicted
    times of the whole task alone at the top clock on each of `cluster.kinds`, then its energies there, 0 where it does
    not fit. `counts`: tasks waiting and to arrive, over all. Unbounded values x are x / (x + a): a is 1 h, 1 MJ, 100 %.

    Reward: `-(energy_weight * joules + time_weight * task-seconds)` since the last step (the first: since 0 s), of all
    GPUs and of tasks that wait or run: over an episode `run.energy_cluster_j` and the sum of `run.jct_s`. `info["run"]`
    of the last step is the `Run` of the episode.

    `as_policy` makes a trained agent a policy, for `hs.run`, `hs.compare` and grids.

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
        slots = check_whole("slots", slots, least=1)
        most = check_whole("most", most, least=1)
        self._choices = _Choices(self.cluster, slots, most, tuple(percentages), tuple(clocks))
        self._decider = _Decider(self._choices, self._predictor)

        self.shape = self._choices.shape
        self.action_space = spaces.Discrete(1 + int(np.prod(self.shape)))
        kinds, gpus = len(self.cluster.kinds), len(self.cluster)
        shapes = {"gpus": (gpus, 6), "waiting": (slots, 3 + 2 * kinds), "counts": (2,)}
        boxes: Any = {name: spaces.Box(0.0, 1.0, shape, np.float32) for name, shape in shapes.items()}
        self.observation_space = cast(Any, spaces.Dict(boxes))
        self._seed = -1
        self._repetition = 0

    def as_policy(self, agent: Agent, *, name: str = "agent") -> Policy:
        """Return a policy that decides as an agent does in this environment, with the same observations.

        Args:
            agent: called as `agent(observation, action_mask)`; returns an action. One that is not valid is replaced by
                the first valid one.
            name: of the policy in results.

        Raises:
            InputError: `agent` cannot be called with two arguments; in a run, another cluster than this environment's.

        Example:
            >>> import heshare as hs
            >>> from heshare.gym import SchedulingEnv
            >>> env = SchedulingEnv(4, "1xT4,1xA100")
            >>> first = env.as_policy(lambda observation, mask: int(mask[1:].argmax()) + 1)
            >>> hs.compare(4, "1xT4,1xA100", [first, "srtf"], seeds=1)["policy"].tolist()
            ['agent', 'srtf']
        """
        good = callable(agent)
        require("agent", found(agent), good, "a function of the observation and the mask", "Pass a function.")
        check_arguments(agent, "the observation and the mask of valid actions", 2, name)
        return AgentPolicy(agent, self._choices, name)

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

        self._decider.begin()
        for task in tasks:
            self._decider.features_of(task)  # refuses a task that no GPU can hold
        self._begun = BegunRun(
            tasks,
            self.cluster,
            _Stepped(),
            predictor=self._predictor,
            rng=self.np_random,
            kind=_SteppingLoop,
        )
        self._loop = cast(_SteppingLoop, self._begun.loop)
        self._steps = self._loop.steps()
        self._run: Run | None = None

        self._power_w = np.zeros(len(self.cluster))
        self._versions = [-1] * len(self.cluster)
        self._now_s = self._energy_j = self._task_s = self._spent = 0.0
        self._present, self._tasks = 0, len(tasks)

        self._read_power()
        self._proceed()
        return self._decider.observation(), self._info()

    def step(self, action: Any) -> _Result:
        """Start a task or wait; return the observation, the reward, whether all tasks are complete, False, and info."""
        if not 0 <= action < len(self._decider.mask):
            raise InputError(repr(action), f"an action of {self.action_space}", "Choose one of info['action_mask'].")
        if self._run is not None:
            raise gymnasium.error.ResetNeeded("The episode has ended: call reset().")
        if not self._decider.take(int(action)):
            self._answer()
            self._proceed()
        spent, self._spent = self._spent, float(np.dot(self._weights, (self._energy_j, self._task_s)))
        return self._decider.observation(), spent - self._spent, self._run is not None, False, self._info()

    def _proceed(self) -> None:
        # Process events until one needs a decision of the agent, or to the end.
        loop = self._loop
        for _ in self._steps:
            event = loop.pending_event
            if event is None:
                continue

            passed_s = event.time_s - self._now_s
            self._now_s = event.time_s
            self._energy_j += passed_s * float(self._power_w.sum())
            self._task_s += passed_s * self._present

            self._decider.look(loop.view(self._now_s))
            if loop.ended < self._tasks:
                return
            self._answer()
        self._run = self._begun.result()

    def _answer(self) -> None:
        self._loop.answer(self._decider.actions())
        self._read_power()
        self._present = self._tasks - self._decider.pending - self._loop.ended

    def _read_power(self) -> None:
        for index, gpu in enumerate(self._loop.gpus):
            if gpu.version != self._versions[index]:
                self._versions[index] = gpu.version
                self._power_w[index] = gpu.read().power_w

    def _info(self) -> dict[str, Any]:
        about = {"action_mask": self._decider.mask, "time_s": self._now_s}
        return {**about, **({"run": self._run} if self._run else {})}


@dataclass(frozen=True, slots=True)
class _Choices:
    """What an agent chooses from; the arguments of `SchedulingEnv`."""

    cluster: Cluster
    slots: int
    most: int
    percentages: tuple[int, ...]
    clocks: tuple[float | None, ...]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Numbers of slots, GPUs, percentages and clocks."""
        return self.slots, len(self.cluster), len(self.percentages), len(self.clocks)

    def clocks_mhz(self) -> list[list[int | None]]:
        """Return for each GPU the clocks to choose from."""
        chosen: list[list[int | None]] = []
        for gpu in self.cluster.gpus:
            grid = np.array(gpu.clocks_mhz)
            parts = [None if each is None else max(each * gpu.max_mhz, grid[0]) for each in self.clocks]
            chosen.append([None if most is None else int(grid[grid <= most][-1]) for most in parts])
        return chosen


class _Decider:
    """The decisions of an agent at one event after the other: what it sees, what it may do, and what it has done."""

    def __init__(self, choices: _Choices, predictor: Predictor) -> None:
        self._choices, self._predictor = choices, predictor
        self._clocks = choices.clocks_mhz()
        # By GPU the upper limits of its values in an observation.
        gpus = choices.cluster.gpus
        limits = [(min(choices.most, gpu.mps_clients), 1, gpu.memory_mib, gpu.max_mhz, gpu.tdp_w, 1) for gpu in gpus]
        self._limits = np.array(limits, float).T
        self._alone: dict[Workload, FloatArray] = {}
        self.begin()

    def begin(self) -> None:
        """Begin a run."""
        self._rows: dict[int, FloatArray] = {}
        self._memory_mib: dict[int, float] = {}
        self._requested: list[int | None] = [None] * len(self._choices.cluster)
        self._all = 0

    def look(self, view: View) -> None:
        """See the cluster at an event."""
        self._now_s, self.pending = view.now_s, view.pending
        self._waiting = list(view.waiting)
        self._all = self._all or len(self._waiting) + view.pending
        self._actions: list[Action] = []
        for task in self._waiting:
            if task.id not in self._memory_mib:
                self._memory_mib[task.id] = memory_mib(task.workload)

        columns = []
        for gpu in view.gpus:
            running = list(gpu.running.values())
            held_pct = sum([task.mps_pct for task in running])
            left_s = min([task.remaining * task.time_s for task in running], default=0.0)
            columns.append((len(running), held_pct, gpu.free_mib, gpu.sm_mhz, gpu.power_w, left_s))
        self._gpus = np.array(columns, float).T
        self._mark()

    def _mark(self) -> None:
        choices = self._choices
        held, _, free_mib = self._gpus[: _FREE + 1]
        seen = self._waiting[: choices.slots]
        self.mask = np.zeros(1 + int(np.prod(choices.shape)), np.int8)
        if seen:
            needed_mib = np.array([self._memory_mib[task.id] for task in seen])
            fits = (needed_mib[:, None] <= free_mib) & (held < self._limits[_HELD])
            self.mask[1:].reshape(*choices.shape[:2], -1)[: len(seen)] = fits[:, :, None]
        self.mask[0] = self.pending > 0 or not seen or held.any()

    def take(self, action: int) -> bool:
        """Take an action, or the first valid one in place of an invalid one; return False for waiting."""
        chosen = action if self.mask[action] else int(self.mask.argmax())
        if not chosen:
            return False
        slot, gpu, percentage, clock = map(int, np.unravel_index(chosen - 1, self._choices.shape))
        task, mps_pct = self._waiting.pop(slot), int(self._choices.percentages[percentage])
        self._set_clock(gpu, self._clocks[gpu][clock])
        self._actions.append(Start(task.id, gpu, mps_pct))
        self._gpus[: _FREE + 1, gpu] += (1, mps_pct, -self._memory_mib[task.id])
        self._mark()
        return True

    def actions(self) -> list[Action]:
        """Return the actions for the event; the clock of a GPU on which nothing runs is released."""
        for gpu in np.flatnonzero(self._gpus[_HELD] == 0).tolist():
            self._set_clock(gpu, None)
        return self._actions

    def _set_clock(self, gpu: int, sm_mhz: int | None) -> None:
        if self._requested[gpu] != sm_mhz:
            self._requested[gpu] = sm_mhz
            self._actions.append(SetClock(gpu, sm_mhz))

    def observation(self) -> dict[str, Any]:
        """Return what the agent sees."""
        gpus = self._gpus / self._limits
        left_s = gpus[_NEXT]
        gpus[_NEXT] = np.where(np.isfinite(left_s), left_s / (np.minimum(left_s, 1e12) + 3600), 1.0)
        gpus[_PCT] /= gpus[_PCT] + 100

        seen = self._waiting[: self._choices.slots]
        waiting = np.zeros((self._choices.slots, 3 + 2 * len(self._choices.cluster.kinds)), np.float32)
        if seen:
            waited_s = self._now_s - np.array([task.arrival_s for task in seen])
            waiting[: len(seen)] = [self.features_of(task) for task in seen]
            waiting[: len(seen), 2] = waited_s / (waited_s + 3600)
        counts = np.array([len(self._waiting), self.pending], np.float32) / max(self._all, 1)
        return {"gpus": gpus.T.astype(np.float32), "waiting": waiting, "counts": counts}

    def features_of(self, task: Task) -> FloatArray:
        """Return a task's row in observations, without the time that it has waited (column 2).

        Raises:
            InputError: no GPU can hold the task.
        """
        if task.id not in self._rows:
            time_s, power_w = self._alone_of(task.workload)
            energy_j = task.iterations * time_s * power_w
            size = memory_mib(task.workload) / self._limits[_FREE].max()
            whole_s = task.iterations * time_s
            parts = [1.0, size, 0.0, *(whole_s / (whole_s + 3600)), *(energy_j / (energy_j + 1e6))]
            self._rows[task.id] = np.array(parts)
        return self._rows[task.id]

    def _alone_of(self, workload: Workload) -> FloatArray:
        # Time of an iteration, s, and power, W, alone on each type of GPU, (2, kinds); 0 where it does not fit.
        if workload not in self._alone:
            kinds, needed_mib = self._choices.cluster.kinds, memory_mib(workload)
            values = np.zeros((2, len(kinds)))
            for column, kind in enumerate(kinds):
                if needed_mib <= kind.memory_mib:
                    alone = self._predictor.solo([workload], kind, kind.max_mhz)
                    values[:, column] = alone.time_s[0, 0], alone.power_w[0]
            good = bool(values.any())
            expected = f"a task that a GPU of {self._choices.cluster} can hold"
            require("tasks", workload, good, expected, "Leave it out.")
            self._alone[workload] = values
        return self._alone[workload]


class AgentPolicy(Policy):
    """A policy that an agent of `SchedulingEnv` decides for; made by `SchedulingEnv.as_policy`."""

    gangs = False

    def __init__(self, agent: Agent, choices: _Choices, name: str) -> None:
        self.name = name
        self.traits = Traits(
            frequency=any(each is not None for each in choices.clocks), multi_task=choices.most > 1, heterogeneous=True
        )
        self._agent, self._choices = agent, choices

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all state and prepare for a run on the environment's cluster."""
        own = self._choices.cluster
        action = "Train an agent for this cluster, or run it on its own."
        require("cluster", cluster, cluster == own, f"{own}, that of the agent's environment", action)
        super().reset(cluster, predictor, rng)
        self._decider = _Decider(self._choices, predictor)

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        """Let the agent act until it waits, as in an episode."""
        decider = self._decider
        decider.look(view)
        while view.waiting or view.pending or any(gpu.running for gpu in view.gpus):
            chosen = self._agent(decider.observation(), decider.mask)
            good = (
                isinstance(chosen, Integral | np.ndarray) and np.ndim(chosen) == 0 and 0 <= chosen < len(decider.mask)
            )
            require("agent", found(chosen), good, f"an action, 0 to {len(decider.mask) - 1}", "Correct the agent.")
            if not decider.take(int(chosen)):
                break
        return decider.actions()


class _Stepped(Policy):
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
        cast(_Stepped, self.policy).actions = actions
        if event is not None:
            super()._notify(event)
