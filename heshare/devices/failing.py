"""Tasks that fail on a device without the run failing: what the event loop is told, and by which devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

KINDS = ("crash", "timeout", "memory", "start", "shared", "lost")
"""Why an attempt failed: it ended badly, took too long, found no memory, did not start; or, not by its own fault, all
that shared its GPU failed with it, or the GPU was lost."""


@dataclass(frozen=True, slots=True)
class Failed:
    """One attempt at a task that came to nothing.

    Attributes:
        task_id: the task.
        kind: one of `KINDS`.
        reason: one line for the operator.
        charged: whether it counts against the task's own retries.
        alone: whether the next attempt should have a GPU to itself, since the task may have harmed its neighbours, or
            found no room beside them.
    """

    task_id: int
    kind: str
    reason: str
    charged: bool = True
    alone: bool = False


@runtime_checkable
class Fallible(Protocol):
    """A device on which a task can fail while the others, and the run, go on."""

    @property
    def lost(self) -> str:
        """Why the GPU can no longer be used; empty as long as it can."""
        ...

    def take_failed(self) -> list[Failed]:
        """The attempts that failed since this was last asked; these tasks have left the device."""
        ...
