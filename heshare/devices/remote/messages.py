"""What an executor and a host say to each other: plain values, for whoever carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heshare.devices.command import Assigned
from heshare.devices.device import Reading
from heshare.devices.failing import Failed
from heshare.devices.meter import Patience
from heshare.devices.residents import Attempt
from heshare.errors import DeviceError
from heshare.world.gpu import Gpu


class HostLostError(DeviceError):
    """A host does not answer any more: its GPUs are lost to the run."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a host is asked to take for a run.

    Attributes:
        uuids: the GPUs.
        jobs: the jobs by task id.
        name: of the run; its outputs are kept under that name.
        offset_s: what is to be added to the host's monotonic clock to have the time of the run, s.
        allow_clocks: let policies lock clocks.
        patience: how long to wait for what.
    """

    uuids: tuple[str, ...]
    jobs: Mapping[int, Assigned]
    name: str
    offset_s: float
    allow_clocks: bool
    patience: Patience


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU that a host has taken.

    Attributes:
        gpu: what it is.
        uuid: of it.
        sharing: `mps` or `time-slice`.
        counter_j: its energy since its driver was loaded, J; None where it does not tell.
    """

    gpu: Gpu
    uuid: str
    sharing: str
    counter_j: float | None


@dataclass(frozen=True, slots=True)
class Order:
    """Something to be done on one GPU.

    Attributes:
        gpu: which of the host's GPUs of the run, from 0.
        call: a method of the device: `start`, `stop`, `set_clock` or `stop_all`.
        arguments: its arguments.
        attempt: of a start, the number of the attempt.
    """

    gpu: int
    call: str
    arguments: tuple[Any, ...] = ()
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What one GPU did since it was last asked, and how it stands.

    Attributes:
        reading: the latest.
        next_s: when there may be more to tell, s; `inf` if nothing runs.
        completed: the jobs that completed, in order.
        failed: the attempts that failed.
        attempts: what is known of the attempts that ended, by task.
        standing: what is known so far of those that run, by task.
        idle_j: energy while nothing ran, J.
        notes: what the operator should know.
        lost: why the GPU can no longer be used; empty as long as it can.
        sharing: `mps` or `time-slice`, at present.
    """

    reading: Reading
    next_s: float
    completed: tuple[int, ...]
    failed: tuple[Failed, ...]
    attempts: Mapping[int, Attempt]
    standing: Mapping[int, Attempt]
    idle_j: float
    notes: tuple[str, ...]
    lost: str
    sharing: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host says to orders.

    Attributes:
        told: one for each of its GPUs.
        results: what each order returned, in order.
        refused: why an order could not be carried out, and those after it were not; else empty.
    """

    told: tuple[Told, ...]
    results: tuple[Any, ...] = ()
    refused: str = ""
