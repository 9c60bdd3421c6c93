"""From numbers of GPUs to GPUs: which jobs keep theirs, move, stop and start, and in which order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.lab.systems.power_flow.buddy import BuddyAllocator, move_order, reallocate
from heshare.lab.systems.power_flow.policy import make_pools
from heshare.lab.systems.shared.cluster_nodes import nodes
from heshare.testing.toy import toy_gpu
from heshare.world.cluster import Cluster

FAST, SLOW = toy_gpu("Fast"), toy_gpu("Slow", memory_mib=1_000.0)


def placed(wanted, before):
    buddy = BuddyAllocator([range(4), range(4, 8)])
    for job, gpus in before.items():
        buddy.allocate(job, gpus)
    return reallocate(buddy, wanted), buddy


def test_reallocate_moves_jobs_that_grow_and_stops_jobs_that_are_not_planned():
    found, buddy = placed({1: 4, 3: 2}, {1: 2, 2: 1})
    assert found == ([2], [1], [3])
    assert buddy.allocations() == {1: (0, 1, 2, 3), 3: (4, 5)}


def test_reallocate_makes_room_and_leaves_out_what_does_not_fit():
    # One GPU taken in each node: four GPUs in one node need one of the two to move.
    buddy = BuddyAllocator([range(4), range(4, 8)])
    for job, gpus in ((0, 2), (1, 2), (2, 1)):
        buddy.allocate(job, gpus)
    buddy.release(0)
    # Node 0: _ _ 1 1; node 1: 2 _ _ _.
    assert reallocate(buddy, {1: 2, 2: 1, 3: 4, 4: 4}) == ([], [2], [3])
    assert buddy.allocations() == {1: (2, 3), 2: (0,), 3: (4, 5, 6, 7)}


def test_move_order_waits_for_free_places_and_breaks_circles():
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
def test_reallocated_jobs_never_share_a_gpu_on_the_way(before, wanted):
    buddy = BuddyAllocator([range(8), range(8, 16)])
    for job, gpus in enumerate(before):
        buddy.allocate(job, gpus)
    had = buddy.allocations()
    stopped, moved, started = reallocate(buddy, wanted)
    after = buddy.allocations()
    assert all(len(after[job]) == wanted[job] for job in after)
    there = {gpu: job for job, gpus in had.items() if job not in stopped for gpu in gpus}
    for job in (*moved, *started):
        there = {gpu: other for gpu, other in there.items() if other != job}
        assert not set(after[job]) & set(there)
        there.update(dict.fromkeys(after[job], job))
    assert there == {gpu: job for job, gpus in after.items() for gpu in gpus}


def test_make_pools_makes_nodes_of_one_type():
    cluster = Cluster((FAST, FAST, SLOW, FAST, SLOW))
    assert nodes(cluster, 2) == [(0, 1), (3,), (2, 4)]
    assert [(pool.gpu, pool.gpus) for pool in make_pools(cluster, 2)] == [(FAST, (0, 1, 3)), (SLOW, (2, 4))]
