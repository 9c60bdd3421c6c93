"""From a task set to a front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.errors import InputError
from heshare.prediction.predictor import CoRuns
from heshare.scheduling.pareto import Front, hypervolume, non_dominated
from heshare.scheduling.plan import Plan
from heshare.scheduling.planner import plan, random_scheme, sched_only
from heshare.scheduling.settings import Settings
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


def by_hand(one: Plan) -> tuple[float, float]:
    """Energy and average JCT of a plan by a loop that knows nothing of the planner's arrays, departures counted."""
    toy, energy, jcts = Toy(demand=DEMANDS), 0.0, []
    by_id = {task.id: task for task in one.tasks}
    for gpu, queue in zip(one.cluster.gpus, one.queues, strict=True):
        now = 0.0
        for batch in queue:
            left = {task: by_id[task].iterations for task in batch.tasks}
            while left:
                residents = tuple(
                    Resident(by_id[task].workload, pct)
                    for task, pct in zip(batch.tasks, batch.mps_pct, strict=True)
                    if task in left
                )
                answer = toy.co_run([residents], gpu, [batch.sm_mhz])
                speed = dict(zip(left, answer.time_s[0], strict=True))
                step = min(left[task] * speed[task] for task in left)
                now += step
                energy += step * answer.power_w[0]
                for task in list(left):
                    left[task] -= step / speed[task]
                    if left[task] <= 1e-9 * by_id[task].iterations:
                        del left[task]
                        jcts.append(now)
    return energy, float(np.mean(jcts))


def test_objectives_are_what_the_plans_cost(front: Front) -> None:
    for one, value in zip(front.plans, front.objectives, strict=True):
        assert (one.energy_j, one.jct_s) == tuple(value)
        assert by_hand(one) == pytest.approx(tuple(value), rel=1e-9)


def test_front_is_mutually_non_dominated_and_in_order_of_energy(front: Front) -> None:
    assert len(front) > 10
    assert non_dominated(front.objectives).all()
    assert (np.diff(front.objectives[:, 0]) > 0).all()


def test_the_named_plans_are_the_ends_and_the_knee(front: Front) -> None:
    assert front.en_opt.energy_j == front.objectives[:, 0].min()
    assert front.jct_opt.jct_s == front.objectives[:, 1].min()
    assert front.en_opt.energy_j < front.trade_off.energy_j < front.jct_opt.energy_j
    table = front.to_frame()
    assert table.choice.iloc[0] == "En-opt"
    assert table.choice.iloc[-1] == "JCT-opt"
    assert (table.choice == "Trade-off").sum() == 1


def test_one_clock_a_gpu_a_plan(front: Front) -> None:
    for one in front.plans:
        for queue in one.queues:
            assert len({batch.sm_mhz for batch in queue}) <= 1


def test_sharing_optimization_improves_on_stage_1(front: Front) -> None:
    alone = sched_only(mixed_tasks(24), CLUSTER, Toy(demand=DEMANDS), rng=np.random.default_rng(5), settings=QUICK)
    assert front.en_opt.energy_j < alone.energy_j
    assert front.jct_opt.jct_s < alone.jct_s


def test_sched_only_has_no_configuration_and_says_what_it_costs() -> None:
    alone = sched_only(mixed_tasks(24), CLUSTER, Toy(demand=DEMANDS), rng=np.random.default_rng(5), settings=QUICK)
    every = [batch for queue in alone.queues for batch in queue]
    assert {pct for batch in every for pct in batch.mps_pct} == {100}
    assert {batch.sm_mhz for batch in every} == {None}
    assert by_hand(alone) == pytest.approx((alone.energy_j, alone.jct_s), rel=1e-9)


def test_predictor_rows_are_counted() -> None:
    toy = Toy(demand=DEMANDS)
    found = plan(mixed_tasks(8), CLUSTER, toy, rng=np.random.default_rng(1), settings=QUICK)
    assert found.predictor_rows == toy.calls > 0


def test_task_ids_need_not_start_at_zero() -> None:
    tasks = tuple(replace(task, id=task.id + 40, arrival_s=3.0) for task in mixed_tasks(6))
    found = plan(tasks, CLUSTER, Toy(demand=DEMANDS), rng=np.random.default_rng(1), settings=QUICK)
    assert set(found.trade_off.scheme) == set(range(40, 46))


def test_one_task_on_one_gpu() -> None:
    tasks = (Task(0, Workload("gpt2", 4), 100.0),)
    found = plan(tasks, Cluster.parse("1xT4"), Toy(demand=DEMANDS), rng=np.random.default_rng(1), settings=QUICK)
    assert [len(one.queues[0]) for one in found.plans] == [1] * len(found)
    assert found.jct_opt.jct_s == pytest.approx(400.0)


def relative(one: Front, other: Front) -> float:
    both = np.concatenate((one.objectives, other.objectives))
    low, high = both.min(axis=0), both[non_dominated(both)].max(axis=0)
    return hypervolume((one.objectives - low) / (high - low), np.array([1.1, 1.1]))


@pytest.mark.parametrize(
    "change",
    [{"mps_pcts": (100,)}, {"clocks": 1}, {"clock_scope": "plan"}, {"solutions": 2}],
    ids=["no MPS", "no DVFS", "one clock for all", "two schemes"],
)
def test_each_freedom_of_stage_2_helps(front: Front, change: dict[str, object]) -> None:
    less = front_of(replace(QUICK, **change))  # type: ignore[arg-type]
    assert relative(front, less) >= relative(less, front)


def test_the_default_reading_beats_the_literal_one(front: Front) -> None:
    literal = front_of(Settings.literal(generations=30, solutions=10, piecewise=True))
    assert relative(front, literal) > relative(literal, front)


def test_eq_13_literally_expects_longer_plans(front: Front) -> None:
    literal = front_of(replace(QUICK, piecewise=False))
    assert literal.jct_opt.jct_s > front.jct_opt.jct_s


class Boosting(Toy):
    """A card left to itself runs faster than at any clock that can be set."""

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        answer = super().co_run(sets, gpu, sm_mhz)
        boost = np.array([2.0 if clock is None else 1.0 for clock in sm_mhz])
        return CoRuns(answer.time_s / boost[:, None], answer.power_w)


def test_schemes_of_stage_1_stay_in_the_front_when_nothing_beats_them() -> None:
    found = plan(mixed_tasks(12), CLUSTER, Boosting(), rng=np.random.default_rng(2), settings=QUICK)
    every = [batch for queue in found.jct_opt.queues for batch in queue]
    assert {len(batch.tasks) for batch in every} == {1}
    assert {(batch.mps_pct, batch.sm_mhz) for batch in every} == {((100,), None)}
    assert found.jct_opt.jct_s == found.objectives[-1, 1]


def test_final_front_is_bounded() -> None:
    assert len(front_of(replace(QUICK, front=6))) <= 6


def test_random_schemes_fit_and_use_every_gpu(rng: np.random.Generator) -> None:
    scheme = random_scheme(mixed_tasks(200), CLUSTER, rng)
    assert scheme.shape == (200,)
    assert (np.bincount(scheme, minlength=4) > 25).all()


def test_a_task_that_fits_no_gpu_stops_the_planner() -> None:
    tasks = (*mixed_tasks(3), Task(3, Workload("bert_large", 100_000), 1.0))
    for call in (plan, sched_only):
        with pytest.raises(InputError, match="task 3"):
            call(tasks, CLUSTER, Toy(), rng=np.random.default_rng(1), settings=QUICK)


@pytest.mark.parametrize("batching", ["memory", "single"])
def test_batches_can_be_left_to_memory_or_switched_off(batching: str) -> None:
    front = front_of(replace(QUICK, batching=batching, mps_goal="none", clock_scope="none"))  # type: ignore[arg-type]
    batches = [batch for one in front.plans for queue in one.queues for batch in queue]
    assert {batch.sm_mhz for batch in batches} == {None}
    assert {pct for batch in batches for pct in batch.mps_pct} == {100}
    sizes = {len(batch.tasks) for batch in batches}
    assert (sizes == {1}) if batching == "single" else (max(sizes) > 2)
