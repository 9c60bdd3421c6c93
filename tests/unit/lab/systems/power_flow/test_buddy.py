"""Buddy allocation: which jobs keep their GPUs, move, stop and start; what holds after any sequence of requests."""

from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.lab.systems.power_flow.buddy import Block, BuddyAllocator, move_order, reallocate, root_blocks
from heshare.lab.systems.power_flow.policy import make_pools
from heshare.lab.systems.shared.cluster_nodes import nodes
from heshare.testing.toy import toy_gpu
from heshare.world.cluster import Cluster

EIGHT = [range(8)]


def test_allocate():
    """The smallest block that fits is split; free neighbours are joined."""
    buddy = BuddyAllocator(EIGHT)
    assert buddy.allocate(0, 1) == (0,)
    assert buddy.free_blocks == [Block(1, 0, 1), Block(2, 0, 2), Block(4, 0, 4)]
    assert buddy.allocate(1, 2) == (2, 3)
    assert buddy.allocate(2, 1) == (1,)
    assert buddy.allocate(3, 3) == (4, 5, 6)
    assert buddy.free_blocks == []
    assert buddy.allocate(4, 1) is None
    buddy.release(0)
    buddy.release(1)
    assert buddy.free_blocks == [Block(1, 0, 0), Block(2, 0, 2)], "owner 2 keeps its block, so nothing joins"
    buddy.release(2)
    assert buddy.free_blocks == [Block(4, 0, 0)]
    buddy.release(3)
    assert buddy.free_blocks == [Block(8, 0, 0)]


def test_whole_nodes():
    """More than a node is given in whole nodes."""
    buddy = BuddyAllocator([range(4), range(4, 8), range(8, 12)])
    assert buddy.occupied(6) == 8
    assert buddy.allocate(0, 6) == (0, 1, 2, 3, 4, 5)
    assert buddy.free_blocks == [Block(4, 2, 0)]
    assert buddy.allocate(1, 5) is None
    assert buddy.free_blocks == [Block(4, 2, 0)], "a request that does not fit takes nothing"


def test_make_room():
    """Room is made by moving the fewest GPUs."""
    buddy = BuddyAllocator([range(4), range(4, 8)])
    for owner, gpus in enumerate((2, 1, 2, 1, 1, 1)):
        buddy.allocate(owner, gpus)
    # Node 0: 0 0 1 3; node 1: 2 2 4 5. Releasing 1 and 4 leaves two free GPUs, not a block of two.
    assert buddy.allocations() == {0: (0, 1), 1: (2,), 2: (4, 5), 3: (3,), 4: (6,), 5: (7,)}
    buddy.release(1)
    buddy.release(4)
    assert buddy.allocate(9, 2) is None
    assert buddy.make_room(2, movable=[0, 2, 3, 5]) == {3: (6,)}
    assert buddy.allocate(9, 2) == (2, 3)
    assert buddy.allocations() == {0: (0, 1), 2: (4, 5), 3: (6,), 5: (7,), 9: (2, 3)}


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), max_size=40),
)
def test_any_requests(sizes, steps):
    """After any requests blocks never overlap, are aligned, and are joined."""
    nodes, at = [], 0
    for size in sizes:
        nodes.append(range(at, at + size))
        at += size
    buddy, owners, following = BuddyAllocator(nodes), [], 0
    for kind, number in steps:
        if kind == 0 and owners:
            buddy.release(owners.pop(number % len(owners)))
        elif kind == 1 and buddy.make_room(number, owners) is not None:
            assert buddy.allocate(following, number) is not None
            owners.append(following)
            following += 1
        elif kind == 2:
            if buddy.allocate(following, number) is not None:
                owners.append(following)
            following += 1
        _check(buddy, nodes)
    for owner in owners:
        buddy.release(owner)
    assert sorted(buddy.free_blocks) == sorted(root_blocks(nodes)), "all blocks are whole again"


def _check(buddy, nodes):
    taken = [gpu for gpus in buddy.allocations().values() for gpu in gpus]
    free = [nodes[block.node][block.offset + place] for block in buddy.free_blocks for place in range(block.size)]
    assert len(set(taken)) == len(taken)
    assert not set(taken) & set(free)
    held = sum(buddy.occupied(len(gpus)) for gpus in buddy.allocations().values())
    assert held + sum(block.size for block in buddy.free_blocks) == sum(map(len, nodes))
    for block in buddy.free_blocks:
        assert block.size & (block.size - 1) == 0
        assert block.offset % block.size == 0
        buddies = block._replace(offset=block.offset ^ block.size)
        assert block in root_blocks(nodes) or buddies not in buddy.free_blocks, "free buddies were not joined"
    for gpus in buddy.allocations().values():
        nodes_of = {next(at for at, node in enumerate(nodes) if gpu in node) for gpu in gpus}
        assert len(nodes_of) == 1 or len(gpus) > max(1 << (len(node).bit_length() - 1) for node in nodes)


FAST, SLOW = toy_gpu("Fast"), toy_gpu("Slow", memory_mib=1_000.0)


def test_reallocate():
    """Room is made, and what does not fit is left out."""
    # One GPU taken in each node: four GPUs in one node need one of the two to move.
    buddy = BuddyAllocator([range(4), range(4, 8)])
    for job, gpus in ((0, 2), (1, 2), (2, 1)):
        buddy.allocate(job, gpus)
    buddy.release(0)
    # Node 0: _ _ 1 1; node 1: 2 _ _ _.
    assert reallocate(buddy, {1: 2, 2: 1, 3: 4, 4: 4}) == ([], [2], [3])
    assert buddy.allocations() == {1: (2, 3), 2: (0,), 3: (4, 5, 6, 7)}


def test_move_order():
    """Moves wait for free places, and circles are broken."""
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
def test_no_shared_gpu(before, wanted):
    """Reallocated jobs never share a GPU on the way."""
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


def test_make_pools():
    """Nodes have GPUs of one type."""
    cluster = Cluster((FAST, FAST, SLOW, FAST, SLOW))
    assert nodes(cluster, 2) == [(0, 1), (3,), (2, 4)]
    assert [(pool.gpu, pool.gpus) for pool in make_pools(cluster, 2)] == [(FAST, (0, 1, 3)), (SLOW, (2, 4))]
