"""Buddy allocation of GPUs: blocks of powers of two inside a node, split to fit and joined again when free.

A block begins at a multiple of its size, so two neighbours that were split from one block can always be joined again.
Free GPUs do not scatter, and a gang stays inside a node if a node can hold it. The abstract of PowerFlow names buddy
allocation (Knowlton, 1965, doi:10.1145/365628.365655); how jobs move is assumed: they keep their blocks, and move only
to make room for others.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heshare.errors import InputError


class Block(NamedTuple):
    """A block of consecutive places of a node.

    Attributes:
        size: number of GPUs, a power of two.
        node: the number of its node.
        offset: its first place in the node, a multiple of its size.
    """

    size: int
    node: int
    offset: int

    @property
    def buddy(self) -> Block:
        """The other half of the block that it was split from."""
        return Block(self.size, self.node, self.offset ^ self.size)

    @property
    def parent(self) -> Block:
        """The block that it makes together with its buddy."""
        return Block(2 * self.size, self.node, self.offset & ~self.size)

    def within(self, outer: Block) -> bool:
        """Return whether it lies inside another block."""
        ends = self.offset + self.size, outer.offset + outer.size
        return self.node == outer.node and outer.offset <= self.offset and ends[0] <= ends[1]


def next_power_of_two(gpus: int, /) -> int:
    """Return the least power of two that is no less than `gpus`."""
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
    """Free and allocated GPUs of some nodes.

    Args:
        nodes: the GPUs of each node, in order.

    Raises:
        InputError: no GPU, or the same GPU twice.
    """

    def __init__(self, nodes: Sequence[Sequence[int]]) -> None:
        flat = [gpu for node in nodes for gpu in node]
        if not flat or len(set(flat)) < len(flat):
            raise InputError(f"GPUs {flat}", "at least one, each once", "Correct the nodes.", column="nodes")
        self._nodes = [tuple(node) for node in nodes]
        self._roots = frozenset(root_blocks(nodes))
        self._largest = max(root.size for root in self._roots)
        self._free: list[Block] = sorted(self._roots)
        self._taken: dict[int, tuple[tuple[int, ...], tuple[Block, ...]]] = {}

    @property
    def free(self) -> int:
        """The number of free GPUs."""
        return sum(block.size for block in self._free)

    @property
    def free_blocks(self) -> tuple[Block, ...]:
        """The free blocks, smallest first."""
        return tuple(self._free)

    def occupied(self, gpus: int) -> int:
        """Return how many GPUs a request for `gpus` occupies: a power of two, or several of the largest blocks."""
        if gpus <= self._largest:
            return next_power_of_two(gpus)
        return -(-gpus // self._largest) * self._largest

    def allocations(self) -> dict[int, tuple[int, ...]]:
        """Return the GPUs of each owner."""
        return {owner: gpus for owner, (gpus, _) in self._taken.items()}

    def allocate(self, owner: int, gpus: int) -> tuple[int, ...] | None:
        """Allocate GPUs from the smallest free block that fits; return None if no block does.

        A request for more GPUs than the largest block gets several blocks of that size.

        Raises:
            InputError: the owner has GPUs already, or requests none.
        """
        if owner in self._taken or gpus < 1:
            raise InputError(
                f"{gpus} for {owner}, which has {len(self.allocations().get(owner, ()))}",
                "at least one, for an owner that has none",
                "Release the others first.",
                column="gpus",
            )
        occupied = self.occupied(gpus)
        size = min(occupied, self._largest)
        blocks: list[Block] = []
        while sum(block.size for block in blocks) < occupied:
            block = self._carve(size)
            if block is None:
                for carved in blocks:
                    self._join(carved)
                return None
            blocks.append(block)
        places = [gpu for block in blocks for gpu in self._gpus(block)][:gpus]
        self._taken[owner] = tuple(places), tuple(blocks)
        return tuple(places)

    def release(self, owner: int) -> None:
        """Free an owner's GPUs; free buddies become one block.

        Raises:
            KeyError: the owner has none.
        """
        for block in self._taken.pop(owner)[1]:
            self._join(block)

    def make_room(self, gpus: int, movable: Iterable[int]) -> dict[int, tuple[int, ...]] | None:
        """Move owners of smaller blocks so that a block for `gpus` becomes free, and as few GPUs as possible move.

        Args:
            gpus: number of GPUs that are requested, at most the largest block.
            movable: owners that may be moved.

        Returns:
            The new GPUs of each owner that was moved (now allocated); None, with nothing changed, if it is impossible.
        """
        size = next_power_of_two(gpus)
        if gpus > self._largest or self.free < size:
            return None
        inside = self._by_block(set(movable))
        regions = [
            Block(size, root.node, offset)
            for root in sorted(self._roots)
            for offset in range(root.offset, root.offset + root.size, size)
            if root.size >= size
        ]
        costs = [(self._cost(region, inside), region) for region in regions]
        for _, region in sorted((cost, region) for cost, region in costs if cost is not None):
            moved = self._clear(region, [owner for block, owner in inside.items() if block.within(region)])
            if moved is not None:
                return moved
        return None

    def _cost(self, region: Block, inside: Mapping[Block, int]) -> int | None:
        """Return how many GPUs would have to move out of a region; None if it holds something that must stay."""
        used = sum(block.size for block in inside if block.within(region))
        free = sum(block.size for block in self._free if block.within(region))
        return used if used + free == region.size else None

    def _clear(self, region: Block, owners: Sequence[int]) -> dict[int, tuple[int, ...]] | None:
        """Move the owners out of a region; return their new GPUs, or None with nothing changed."""
        before, taken = list(self._free), dict(self._taken)
        for owner in owners:
            self.release(owner)
        # While the owners are placed again, the region is not among the free blocks.
        self._free.remove(self._split_to(region))
        moved: dict[int, tuple[int, ...]] = {}
        for owner in sorted(owners, key=lambda owner: (-len(taken[owner][0]), owner)):
            places = self.allocate(owner, len(taken[owner][0]))
            if places is None:
                self._free, self._taken = before, taken
                return None
            moved[owner] = places
        self._join(region)
        return moved

    def _by_block(self, movable: set[int]) -> dict[Block, int]:
        return {blocks[0]: owner for owner, (_, blocks) in self._taken.items() if len(blocks) == 1 and owner in movable}

    def _split_to(self, region: Block) -> Block:
        """Split the free block around a region until the region is a free block of its own."""
        around = next(block for block in self._free if region.within(block))
        self._free.remove(around)
        while around.size > region.size:
            half = Block(around.size // 2, around.node, around.offset)
            keep, other = (half, half.buddy) if region.within(half) else (half.buddy, half)
            insort(self._free, other)
            around = keep
        insort(self._free, around)
        return around

    def _carve(self, size: int) -> Block | None:
        """Take a block of a size from the smallest free block that holds it."""
        fitting = next((block for block in self._free if block.size >= size), None)
        if fitting is None:
            return None
        block = self._split_to(Block(size, fitting.node, fitting.offset))
        self._free.remove(block)
        return block

    def _join(self, block: Block) -> None:
        """Free a block and join it with its buddy as long as that is free too."""
        while block not in self._roots and block.buddy in self._free:
            self._free.remove(block.buddy)
            block = block.parent
        insort(self._free, block)

    def _gpus(self, block: Block) -> tuple[int, ...]:
        return self._nodes[block.node][block.offset : block.offset + block.size]


@dataclass(frozen=True, slots=True)
class Reallocation:
    """The changes after which every job has the number of GPUs that was planned.

    Attributes:
        stopped: jobs that lose their GPUs.
        moved: new GPUs of jobs that had others before.
        started: GPUs of jobs that had none.
        left_out: jobs for which there was no block.
    """

    stopped: list[int] = field(default_factory=list)
    moved: dict[int, tuple[int, ...]] = field(default_factory=dict)
    started: dict[int, tuple[int, ...]] = field(default_factory=dict)
    left_out: list[int] = field(default_factory=list)


def reallocate(allocator: BuddyAllocator, planned: Mapping[int, int], /) -> Reallocation:
    """Allocate the planned numbers of GPUs: large blocks first, jobs of one size in the order given.

    A job that keeps its number of GPUs keeps its block, unless a larger job finds no room. Then as few GPUs as possible
    are moved: PowerFlow migrates jobs to defragment and for nothing else. A running job for which there is no new block
    stops.

    Args:
        allocator: the GPUs that jobs have; changed.
        planned: number of GPUs of each job.
    """
    before = allocator.allocations()
    for job, gpus in before.items():
        if planned.get(job) != len(gpus):
            allocator.release(job)
    kept = set(allocator.allocations())
    left_out = []
    for job in sorted((job for job in planned if job not in kept), key=lambda job: -allocator.occupied(planned[job])):
        if allocator.allocate(job, planned[job]) is None:
            room = allocator.make_room(planned[job], allocator.allocations())
            if room is None or allocator.allocate(job, planned[job]) is None:
                left_out.append(job)
    after = allocator.allocations()
    return Reallocation(
        stopped=[job for job in before if job not in after],
        moved={job: gpus for job, gpus in after.items() if job in before and before[job] != gpus},
        started={job: gpus for job, gpus in after.items() if job not in before},
        left_out=left_out,
    )


def move_order(
    moved: Mapping[int, tuple[int, ...]], before: Mapping[int, tuple[int, ...]], /
) -> tuple[list[int], list[int]]:
    """Return the order in which jobs can move without two of them on one GPU, and the jobs that must stop for that.

    Args:
        moved: new GPUs by job.
        before: present GPUs by job.

    Returns:
        Jobs in the order in which they can move; jobs to stop before and start after the moves, one for each circle of
        jobs that wait for each other's GPUs.
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
