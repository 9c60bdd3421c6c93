"""The registry, Random's draws, and the front that HeShare's variants share."""

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.policies.heshare import HeShare, Planner, share_fronts
from heshare.policies.policy import Borrows, Traits
from heshare.policies.random import Random, memory_batches
from heshare.policies.registry import declared, make, policies, register, title
from heshare.policies.table1 import PUBLISHED, table_1
from heshare.running.run import run
from heshare.scheduling.settings import Settings
from heshare.testing.toy import ToyPredictor, toy_devices, toy_gpu
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

LIGHT, HEAVY = Workload("mobilenet", 1), Workload("bert_large", 32)
QUICK = Settings(population=6, generations=5)
CLUSTER = Cluster.parse("2xT4,A100")
TASKS = tuple(Task(index, LIGHT, 10.0 * (1 + index)) for index in range(8))


def go(policy, tasks=TASKS, predictor=None, seed=0):
    predictor = predictor or ToyPredictor()
    rng = np.random.default_rng(seed)
    return run(tasks, CLUSTER, policy, predictor=predictor, rng=rng, devices=toy_devices(CLUSTER))


def test_the_paper_order_and_titles():
    assert list(policies())[:5] == ["random", "sched-only", "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt"]
    assert [title(name) for name in list(policies())[:5]] == ["Random", "Sched-only", "Trade-off", "En-opt", "JCT-opt"]
    assert title("somebody's") == "somebody's"
    assert all(make(name).name == name for name in policies())


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(InputError, match="heshare:en-opt"):
        make("heshare")


def test_a_name_is_registered_once():
    with pytest.raises(InputError, match="'random' twice"):
        register("random", title="Another")(Random)


def test_table_1_keeps_published_and_declared_apart():
    table = table_1()
    assert table["provenance"].tolist() == ["published"] * 5 + ["declared"] * len(policies())
    assert PUBLISHED["Morak"] == Traits(frequency=True, multi_task=True, heterogeneous=False)
    assert declared()["Trade-off"] == PUBLISHED["HeShare"]


def test_random_uses_every_gpu_alike():
    tasks = [Task(index, LIGHT, 1.0) for index in range(300)]
    policy = Random()
    policy.reset(CLUSTER, ToyPredictor(), np.random.default_rng(1))
    sizes = [sum(len(batch.tasks) for batch in queue) for queue in policy.plan(tasks)]
    assert sum(sizes) == 300
    # Within four standard deviations of a fair draw.
    assert all(abs(size - 100) < 4 * np.sqrt(300 * (1 / 3) * (2 / 3)) for size in sizes)


def test_random_leaves_a_task_where_it_was_drawn():
    policy = Random()
    policy.reset(CLUSTER, ToyPredictor(), np.random.default_rng(1))
    first = [{task for batch in queue for task in batch.tasks} for queue in policy.plan(TASKS[:4])]
    second = [{task for batch in queue for task in batch.tasks} for queue in policy.plan(TASKS)]
    assert all(before <= after for before, after in zip(first, second, strict=True))


def test_random_respects_memory_and_names_what_fits_nowhere():
    huge = Task(0, Workload("bert_large", 100_000), 1.0)
    with pytest.raises(InputError, match=r"task 0, bert_large:100000, which needs \d+ MiB"):
        go(Random(), tasks=(huge,))


def test_batches_fill_the_memory_in_order():
    need = memory_mib(HEAVY)
    tasks = [Task(index, HEAVY, 1.0) for index in range(5)]
    batches = memory_batches(tasks, toy_gpu(memory_mib=2.5 * need))
    assert [batch.tasks for batch in batches] == [(0, 1), (2, 3), (4,)]
    assert all(pct == 100 and batch.sm_mhz is None for batch in batches for pct in batch.mps_pct)


def test_batches_keep_to_the_mps_clients():
    tasks = [Task(index, LIGHT, 1.0) for index in range(50)]
    assert [len(batch.tasks) for batch in memory_batches(tasks, toy_gpu(memory_mib=1e9))] == [48, 2]


def test_the_same_question_is_planned_once_and_charged_to_each():
    planner = Planner(QUICK)
    trade_off, en_opt = HeShare("trade-off", planner=planner), HeShare("en-opt", planner=planner)
    first, second = go(trade_off), go(en_opt)
    assert isinstance(en_opt, Borrows)
    assert trade_off.borrowed.predictor_calls == 0
    assert en_opt.borrowed.predictor_calls == second.predictor_calls == first.predictor_calls > 0
    assert second.planning_s >= en_opt.borrowed.planning_s > 0


def test_a_known_front_leaves_the_random_stream_where_planning_would():
    planned, known, planner = np.random.default_rng(5), np.random.default_rng(5), Planner(QUICK)
    first, _ = planner.front(TASKS, CLUSTER, ToyPredictor(), planned)
    second, _ = planner.front(TASKS, CLUSTER, ToyPredictor(), known)
    assert second is first
    assert planned.random() == known.random()


def test_another_stream_is_another_question():
    planner = Planner(QUICK)
    one, _ = planner.front(TASKS, CLUSTER, ToyPredictor(), np.random.default_rng(1))
    two, _ = planner.front(TASKS, CLUSTER, ToyPredictor(), np.random.default_rng(2))
    assert one is not two


def test_only_equal_settings_share_fronts():
    alike, also, other = HeShare("en-opt"), HeShare("jct-opt"), HeShare("jct-opt", planner=Planner(QUICK))
    share_fronts([alike, Random(), also, other])
    assert alike.planner is also.planner
    assert other.planner is not alike.planner


def test_each_variant_takes_its_point_of_the_front():
    planner = Planner(QUICK)
    front, _ = planner.front(TASKS, CLUSTER, ToyPredictor(), np.random.default_rng(0))
    for choice, plan in (("trade-off", front.trade_off), ("en-opt", front.en_opt), ("jct-opt", front.jct_opt)):
        result = go(HeShare(choice, planner=planner))
        assert {each.task: each.gpu for each in result.record.intervals} == plan.scheme
