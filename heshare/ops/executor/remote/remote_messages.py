"""Messages between an executor and the hosts whose GPUs it uses: plain values, which are pickled on their way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heshare.devices.device import Reading, TaskFailure
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.ops.executor.executor_device import Attempt, Timeouts
from heshare.ops.executor.job_process import AssignedJob
from heshare.shared.errors import DeviceError
from heshare.world.gpu import Gpu


class HostLostError(DeviceError):
    """A host no longer replies: its GPUs are lost to the run."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """The request that a host takes GPUs for a run.

    Attributes:
        uuids, jobs, allow_clocks, timeouts, tenant_power: as in `GpuSet`.
        name: of the run; its outputs are kept under that name.
        offset_s: difference between the time of the run and the host's monotonic clock, s.
    """

    uuids: tuple[str, ...]
    jobs: Mapping[int, AssignedJob]
    name: str
    offset_s: float
    allow_clocks: bool
    timeouts: Timeouts
    tenant_power: TenantPower


@dataclass(frozen=True, slots=True)
class RemoteGpu:
    """A GPU that a host has taken.

    Attributes:
        gpu, uuid: the GPU.
        counter_j: its energy since its driver was loaded, J; None where that is unknown.
    """

    gpu: Gpu
    uuid: str
    counter_j: float | None


@dataclass(frozen=True, slots=True)
class GpuCommand:
    """A command to one GPU.

    Attributes:
        gpu: the index of the GPU among the host's GPUs of the run, from 0.
        call: a method of the device: `start`, `stop`, `set_clock` or `stop_all`.
        attempt: of a start, the number of the attempt.
    """

    gpu: int
    call: str
    arguments: tuple[Any, ...] = ()
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The status of one GPU, and what happened on it since the last report.

    Attributes:
        next_s: when there may be more to report, s; `inf` if nothing runs.
        completed: the jobs that completed, in order.
        failed: the attempts that failed.
        attempts: the records so far of the attempts that run, by task.
        ended, idle_j, notes, lost, drained, estimated_j, unknown_s: as in `ExecutorDevice`; notes since the last
            report.
        sharing: `mps` or `time-slice`, at present.
    """

    reading: Reading
    next_s: float
    completed: tuple[int, ...]
    failed: tuple[TaskFailure, ...]
    ended: Mapping[int, Attempt]
    attempts: Mapping[int, Attempt]
    idle_j: float
    notes: tuple[str, ...]
    lost: str
    sharing: str
    drained: str = ""
    estimated_j: float = 0.0
    unknown_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HostReply:
    """The reply of a host to commands.

    Attributes:
        reports: one for each of its GPUs.
        result: what the last command returned.
        refused: why a command failed, so that those after it were not executed; empty if all were.
    """

    reports: tuple[StatusReport, ...]
    result: Any = None
    refused: str = ""
