"""Plans of a front that are built when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, overload

from heshare.scheduling.plan import Plan


class PlansOnDemand(Sequence[Plan]):
    """Sequence of plans of which each one is built when it is first looked at; equal to the tuple of the plans.

    A slice is a tuple, and a copy or pickle has all plans.

    Args:
        count: number of plans.
        make: builds a plan from its index.
    """

    def __init__(self, count: int, make: Callable[[int], Plan]) -> None:
        self._plans: list[Plan | None] = [None] * count
        self._make = make

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Plan: ...
    @overload
    def __getitem__(self, index: slice, /) -> tuple[Plan, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Plan | tuple[Plan, ...]:
        places = range(len(self._plans))[index]
        return tuple([self._plan(place) for place in places]) if isinstance(places, range) else self._plan(places)

    def _plan(self, place: int) -> Plan:
        plan = self._plans[place]
        if plan is None:
            plan = self._plans[place] = self._make(place)
        return plan

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | PlansOnDemand):
            return NotImplemented
        return self is other or (len(self) == len(other) and tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)
