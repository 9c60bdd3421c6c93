"""The GPUs of a run as a context manager: taken at its begin, released at its end, whatever ends it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from uuid import uuid4

from heshare.lab.tenants.tenant_power import TenantPower
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.local_device import LocalExecutorDevice
from heshare.ops.executor.lost_device import LostDevice
from heshare.shared.signals import InterruptHandler, handling

RunDevice = LocalExecutorDevice | LostDevice


@dataclass(eq=False, kw_only=True)
class GpuSet:
    """The GPUs of a run.

    Signals that would end the process raise `Interrupted` within the `with`, and are ignored while the GPUs are given
    back.

    Attributes:
        now_s: the time of the run, which all devices share, s.
        known: of a run that is resumed, the name of each GPU that it had, by UUID; one that is missing now is lost.
        devices: one for each GPU, in order; there once the `with` has begun.
        counters_j: each GPU's energy since its driver was loaded, when it was taken, J; None where that is unknown.
        token: the mark of the run's processes.
        attempts: the number of attempts at each job so far, on all of the GPUs.
        unreleased: what could not be given back at the end of the `with`, and what to do.
    """

    uuids: Sequence[str]
    jobs: Mapping[int, AssignedJob]
    now_s: Callable[[], float]
    allow_clocks: bool
    timeouts: Timeouts
    known: Mapping[str, str] = field(default_factory=dict)
    tenant_power: TenantPower = field(default_factory=TenantPower)

    def __post_init__(self) -> None:
        self.devices: list[RunDevice] = []
        self.counters_j: list[float | None] = []
        self.token = uuid4().hex
        self.attempts = {task: job.attempts for task, job in self.jobs.items()}
        self.unreleased: list[str] = []
        self._interrupts = InterruptHandler()
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            exits.enter_context(handling(self._interrupts))
            self._open(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.ignore()
        self._exits.__exit__(kind, error, trace)

    def _open(self, exits: ExitStack) -> None:
        """Take the GPUs, fill `devices` and `counters_j`; release what `exits` has if that fails."""
        raise NotImplementedError
