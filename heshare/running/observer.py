"""Observer of a run: callbacks with decisions and results before they take effect."""

from collections.abc import Iterable, Sequence

from heshare.devices.device import TaskFailure
from heshare.policies.policy import Action, Event
from heshare.running.timeline import Interval


class Observer:
    """Callbacks of a run, which do nothing here; the executor's subclass keeps a journal."""

    def on_decision(self, event: Event, actions: Sequence[Action]) -> None:
        """Process the actions that a policy returned for an event, before any of them is executed."""

    def on_interval_end(self, interval: Interval, failed: TaskFailure | None) -> None:
        """Process that a task has left a GPU (of a gang: the first one); `failed` if it failed there."""

    def should_retry(self, failed: TaskFailure) -> bool:
        """Return whether a task that failed waits for another attempt; otherwise its failure is final."""
        return False

    def wait(self, until_s: float) -> Iterable[int]:
        """Wait until `until_s` at the latest; return the indices of GPUs to be checked now."""
        return ()
