"""The planner: from a task set to a Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import moocore
import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.prediction.predictor import CoRuns
from heshare.scheduling import configuration
from heshare.scheduling.front import Front
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.pareto import knee, non_dominated
from heshare.scheduling.plan import Batch, Plan, check_queues
from heshare.scheduling.planner import plan, sched_only
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import IntArray
from heshare.shared.errors import InputError, PlanError
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

QUICK = Settings(generations=30, solutions=10)
CLUSTER = Cluster.parse("2xT4,1xV100,1xA100")


def front_of(settings: Settings = QUICK, n: int = 24, seed: int = 5) -> Front:
    return plan(mixed_tasks(n), CLUSTER, Toy(demand=DEMANDS), rng=np.random.default_rng(seed), settings=settings)


@pytest.fixture(scope="module")
def front() -> Front:
    return front_of()


def simulate(plan: Plan) -> tuple[float, float]:
    """Return energy and average JCT of a plan by a loop over batches, independent of the planner's arrays."""
    toy, energy_j, jcts_s = Toy(demand=DEMANDS), 0.0, []
    by_id = {task.id: task for task in plan.tasks}
    for gpu, queue in zip(plan.cluster.gpus, plan.queues, strict=True):
        now_s = 0.0
        for batch in queue:
            left = {task: by_id[task].iterations for task in batch.tasks}
            while left:
                residents = tuple(
                    Resident(by_id[task].workload, pct)
                    for task, pct in zip(batch.tasks, batch.mps_pct, strict=True)
                    if task in left
                )
                answer = toy.co_run([residents], gpu, [batch.sm_mhz])
                per_iteration_s = dict(zip(left, answer.time_s[0], strict=True))
                step_s = min(left[task] * per_iteration_s[task] for task in left)
                now_s += step_s
                energy_j += step_s * answer.power_w[0]
                for task in list(left):
                    left[task] -= step_s / per_iteration_s[task]
                    if left[task] <= 1e-9 * by_id[task].iterations:
                        del left[task]
                        jcts_s.append(now_s)
    return energy_j, float(np.mean(jcts_s))


def test_simulation(front: Front) -> None:
    """Plan objectives equal a simulation."""
    for chosen, value in zip(front.plans, front.objectives, strict=True):
        assert (chosen.energy_j, chosen.jct_s) == tuple(value)
        assert simulate(chosen) == pytest.approx(tuple(value), rel=1e-9)


def test_named_plans(front: Front) -> None:
    """A front has non-dominated plans in order of energy, and names both ends and the knee."""
    assert len(front) > 10
    assert non_dominated(front.objectives).all()
    assert (np.diff(front.objectives[:, 0]) > 0).all()
    assert len(front_of(replace(QUICK, front=6))) <= 6
    assert front.en_opt.energy_j == front.objectives[:, 0].min()
    assert front.jct_opt.jct_s == front.objectives[:, 1].min()
    assert front.en_opt.energy_j < front.trade_off.energy_j < front.jct_opt.energy_j
    table = front.to_frame()
    assert table.choice.iloc[0] == "En-opt"
    assert table.choice.iloc[-1] == "JCT-opt"
    assert (table.choice == "Trade-off").sum() == 1


def test_sequence(front: Front) -> None:
    """Fronts are indexed, iterated and compared."""
    again = front_of()
    assert front == again
    assert hash(front) == hash(again)
    assert front != front[:2]
    assert [front[3], front[np.int64(-1)]] == [front.plans[3], front.plans[-1]]
    assert list(front) == list(front.plans)
    part = front[2:5]
    assert part.plans == front.plans[2:5]
    assert np.array_equal(part.objectives, front.objectives[2:5])
    with pytest.raises(IndexError):
        front[len(front)]
    with pytest.raises(InputError, match="at least one plan"):
        front[4:4]


def test_short_texts(front: Front) -> None:
    """Fronts and plans have short texts and small tables."""
    assert sorted(front.trade_off.to_frame()["task"]) == [task.id for task in front.trade_off.tasks]
    for shown in (front, front[0]):
        assert len(repr(shown)) <= 200
        assert shown._repr_html_().count("<tr") <= 12


@pytest.mark.parametrize("all_at_once", [False, True])
def test_sched_only_objectives(all_at_once: bool) -> None:
    """Sched-only has no configuration and right objectives."""
    tasks, rng = mixed_tasks(24), np.random.default_rng(5)
    planned = sched_only(tasks, CLUSTER, Toy(demand=DEMANDS), rng=rng, settings=QUICK, all_at_once=all_at_once)
    batches = [batch for queue in planned.queues for batch in queue]
    assert {pct for batch in batches for pct in batch.mps_pct} == {100}
    assert {batch.sm_mhz for batch in batches} == {None}
    assert (max(len(batch.tasks) for batch in batches) > 1) == all_at_once
    assert simulate(planned) == pytest.approx((planned.energy_j, planned.jct_s), rel=1e-9)


def test_sched_only_is_the_knee() -> None:
    """Sched-only is the knee of stage 1 in SPT order one task at a time."""
    tasks, toy = mixed_tasks(24), Toy(demand=DEMANDS)
    instance = make_instance(tasks, CLUSTER, toy)
    schemes = search(instance, QUICK, np.random.default_rng(5))
    chosen = knee(schemes.objectives)
    planned = sched_only(tasks, CLUSTER, toy, rng=np.random.default_rng(5), settings=QUICK)
    assert (planned.energy_j, planned.jct_s) == tuple(schemes.objectives[chosen])
    for gpu, queue in enumerate(planned.queues):
        on_gpu = [
            task for task in instance.order_of_kind[instance.kind_of[gpu]].tolist() if schemes.gpus[chosen, task] == gpu
        ]
        assert [batch.tasks for batch in queue] == [(tasks[task].id,) for task in on_gpu]


def test_task_ids() -> None:
    """Plan keeps task ids and counts its own predictor rows."""
    toy, tasks = Toy(demand=DEMANDS), tuple(replace(task, id=task.id + 40, arrival_s=3.0) for task in mixed_tasks(6))
    toy.calls = 7
    front = plan(tasks, CLUSTER, toy, rng=np.random.default_rng(1), settings=QUICK)
    assert set(front.trade_off.scheme) == set(range(40, 46))
    assert front.predictor_rows == toy.calls - 7 > 0


def relative_hypervolume(front: Front, other: Front) -> float:
    union = np.concatenate((front.objectives, other.objectives))
    low, high = union.min(axis=0), union[non_dominated(union)].max(axis=0)
    return float(moocore.hypervolume((front.objectives - low) / (high - low), ref=np.array([1.1, 1.1])))


@pytest.mark.parametrize(
    "change",
    [{"mps_pcts": (100,)}, {"clocks": 1}, {"clock_scope": "plan"}, {"solutions": 2}],
    ids=["no MPS", "no DVFS", "one clock for all", "two schemes"],
)
def test_each_choice_helps(front: Front, change: dict[str, object]) -> None:
    """Each choice of stage 2 improves the front."""
    restricted = front_of(replace(QUICK, **change))  # type: ignore[arg-type]
    assert relative_hypervolume(front, restricted) >= relative_hypervolume(restricted, front)


class Boosting(Toy):
    """At its default clock a GPU is faster than at any clock that can be set."""

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        answer = super().co_run(sets, gpu, sm_mhz)
        boost = np.array([2.0 if clock is None else 1.0 for clock in sm_mhz])
        return CoRuns(answer.time_s / boost[:, None], answer.power_w)


def test_stage_1_schemes() -> None:
    """Schemes of stage 1 stay in the front if not dominated."""
    front = plan(mixed_tasks(12), CLUSTER, Boosting(), rng=np.random.default_rng(2), settings=QUICK)
    batches = [batch for queue in front.jct_opt.queues for batch in queue]
    assert {len(batch.tasks) for batch in batches} == {1}
    assert {(batch.mps_pct, batch.sm_mhz) for batch in batches} == {((100,), None)}
    assert front.jct_opt.jct_s == front.objectives[-1, 1]


def test_task_too_large() -> None:
    """Plan and Sched-only reject a task that fits no GPU."""
    tasks = (*mixed_tasks(3), Task(3, Workload("bert_large", 100_000), 1.0))
    for call in (plan, sched_only):
        with pytest.raises(InputError, match="task 3"):
            call(tasks, CLUSTER, Toy(), rng=np.random.default_rng(1), settings=QUICK)


@pytest.mark.parametrize("batching", ["memory", "single"])
def test_batching(batching: str) -> None:
    """Batching by memory or one task a batch."""
    front = front_of(replace(QUICK, batching=batching, mps_goal="none", clock_scope="none"))  # type: ignore[arg-type]
    batches = [batch for chosen in front.plans for queue in chosen.queues for batch in queue]
    assert {batch.sm_mhz for batch in batches} == {None}
    assert {pct for batch in batches for pct in batch.mps_pct} == {100}
    sizes = {len(batch.tasks) for batch in batches}
    assert (sizes == {1}) if batching == "single" else (max(sizes) > 2)


def test_ready_times() -> None:
    """Tasks wait until their GPU can begin."""
    tasks = mixed_tasks(6)
    cluster = Cluster.parse("1xA100")
    given = {"rng": np.random.default_rng(5), "settings": QUICK}
    at_once = plan(tasks, cluster, Toy(demand=DEMANDS), **given)
    given["rng"] = np.random.default_rng(5)
    later = plan(tasks, cluster, Toy(demand=DEMANDS), ready_s=np.array([70.0]), **given)
    assert later.objectives[:, 0] == pytest.approx(at_once.objectives[:, 0])
    assert later.objectives[:, 1] == pytest.approx(at_once.objectives[:, 1] + 70.0)


def test_fewer_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large task sets fewer schemes are configured."""
    schemes = search(make_instance(mixed_tasks(24), CLUSTER, Toy(demand=DEMANDS)), QUICK, np.random.default_rng(5))
    monkeypatch.setattr(configuration, "LEAST_SCHEMES", 1)
    monkeypatch.setattr(configuration, "MOST_PLACED", 3 * 24)
    queued: list[int] = []
    original = configuration.spt_queues

    def spt_queues(gpus: IntArray, instance: Instance) -> configuration.Queues:
        queued.append(len(gpus))
        return original(gpus, instance)

    monkeypatch.setattr(configuration, "spt_queues", spt_queues)
    front_of()
    assert len(schemes.gpus) > 3
    assert queued == [3]


@pytest.mark.parametrize(
    ("pcts", "mib", "message"),
    [
        ((100, 1), 0.0, None),
        ((101, 50), 0.0, "MPS percentages"),
        ((0, 50), 0.0, "MPS percentages"),
        ((50, 50), 1.0, "MiB"),
    ],
)
def test_full_memory(pcts, mib, message) -> None:
    """A batch may fill the memory and percentages are up to 100."""
    tasks = mixed_tasks(2)
    full = sum(memory_mib(task.workload) for task in tasks)
    gpu = replace(CLUSTER.gpus[0], memory_mib=full - mib)
    expected = nullcontext() if message is None else pytest.raises(PlanError, match=message)
    with expected:
        check_queues(Cluster((gpu,)), tasks, [[Batch((0, 1), pcts)]])
