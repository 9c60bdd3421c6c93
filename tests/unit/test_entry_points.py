"""Plans, fronts and problems of one's own: `hs.evaluate`, `hs.Front.of`, `hs.problem`; own predictors and cards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

import heshare as hs
from heshare.policies import registry
from heshare.policies.function_policy import policy
from heshare.policies.policy import Wait
from heshare.prediction.features import ReferenceFeatures
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import CoRuns, Predictor
from heshare.prediction.profile_predictor import ProfilePredictor, Trained
from heshare.profiles import store
from heshare.running import loop
from heshare.scheduling.plan import Batch
from heshare.shared.errors import InputError, PlanError, PolicyError
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident

CLUSTER = "1xT4,1xA100"
TOO_LARGE = [hs.Task(0, hs.Workload("resnet152", 256, "fp16"), 100.0), hs.Task(1, hs.Workload("resnet50", 8), 1000.0)]
"""The first does not fit a T4, on which it has no profile."""


@pytest.fixture(scope="module")
def tasks() -> hs.TaskSet:
    return hs.task_set(4, seed=1)


class Own(Predictor):
    """A predictor of one's own, whose answers for m sets of at most w residents a function makes."""

    def __init__(self, answer: Callable[[int, int], Any]) -> None:
        self.answer = answer

    def co_run(self, sets: Sequence[tuple[Any, ...]], gpu: object, sm_mhz: object) -> Any:
        return self.answer(len(sets), max(map(len, sets)))


def constant(time_s: float, power_w: float) -> Own:
    return Own(lambda m, w: CoRuns(np.full((m, w), time_s), np.full(m, power_w)))


def test_evaluate(tasks: hs.TaskSet) -> None:
    """An evaluated plan has the values that its search gave it, and the run of that plan."""
    front = hs.plan(tasks, CLUSTER)
    for plan in (front.trade_off, front.en_opt):
        found = hs.evaluate(plan)
        assert (found.plan.energy_j, found.plan.jct_s) == pytest.approx((plan.energy_j, plan.jct_s))
        assert found.run == hs.run(tasks, CLUSTER, plan)
        assert hs.evaluate(plan.queues, tasks, CLUSTER).plan == found.plan
        frame = found.to_frame().set_index("measure")
        assert frame.loc["avg_jct_s"].tolist()[:2] == [found.plan.jct_s, found.run.avg_jct_s]


def test_exact_predictions(tasks: hs.TaskSet) -> None:
    """With the device's own model a plan predicts what its run gives."""
    found = hs.evaluate([[Batch((0, 1), (50, 50))], [Batch((2,), (100,)), Batch((3,), (100,))]], tasks, CLUSTER)
    exact = hs.evaluate(found.plan, predictor=DevicePredictor())
    assert exact.to_frame()["run_over_predicted_pct"].abs().max() < 1e-6
    assert exact.run == found.run


def test_front_of_plans(tasks: hs.TaskSet) -> None:
    """A front of plans leaves out those that others dominate, and refuses plans that cannot be compared."""
    front = hs.plan(tasks, CLUSTER)
    worse = replace(front.trade_off, energy_j=2 * front.trade_off.energy_j, jct_s=2 * front.trade_off.jct_s)
    own = hs.Front.of([front.jct_opt, worse, front.en_opt, front.trade_off])
    assert own.plans == (front.en_opt, front.trade_off, front.jct_opt)

    with pytest.raises(InputError, match="different tasks or clusters"):
        hs.Front.of([front.en_opt, hs.plan(tasks, "1xT4").en_opt])
    with pytest.raises(InputError, match="evaluate"):
        hs.Front.of([replace(worse, energy_j=float("nan"))])
    with pytest.raises(InputError, match="'trade-off'"):
        front.choose("Trade-off")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::heshare.prediction.modelled_references.UnprofiledWarning")
def test_pymoo_problem(tasks: hs.TaskSet) -> None:
    """An algorithm of pymoo finds the least energy of `hs.plan`; memory is a constraint."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.optimize import minimize

    problem = hs.problem(tasks, CLUSTER)
    found = minimize(problem, NSGA2(pop_size=20), ("n_gen", 15), seed=1)
    front = problem.front(found.X)
    assert front.en_opt.energy_j == pytest.approx(hs.plan(tasks, CLUSTER).en_opt.energy_j, rel=0.05)
    limited = hs.problem(TOO_LARGE, CLUSTER)
    assert limited.n_ieq_constr == 1
    values = limited.evaluate(np.array([[0, 0], [1, 0]]), return_as_dictionary=True)
    assert values["G"].tolist() == [[1.0], [0.0]]
    assert np.isfinite(values["F"]).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda m, w: None, "shapes"),
        (lambda m, w: CoRuns(np.ones(m), np.ones(m)), "time_s of shape"),
        (lambda m, w: CoRuns(np.ones((m, w)), np.ones(m + 1)), "power_w of shape"),
        (lambda m, w: CoRuns(np.full((m, w), -1.0), np.ones(m)), "time_s of -1"),
        (lambda m, w: CoRuns(np.ones((m, w)), np.full(m, np.nan)), "power_w of nan"),
    ],
)
def test_bad_predictor(answer: Callable[[int, int], Any], message: str, tasks: hs.TaskSet) -> None:
    """The shapes and values of a predictor's answers are checked."""
    for call in (hs.plan, hs.run):
        with pytest.raises(InputError, match=message):
            call(tasks, CLUSTER, predictor=Own(answer))  # type: ignore[operator]


def test_own_predictor(tasks: hs.TaskSet) -> None:
    """A predictor needs `co_run` alone, may answer with lists and for a GPU of its own, and counts its rows."""
    card = replace(gpu("A100"), name="B9", sm_count=200)
    assert hs.plan(tasks, hs.Cluster((card,)), predictor=constant(1.0, 100.0)).en_opt.energy_j > 0

    listed = Own(lambda m, w: CoRuns(np.ones((m, w)).tolist(), [100.0] * m))  # type: ignore[arg-type]
    assert hs.plan(tasks, CLUSTER, predictor=listed).plans == hs.plan(tasks, CLUSTER, predictor=constant(1, 100)).plans

    uncounted = constant(1.0, 100.0)
    uncounted.calls = None  # type: ignore[assignment]
    with pytest.raises(InputError, match="calls of None"):
        hs.plan(tasks, CLUSTER, predictor=uncounted)


def test_own_model(tasks: hs.TaskSet) -> None:
    """A model of one's own predicts by the features of Table II."""

    class Flat:
        def predict(self, features: Any) -> Any:
            return np.full(len(features), 0.5), np.full(len(features), 99.0)

    trained = Trained(Flat(), ReferenceFeatures(store.read_shipped()))  # type: ignore[arg-type]
    own = ProfilePredictor(lambda: trained)
    found = own.co_run([(Resident(task.workload, 50),) * 2 for task in tasks], gpu("A100"), [None] * len(tasks))
    assert set(found.time_s.ravel()) == {0.5}
    assert set(found.power_w) == {99.0}


@pytest.mark.parametrize(
    "changes",
    [{"sm_count": 50}, {"name": "B9"}, {"clocks_mhz": (210, 3000)}],
)
def test_unknown_gpu(changes: dict[str, Any]) -> None:
    """A GPU whose constants are not known is refused."""
    cluster = hs.Cluster((replace(gpu("A100"), **changes),))
    for call in (hs.plan, hs.optimise, hs.run, hs.problem):
        with pytest.raises(InputError, match="register_gpus"):
            call(3, cluster)  # type: ignore[operator]
    with pytest.raises(InputError, match="register_gpus"):
        hs.compare(3, cluster, "sjf", seeds=1)


@pytest.mark.filterwarnings("ignore::heshare.prediction.modelled_references.UnprofiledWarning")
@pytest.mark.parametrize("name", ["heshare:trade-off", "heshare+:trade-off", "srtf"])
def test_large_workload(name: str) -> None:
    """A workload too large for one type of GPU runs on the others."""
    assert hs.run(TOO_LARGE, CLUSTER, name).to_frame()["gpu"][0] == "A100-0"


def test_gangs(tasks: hs.TaskSet) -> None:
    """Gangs are refused where plans have none."""
    gangs = [replace(task, gpus=2) for task in tasks]
    for call in (hs.plan, hs.optimise, hs.problem):
        with pytest.raises(InputError, match="task 0, for 2 GPUs"):
            call(gangs, "2xA100")  # type: ignore[operator]


def test_deadlines(tasks: hs.TaskSet) -> None:
    """Missed deadlines are counted."""
    done = hs.run(tasks, CLUSTER, "sjf")
    limits_s = np.sort(done.completion_s)[[1, 1, 1, 1]]
    late = [replace(task, deadline_s=float(limit_s)) for task, limit_s in zip(tasks, limits_s, strict=True)]
    assert "deadline_misses" not in done.summary()
    assert hs.run(late, CLUSTER, "sjf").summary()["deadline_misses"] == 2
    assert hs.compare(late, CLUSTER, "sjf", seeds=1)["deadline_misses"].tolist() == [2]


def test_endless_policies(tasks: hs.TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies that never end are stopped."""
    monkeypatch.setattr(loop, "_MAX_IDLE_WAITS", 3_000)
    monkeypatch.setattr(loop, "_MOST_ACTIONS", 5_000)
    try:

        @policy("only-waits")
        def only_waits(event: Any, view: object, predictions: object) -> Any:
            return [Wait(event.time_s + 1)]

        @policy("endless")
        def endless(event: Any, view: object, predictions: object) -> Any:
            return (Wait(event.time_s + 1 + number) for number in count())

        with pytest.raises(PolicyError, match="3000 ticks"):
            hs.run(tasks, CLUSTER, "only-waits")
        with pytest.raises(PolicyError, match="5000 actions"):
            hs.run(tasks, CLUSTER, "endless")
    finally:
        for name in ("only-waits", "endless"):
            registry.unregister(name)


def test_bad_queues(tasks: hs.TaskSet) -> None:
    """Queues need tasks and batches."""
    for queues, error in (([[]], PlanError), ([[1]], InputError), (5, InputError)):
        with pytest.raises(error, match=r"expected (each task|a Plan, or a list)"):
            hs.evaluate(queues, tasks, "1xT4")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="their cluster"):
        hs.evaluate([[]])
