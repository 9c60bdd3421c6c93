"""What an executor hears of a run while it goes on, and may say about it; the event loop's default says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heshare.devices.failing import Failed
from heshare.policies.policy import Action, Event
from heshare.running.timeline import Interval


class Observer:
    """Does nothing. A journal of a run subclasses it."""

    def decided(self, event: Event, actions: Sequence[Action]) -> None:
        """A policy has answered an event, and nothing of the answer has been carried out yet."""

    def closed(self, interval: Interval, failed: Failed | None) -> None:
        """A task has left a GPU (of a gang: the first); `failed` if it failed there."""

    def again(self, failed: Failed) -> bool:
        """Whether a task that failed is to be tried again; it waits then, else it has failed for good."""
        return False

    def wait(self, until_s: float) -> Iterable[int]:
        """Wait for `until_s`, or less long; returns the indices of GPUs that should be looked at now."""
        return ()
