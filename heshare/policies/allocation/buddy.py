"""Buddy allocation of GPUs: blocks of powers of two inside a node, split to fit and joined again when free.

A block begins at a multiple of its size, so that two neighbours that came from one block can always become it again:
free GPUs do not scatter, and a gang stays inside a node as long as it fits one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from heshare.errors import InputError


class Block(NamedTuple):
    """A block of consecutive places.

    Attributes:
        size: how many GPUs, a power of two.
        node: its node's place.
        offset: where in the node it begins, a multiple of its size.
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
        """The block that it and its buddy make."""
        return Block(2 * self.size, self.node, self.offset & ~self.size)


def rounded(gpus: int, /) -> int:
    """The least power of two that is no less than `gpus`."""
    return 1 << (gpus - 1).bit_length()


def roots(nodes: Sequence[Sequence[int]], /) -> list[Block]:
    """The largest blocks of each node: a node of six GPUs is one of four and one of two."""
    found = []
    for node, gpus in enumerate(nodes):
        offset, left = 0, len(gpus)
        while left:
            size = 1 << (left.bit_length() - 1)
            found.append(Block(size, node, offset))
            offset, left = offset + size, left - size
    return found


class Buddy:
    """Free and taken GPUs of some nodes.

    Args:
        nodes: the GPUs of each node, in order.

    Raises:
        InputError: no GPU, or the same one twice.
    """

    def __init__(self, nodes: Sequence[Sequence[int]]) -> None:
        flat = [gpu for node in nodes for gpu in node]
        if not flat or len(set(flat)) < len(flat):
            raise InputError(
                column="nodes", found=f"GPUs {flat}", expected="at least one, each once", action="Correct the nodes."
            )
        self._nodes = [tuple(node) for node in nodes]
        self._roots = frozenset(roots(nodes))
        self._largest = max(root.size for root in self._roots)
        self._free: list[Block] = sorted(self._roots)
        self._taken: dict[int, tuple[tuple[int, ...], tuple[Block, ...]]] = {}

    @property
    def free(self) -> int:
        """How many GPUs are free."""
        return sum(block.size for block in self._free)

    @property
    def free_blocks(self) -> tuple[Block, ...]:
        """The free blocks, smallest first."""
        return tuple(self._free)

    def held(self, gpus: int) -> int:
        """How many GPUs a request for `gpus` holds: a power of two, or whole largest blocks beyond those."""
        if gpus <= self._largest:
            return rounded(gpus)
        return -(-gpus // self._largest) * self._largest

    def taken(self) -> dict[int, tuple[int, ...]]:
        """Who has which GPUs."""
        return {owner: gpus for owner, (gpus, _) in self._taken.items()}

    def allocate(self, owner: int, gpus: int) -> tuple[int, ...] | None:
        """Give `owner` that many GPUs in the smallest free block that fits; None when no block does.

        More GPUs than the largest block has are given as whole blocks of that size.

        Raises:
            InputError: the owner has GPUs already, or asks for none.
        """
        if owner in self._taken or gpus < 1:
            raise InputError(
                column="gpus",
                found=f"{gpus} for {owner}, who has {len(self.taken().get(owner, ()))}",
                expected="at least one, for one who has none",
                action="Release the others first.",
            )
        held = self.held(gpus)
        size = min(held, self._largest)
        blocks: list[Block] = []
        while sum(block.size for block in blocks) < held:
            block = self._carve(size)
            if block is None:
                for each in blocks:
                    self._join(each)
                return None
            blocks.append(block)
        places = [gpu for block in blocks for gpu in self._gpus(block)][:gpus]
        self._taken[owner] = tuple(places), tuple(blocks)
        return tuple(places)

    def release(self, owner: int) -> None:
        """Take back an owner's GPUs; free buddies become one block.

        Raises:
            KeyError: the owner has none.
        """
        for block in self._taken.pop(owner)[1]:
            self._join(block)

    def make_room(self, gpus: int, movable: Iterable[int]) -> dict[int, tuple[int, ...]] | None:
        """Move owners of smaller blocks aside so that a block for `gpus` becomes free, moving as few GPUs as can be.

        Args:
            gpus: how many GPUs are wanted, at most the largest block.
            movable: owners that may be moved.

        Returns:
            The new GPUs of each owner that was moved (now booked); None, with nothing changed, if it cannot be done.
        """
        size = rounded(gpus)
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
            moved = self._clear(region, [owner for block, owner in inside.items() if _within(block, region)])
            if moved is not None:
                return moved
        return None

    def _cost(self, region: Block, inside: Mapping[Block, int]) -> int | None:
        """How many GPUs would have to move out of a region; None when it holds something that stays."""
        used = sum(block.size for block in inside if _within(block, region))
        free = sum(block.size for block in self._free if _within(block, region))
        return used if used + free == region.size else None

    def _clear(self, region: Block, owners: Sequence[int]) -> dict[int, tuple[int, ...]] | None:
        before, taken = list(self._free), dict(self._taken)
        for owner in owners:
            self.release(owner)
        self._free.remove(self._split_to(region))
        moved: dict[int, tuple[int, ...]] = {}
        for owner in sorted(owners, key=lambda each: (-len(taken[each][0]), each)):
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
        around = next(block for block in self._free if _within(region, block))
        self._free.remove(around)
        while around.size > region.size:
            half = Block(around.size // 2, around.node, around.offset)
            keep, other = (half, half.buddy) if _within(region, half) else (half.buddy, half)
            insort(self._free, other)
            around = keep
        insort(self._free, around)
        return around

    def _carve(self, size: int) -> Block | None:
        fitting = next((block for block in self._free if block.size >= size), None)
        if fitting is None:
            return None
        block = self._split_to(Block(size, fitting.node, fitting.offset))
        self._free.remove(block)
        return block

    def _join(self, block: Block) -> None:
        while block not in self._roots and block.buddy in self._free:
            self._free.remove(block.buddy)
            block = block.parent
        insort(self._free, block)

    def _gpus(self, block: Block) -> tuple[int, ...]:
        return self._nodes[block.node][block.offset : block.offset + block.size]


def _within(inner: Block, outer: Block) -> bool:
    ends = inner.offset + inner.size, outer.offset + outer.size
    return inner.node == outer.node and outer.offset <= inner.offset and ends[0] <= ends[1]
