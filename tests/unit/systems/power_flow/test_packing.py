"""From numbers of GPUs to GPUs: who keeps, moves, stops and starts, by hand; and in which order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.systems.power_flow.buddy import BuddyAllocator, move_order, reallocate
from heshare.systems.power_flow.gpu_pools import GpuPool, PooledTask, assign_to_pools, make_pools
from heshare.systems.shared.cluster_nodes import nodes
from heshare.testing.toy import toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

LIGHT = Workload("resnet18", 4)
FAST, SLOW = toy_gpu("Fast"), toy_gpu("Slow", memory_mib=1_000.0)


def placed(wanted, before):
    buddy = BuddyAllocator([range(4), range(4, 8)])
    for job, gpus in before.items():
        buddy.allocate(job, gpus)
    return reallocate(buddy, wanted), buddy


def test_who_keeps_a_number_of_gpus_keeps_the_block():
    found, buddy = placed({1: 2, 2: 1, 3: 4}, {1: 2, 2: 1})
    assert (found.stopped, found.moved, found.started, found.left_out) == ([], {}, {3: (4, 5, 6, 7)}, [])
    assert buddy.allocations() == {1: (0, 1), 2: (2,), 3: (4, 5, 6, 7)}


def test_who_grows_moves_and_who_is_not_wanted_stops():
    found, _ = placed({1: 4, 3: 2}, {1: 2, 2: 1})
    assert found.stopped == [2]
    assert found.moved == {1: (0, 1, 2, 3)}
    assert found.started == {3: (4, 5)}


def test_room_is_made_and_what_does_not_fit_is_left_out():
    # One GPU taken in each node: four wanted together need one of the two to move.
    buddy = BuddyAllocator([range(4), range(4, 8)])
    for job, gpus in ((0, 2), (1, 2), (2, 1)):
        buddy.allocate(job, gpus)
    buddy.release(0)
    # Node 0: _ _ 1 1; node 1: 2 _ _ _.
    found = reallocate(buddy, {1: 2, 2: 1, 3: 4, 4: 4})
    assert found.moved == {2: (0,)}
    assert found.started == {3: (4, 5, 6, 7)}
    assert found.left_out == [4]


def test_jobs_move_when_their_places_are_free_and_circles_are_broken():
    had = {1: (0,), 2: (1,), 3: (2,)}
    assert move_order({1: (1,), 2: (2,), 3: (3,)}, had) == ([3, 2, 1], [])
    assert move_order({1: (1,), 2: (0,)}, had) == ([2], [1]), "1 stops, 2 moves, 1 starts"
    assert move_order({1: (0, 5)}, had) == ([1], []), "its own place is no obstacle"
    assert move_order({}, had) == ([], [])


@settings(max_examples=100, deadline=None)
@given(
    before=st.lists(st.sampled_from([1, 1, 2, 4]), max_size=6),
    wanted=st.dictionaries(st.integers(0, 9), st.sampled_from([1, 2, 4, 8]), max_size=8),
)
def test_moves_in_turn_never_meet(before, wanted):
    buddy = BuddyAllocator([range(8), range(8, 16)])
    for job, gpus in enumerate(before):
        buddy.allocate(job, gpus)
    had = buddy.allocations()
    found = reallocate(buddy, wanted)
    after = buddy.allocations()
    assert all(len(after[job]) == wanted[job] for job in after)
    assert set(found.left_out) == set(wanted) - set(after)
    ordered, stopped = move_order(found.moved, had)
    assert sorted([*ordered, *stopped]) == sorted(found.moved)
    there = {gpu: job for job, gpus in had.items() if job not in (*found.stopped, *stopped) for gpu in gpus}
    for job in ordered:
        there = {gpu: other for gpu, other in there.items() if other != job}
        assert not set(after[job]) & set(there)
        there.update(dict.fromkeys(after[job], job))
    for job in (*stopped, *found.started):
        assert not set(after[job]) & set(there)
        there.update(dict.fromkeys(after[job], job))
    assert there == {gpu: job for job, gpus in after.items() for gpu in gpus}


def test_nodes_are_of_one_type():
    cluster = Cluster((FAST, FAST, SLOW, FAST, SLOW))
    assert nodes(cluster, 2) == [(0, 1), (3,), (2, 4)]
    assert [(pool.gpu, pool.gpus) for pool in make_pools(cluster, 2)] == [(FAST, (0, 1, 3)), (SLOW, (2, 4))]


def test_jobs_are_dealt_where_they_would_complete_first():
    both = [GpuPool(FAST, (0,), BuddyAllocator([[0]])), GpuPool(SLOW, (1,), BuddyAllocator([[1]]))]

    def alone_s(job, pool):
        return job.left * (1.0 if pool.gpu == FAST else 1.5)

    def dealt(*lengths, load=((), ())):
        jobs = [PooledTask(Task(number, LIGHT, 1.0), length) for number, length in enumerate(lengths)]
        return [sorted(each) for each in assign_to_pools(jobs, load, both, alone_s, lambda task: task.gpus)]

    # 10 s to the fast one (10); 20 s: 30 there or 30 here, the first of equals; 30 s: 60 there or 45 here.
    assert dealt(10.0, 20.0, 30.0) == [[0, 1], [2]]
    assert dealt(30.0, 20.0, 10.0) == [[1, 2], [0]], "whatever their order"
    busy = PooledTask(Task(9, LIGHT, 1.0), 100.0)
    assert dealt(10.0, load=((busy,), ())) == [[], [0]]
    heavy = PooledTask(Task(0, Workload("bert_large", 8), 1.0), 1.0)
    assert assign_to_pools([heavy], ((busy,), ()), both, alone_s, lambda task: 1) == [{0: heavy}, {}]
    wide = PooledTask(Task(0, LIGHT, 1.0, gpus=2), 1.0)
    assert assign_to_pools([wide], ((), ()), both, alone_s, lambda task: 2) == [{}, {}]
