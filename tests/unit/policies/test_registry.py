"""The registry, Table I, the policies Random and Sched-only, and the planner that HeShare's policies share."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from heshare.policies.heshare import HeShare, SchedOnly
from heshare.policies.planning_cache import PlanningCache
from heshare.policies.policy import ReusedPlanning, Traits
from heshare.policies.random_placement import Random, memory_batches
from heshare.policies.registry import PUBLISHED, declared_traits, make, policies, register, table_1, title
from heshare.running.run import run
from heshare.scheduling.planner import sched_only
from heshare.scheduling.settings import Settings
from heshare.shared.errors import InputError
from heshare.testing.toy import ToyPredictor, toy_devices, toy_gpu
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

LIGHT, HEAVY = Workload("mobilenet", 1), Workload("bert_large", 32)
QUICK = Settings(population=6, generations=5)
CLUSTER = Cluster.parse("2xT4,A100")
TASKS = tuple(Task(index, LIGHT, 10.0 * (1 + index)) for index in range(8))


def run_policy(policy, tasks=TASKS, predictor=None, seed=0):
    predictor = predictor or ToyPredictor()
    rng = np.random.default_rng(seed)
    return run(tasks, CLUSTER, policy, predictor=predictor, rng=rng, devices=toy_devices(CLUSTER))


def sharing(policy, cache):
    policy.share_planning(cache)
    return policy


def by_task(interval):
    return interval.task


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


def test_random_forms():
    """Random places tasks equally in both of its forms."""
    queued, together = run_policy(make("random")), run_policy(make("random:all-at-once"))
    for one, other in zip(*[sorted(done.record.intervals, key=by_task) for done in (queued, together)], strict=True):
        assert (one.task, one.gpu) == (other.task, other.gpu)
    assert all(len(segment.residents) <= 1 for segment in queued.record.segments)
    assert {interval.start_s for interval in together.record.intervals} == {0.0}


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
    first, second = (run_policy(sharing(policy, cache)) for policy in (alone, together))
    placed = [{each.task: each.gpu for each in done.record.intervals} for done in (first, second)]
    assert placed[0] == placed[1]
    assert first.record != second.record
    assert alone.reused.planning_s == 0.0 < together.reused.planning_s


def test_one_draw():
    """Random draws each task once."""
    policy = Random()
    policy.reset(CLUSTER, ToyPredictor(), np.random.default_rng(1))
    first = [{task for batch in queue for task in batch.tasks} for queue in policy.plan(TASKS[:4])]
    second = [{task for batch in queue for task in batch.tasks} for queue in policy.plan(TASKS)]
    assert all(before <= after for before, after in zip(first, second, strict=True))


def test_too_large():
    """Random names a task that fits no GPU."""
    huge = Task(0, Workload("bert_large", 100_000), 1.0)
    with pytest.raises(InputError, match="task 0, bert_large:100000"):
        run_policy(Random(), tasks=(huge,))


def test_memory_batches():
    """Memory batches fill the memory in order."""
    need_mib = memory_mib(HEAVY)
    tasks = [Task(index, HEAVY, 1.0) for index in range(5)]
    batches = memory_batches(tasks, toy_gpu(memory_mib=2.5 * need_mib))
    assert [batch.tasks for batch in batches] == [(0, 1), (2, 3), (4,)]
    assert all(pct == 100 and batch.sm_mhz is None for batch in batches for pct in batch.mps_pct)


def test_mps_clients():
    """Memory batches keep to the MPS clients."""
    tasks = [Task(index, LIGHT, 1.0) for index in range(50)]
    assert [len(batch.tasks) for batch in memory_batches(tasks, toy_gpu(memory_mib=1e9))] == [48, 2]


def test_planning_cache():
    """Planning is done once, and its time counts for each policy."""
    cache = PlanningCache()
    trade_off, en_opt = sharing(HeShare("trade-off", QUICK), cache), sharing(HeShare("en-opt", QUICK), cache)
    first, second = run_policy(trade_off), run_policy(en_opt)
    assert trade_off.reused.predictor_calls == 0
    assert en_opt.reused.predictor_calls == second.predictor_calls == first.predictor_calls > 0
    assert second.planning_s >= en_opt.reused.planning_s > 0


def test_random_state():
    """A cached front advances the random state as planning does."""
    cache, streams, fronts = PlanningCache(), [np.random.default_rng(5) for _ in range(2)], []
    for rng in streams:
        policy = sharing(HeShare("en-opt", QUICK), cache)
        policy.reset(CLUSTER, ToyPredictor(), rng)
        fronts.append(policy.front(TASKS))
    assert fronts[1] is fronts[0]
    assert streams[0].random() == streams[1].random()


def test_other_settings():
    """Policies of other settings reuse the search alone, or nothing."""
    cache = PlanningCache()
    run_policy(sharing(HeShare("trade-off", QUICK), cache))
    other_search = sharing(HeShare("trade-off", replace(QUICK, generations=6)), cache)
    run_policy(other_search)
    assert other_search.reused == ReusedPlanning()
    same_search = sharing(HeShare("trade-off", replace(QUICK, batching="single")), cache)
    run_policy(same_search)
    assert same_search.reused.planning_s > 0
    assert same_search.reused.predictor_calls == 0
