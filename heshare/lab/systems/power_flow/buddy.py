"""Buddy allocation of GPUs: blocks of powers of two inside a node, split to fit and joined again when free.

PowerFlow names it in its abstract (Knowlton, 1965, doi:10.1145/365628.365655). That jobs move only to defragment is
assumed.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple


class Block(NamedTuple):
    """A block of consecutive places of a node; `size` is a power of two and `offset` a multiple of it."""

    size: int
    node: int
    offset: int

    @property
    def mask(self) -> int:
        return ((1 << self.size) - 1) << self.offset

    @property
    def halves(self) -> "tuple[Block, Block]":
        half = self.size // 2
        return Block(half, self.node, self.offset), Block(half, self.node, self.offset + half)


def next_power_of_two(gpus: int, /) -> int:
    return 1 << (gpus - 1).bit_length()


def root_blocks(nodes: Sequence[Sequence[int]], /) -> list[Block]:
    """Return the largest blocks of each node; a node of six GPUs has one of four and one of two."""
    roots = []
    for node, gpus in enumerate(nodes):
        offset, left = 0, len(gpus)
        while left:
            size = 1 << (left.bit_length() - 1)
            roots.append(Block(size, node, offset))
            offset, left = offset + size, left - size
    return roots


class BuddyAllocator:
    """Free and allocated GPUs of some nodes, each given as its GPUs in order.

    Each node has a mask of its taken places. The free blocks are the rest of the largest blocks.
    """

    def __init__(self, nodes: Sequence[Sequence[int]]) -> None:
        self._nodes = [tuple(node) for node in nodes]
        self._roots = sorted(root_blocks(nodes))
        self._largest = self._roots[-1].size
        self._masks = [0] * len(nodes)
        self._taken: dict[int, tuple[tuple[int, ...], tuple[Block, ...]]] = {}

    @property
    def free_blocks(self) -> list[Block]:
        return sorted(part for root in self._roots for part in _free_parts(root, self._masks[root.node]))

    def occupied(self, gpus: int) -> int:
        """Return how many GPUs a request for `gpus` occupies: a power of two, or several of the largest blocks."""
        if gpus <= self._largest:
            return next_power_of_two(gpus)
        return -(-gpus // self._largest) * self._largest

    def allocations(self) -> dict[int, tuple[int, ...]]:
        return {owner: gpus for owner, (gpus, _) in self._taken.items()}

    def allocate(self, owner: int, gpus: int) -> tuple[int, ...] | None:
        """Allocate GPUs from the smallest free block that fits; return None if no block does.

        A request for more GPUs than the largest block gets several blocks of that size.
        """
        size = min(self.occupied(gpus), self._largest)
        fitting = [Block(size, block.node, block.offset) for block in self.free_blocks if block.size >= size]
        blocks = tuple(fitting[: self.occupied(gpus) // size])
        places = tuple(gpu for _, node, offset in blocks for gpu in self._nodes[node][offset : offset + size])[:gpus]
        if len(places) < gpus:
            return None
        self._taken[owner] = places, blocks
        self._flip(blocks)
        return places

    def release(self, owner: int) -> None:
        """Free an owner's GPUs; free buddies become one block."""
        self._flip(self._taken.pop(owner)[1])

    def _flip(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._masks[block.node] ^= block.mask

    def make_room(self, gpus: int, movable: Iterable[int]) -> dict[int, tuple[int, ...]] | None:
        """Move owners of smaller blocks so that a block for `gpus` becomes free, and as few GPUs as possible move.

        Returns the new GPUs of each of the `movable` owners that was moved (now allocated); None, with nothing changed,
        if it is impossible.
        """
        size = next_power_of_two(gpus)
        if gpus > self._largest or sum(block.size for block in self.free_blocks) < size:
            return None
        owners = {blocks[0]: owner for owner in movable for blocks in [self._taken[owner][1]] if len(blocks) == 1}
        choices = []
        for root in self._roots:
            for offset in range(root.offset, root.offset + root.size - size + 1, size):
                region = Block(size, root.node, offset)
                inside = [block for block in owners if block.node == region.node and not block.mask & ~region.mask]
                taken = (self._masks[root.node] & region.mask).bit_count()
                # Other taken places in the region belong to blocks that must not move.
                if taken == sum(block.size for block in inside):
                    choices.append((taken, region, [owners[block] for block in inside]))
        moves = (self._clear(region, inside) for _, region, inside in sorted(choices))
        return next((moved for moved in moves if moved is not None), None)

    def _clear(self, region: Block, owners: Sequence[int]) -> dict[int, tuple[int, ...]] | None:
        taken, masks = dict(self._taken), list(self._masks)
        for owner in owners:
            self.release(owner)
        # While the owners are placed again, the region is not among the free blocks.
        self._flip([region])
        moved: dict[int, tuple[int, ...]] = {}
        for owner in sorted(owners, key=lambda owner: (-len(taken[owner][0]), owner)):
            places = self.allocate(owner, len(taken[owner][0]))
            if places is None:
                self._taken, self._masks = taken, masks
                return None
            moved[owner] = places
        self._flip([region])
        return moved


@lru_cache(maxsize=4096)
def _free_parts(block: Block, mask: int) -> tuple[Block, ...]:
    if not mask & block.mask:
        return (block,)
    return tuple(part for half in block.halves for part in _free_parts(half, mask)) if block.size > 1 else ()


class Reallocation(NamedTuple):
    """The changes from one allocation to another, to be carried out in this order.

    Attributes:
        stopped: jobs that lose their GPUs, among them those that stop only to let others move.
        moved: jobs that move to other GPUs, in an order in which no two of them are on one GPU.
        started: jobs that start, among them those that stopped to let others move.
    """

    stopped: list[int]
    moved: list[int]
    started: list[int]


def reallocate(allocator: BuddyAllocator, planned: Mapping[int, int], /) -> Reallocation:
    """Allocate the planned numbers of GPUs: large blocks first, jobs of one size in the order given.

    A job with an unchanged number of GPUs retains its block, unless a larger job finds no block. Then as few GPUs as
    possible are moved: PowerFlow migrates jobs only to defragment. A running job for which there is no new block
    stops.
    """
    before = allocator.allocations()
    for job in before:
        if planned.get(job) != len(before[job]):
            allocator.release(job)
    kept = allocator.allocations()
    for job in sorted((job for job in planned if job not in kept), key=lambda job: -allocator.occupied(planned[job])):
        gpus = planned[job]
        if allocator.allocate(job, gpus) is None and allocator.make_room(gpus, allocator.allocations()) is not None:
            allocator.allocate(job, gpus)
    after = allocator.allocations()
    moved = {job: gpus for job, gpus in after.items() if before.get(job, gpus) != gpus}
    ordered, interrupted = move_order(moved, before)
    return Reallocation(
        stopped=[*(job for job in before if job not in after), *interrupted],
        moved=ordered,
        started=[*interrupted, *(job for job in after if job not in before)],
    )


def move_order(
    moved: Mapping[int, tuple[int, ...]], before: Mapping[int, tuple[int, ...]], /
) -> tuple[list[int], list[int]]:
    """Return the order in which jobs can move without two of them on one GPU, and the jobs that must stop for that.

    `moved` and `before` are the new and the present GPUs. One job stops for each cycle of jobs that wait for each
    other's GPUs; it starts again after the moves.
    """
    ordered: list[int] = []
    stopped: list[int] = []
    waiting = dict(moved)
    while waiting:
        holder = {gpu: job for job in waiting for gpu in before[job]}
        ready = [job for job, gpus in waiting.items() if all(holder.get(gpu, job) == job for gpu in gpus)]
        if ready:
            ordered += ready
        else:
            ready = [min(waiting)]
            stopped += ready
        for job in ready:
            del waiting[job]
    return ordered, stopped
