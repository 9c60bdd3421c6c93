"""What steers a run from outside, together: the operator's log, the operator's requests, the service manager."""

from collections.abc import Callable
from dataclasses import dataclass

from heshare.ops.executor.entries import Entry
from heshare.ops.steering.operator_log import OperatorLog
from heshare.ops.steering.run_control import RunControl, RunDrained
from heshare.ops.steering.service_notifier import ServiceNotifier


@dataclass
class RunSteering:
    """The connections of a run to who operates it.

    Attributes:
        log: tells the operator what happens.
        control: hears the operator's requests.
        service: tells systemd.
        meter: is called with entries of the journal, and with samples between them, for metrics; None for nobody.
    """

    log: OperatorLog
    control: RunControl
    service: ServiceNotifier
    meter: Callable[[Entry], object] | None = None
    _disk_full: bool = False

    def hear(self, *, idle: bool) -> None:
        """Show the service manager that the run lives, and do what the operator has requested.

        Args:
            idle: nothing runs.

        Raises:
            Interrupted: the run is to end now.
            RunDrained: it is to start nothing more, and nothing runs.
        """
        self.service.alive()
        if self.control.check():
            self.log.tell("drain", "nothing more is started; the run ends when what runs has ended")
        if self.control.draining and idle:
            raise RunDrained

    def wait_for_disk(self, left_s: float) -> None:
        """Tell once that the disk is full and how long the run waits, s; with 0 that there is room again."""
        self.service.alive()
        if left_s > 0 and not self._disk_full:
            self.log.tell("disk-full", f"the disk of the run's folder is full: nothing is started for {left_s:.0f} s")
        elif left_s == 0:
            self.log.tell("disk-room", "there is room on the disk again: the run goes on")
        self._disk_full = left_s > 0
