"""The registry, Table I, the policies Random and Sched-only, and the planner that HeShare's policies share."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.policy_runs import run_on_toys

from heshare.policies.heshare import HeShare, SchedOnly
from heshare.policies.planning_cache import PlanningCache
from heshare.policies.policy import ReusedPlanning, Traits
from heshare.policies.random_placement import Random, memory_batches
from heshare.policies.registry import PUBLISHED, declared_traits, make, policies, register, table_1, title
from heshare.scheduling.planner import sched_only
from heshare.scheduling.settings import Settings
from heshare.shared.errors import InputError
from heshare.testing.toy import ToyPredictor, toy_gpu
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

LIGHT, HEAVY = Workload("mobilenet", 1), Workload("bert_large", 32)
QUICK = Settings(population=6, generations=5)
CLUSTER = Cluster.parse("2xT4,A100")
TASKS = tuple(Task(index, LIGHT, 10.0 * (1 + index)) for index in range(8))


def run_policy(policy, tasks=TASKS, cache=None):
    if cache is not None:
        policy.share_planning(cache)
    return run_on_toys(tasks, policy, CLUSTER.gpus)


def test_titles():
    """Policies are in the paper's order, with its titles."""
    assert [title(name) for name in list(policies())[:5]] == ["Random", "Sched-only", "Trade-off", "En-opt", "JCT-opt"]
    assert title("unregistered") == "unregistered"
    assert all(make(name).name == name for name in policies())


def test_names():
    """Unknown names and names twice are refused."""
    with pytest.raises(InputError, match="heshare:en-opt"):
        make("heshare")
    with pytest.raises(InputError, match="'random' twice"):
        register("random", title="Another")(Random)


def test_table_1():
    """Table I keeps published and declared traits apart."""
    table = table_1()
    assert table["provenance"].tolist() == ["published"] * 5 + ["declared"] * len(policies())
    assert PUBLISHED["Morak"] == Traits(frequency=True, multi_task=True, heterogeneous=False)
    assert declared_traits()["Trade-off"] == PUBLISHED["HeShare"]
    alone = [declared_traits()[name].multi_task for name in ("Random", "Sched-only")]
    together = [make(f"{name}:all-at-once").traits.multi_task for name in ("random", "sched-only")]
    assert (alone, together) == ([False, False], [True, True])


def test_random_order():
    """Random runs the tasks of each GPU in order of arrival, one at a time."""
    arriving = tuple(replace(task, arrival_s=float(5 * (index % 3))) for index, task in enumerate(TASKS))
    result = run_policy(Random(), tasks=arriving)
    for gpu in range(len(CLUSTER)):
        ran = sorted((each for each in result.record.intervals if each.gpu == gpu), key=lambda each: each.start_s)
        order = [(arriving[each.task].arrival_s, each.task) for each in ran]
        assert order == sorted(order)
        assert all(before.end_s <= after.start_s for before, after in pairwise(ran))
    assert {(each.mps_pct, each.outcome) for each in result.record.intervals} == {(100, "completed")}
    assert {segment.requested_mhz for segment in result.record.segments} == {None}


def test_sched_only_forms():
    """Sched-only runs the scheme of stage 1 in both of its forms."""
    scheme = sched_only(TASKS, CLUSTER, ToyPredictor(), rng=np.random.default_rng(0), settings=QUICK).scheme
    for together in (False, True):
        policy = SchedOnly(QUICK, all_at_once=together)
        result = run_policy(policy)
        assert {interval.task: interval.gpu for interval in result.record.intervals} == scheme
        assert policy.traits == Traits(frequency=False, multi_task=together, heterogeneous=True)
        assert (max(len(segment.residents) for segment in result.record.segments) > 1) == together


def test_shared_search():
    """Both forms of Sched-only share a search, and no plan."""
    alone, together = SchedOnly(QUICK), SchedOnly(QUICK, all_at_once=True)
    cache = PlanningCache()
    first, second = (run_policy(policy, cache=cache) for policy in (alone, together))
    placed = [{each.task: each.gpu for each in done.record.intervals} for done in (first, second)]
    assert placed[0] == placed[1]
    assert first.record != second.record
    assert alone.reused.planning_s == 0.0 < together.reused.planning_s


def test_memory_batches():
    """Memory batches fill the memory in order, and keep to the MPS clients."""
    need_mib = memory_mib(HEAVY)
    tasks = [Task(index, HEAVY, 1.0) for index in range(5)]
    batches = memory_batches(tasks, toy_gpu(memory_mib=2.5 * need_mib))
    assert [batch.tasks for batch in batches] == [(0, 1), (2, 3), (4,)]
    assert all(pct == 100 and batch.sm_mhz is None for batch in batches for pct in batch.mps_pct)
    many = [Task(index, LIGHT, 1.0) for index in range(50)]
    assert [len(batch.tasks) for batch in memory_batches(many, toy_gpu(memory_mib=1e9))] == [48, 2]


def test_planning_cache():
    """Planning is done once, and its time counts for each policy."""
    cache = PlanningCache()
    trade_off, en_opt = HeShare("trade-off", QUICK), HeShare("en-opt", QUICK)
    first, second = run_policy(trade_off, cache=cache), run_policy(en_opt, cache=cache)
    assert trade_off.reused.predictor_calls == 0
    assert en_opt.reused.predictor_calls == second.predictor_calls == first.predictor_calls > 0
    assert second.planning_s >= en_opt.reused.planning_s > 0


def test_random_state():
    """A cached front advances the random state as planning does."""
    cache, streams, fronts = PlanningCache(), [np.random.default_rng(5) for _ in range(2)], []
    for rng in streams:
        policy = HeShare("en-opt", QUICK)
        policy.share_planning(cache)
        policy.reset(CLUSTER, ToyPredictor(), rng)
        fronts.append(policy.front(TASKS))
    assert fronts[1] is fronts[0]
    assert streams[0].random() == streams[1].random()


def test_other_settings():
    """Policies of other settings reuse the search alone, or nothing."""
    cache = PlanningCache()
    run_policy(HeShare("trade-off", QUICK), cache=cache)
    other_search = HeShare("trade-off", replace(QUICK, generations=6))
    run_policy(other_search, cache=cache)
    assert other_search.reused == ReusedPlanning()
    same_search = HeShare("trade-off", replace(QUICK, batching="single"))
    run_policy(same_search, cache=cache)
    assert same_search.reused.planning_s > 0
    assert same_search.reused.predictor_calls == 0
