"""What the executor asks of its GPUs beyond the `Device` protocol, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from heshare.devices.device import Device, Reading
from heshare.devices.failing import Failed
from heshare.devices.residents import Attempt


class Accounts(Protocol):
    """What a card told.

    Attributes:
        latest: its latest reading.
        notes: what the operator should know, in order.
    """

    latest: Reading
    notes: list[str]

    def look(self, *, again: bool = False) -> None:
        """Ask the card, unless it was asked a moment ago (or `again`)."""
        ...


class WorkedDevice(Device, Protocol):
    """A GPU with jobs on it, here or on another host.

    Attributes:
        uuid: of the GPU.
        host: its host's name; empty for this machine.
        attempts: what is known of attempts that are over, by task, until somebody takes it.
        idle_j: energy while nothing ran, J.
    """

    uuid: str
    host: str
    attempts: dict[int, Attempt]
    idle_j: float

    @property
    def meter(self) -> Accounts:
        """What the card told."""
        ...

    @property
    def lost(self) -> str:
        """Why the GPU can no longer be used; empty as long as it can."""
        ...

    @property
    def sharing(self) -> str:
        """`mps` or `time-slice`."""
        ...

    @property
    def running(self) -> int:
        """How many jobs are on it."""
        ...

    def stop_all(self) -> None:
        """End every job, all at once."""
        ...

    def take_failed(self) -> list[Failed]:
        """The attempts that failed since this was last asked."""
        ...

    def descriptors(self) -> list[int]:
        """File descriptors that become readable when there is something new."""
        ...

    def standing(self) -> dict[int, Attempt]:
        """What is known so far of the attempts on it, by task."""
        ...

    def shares_j(self) -> dict[int, float]:
        """Energy so far of each job on it, and of those that left it unheard, J."""
        ...


class Gpus(AbstractContextManager[Any], Protocol):
    """The GPUs of one run: those of this machine, or of several hosts.

    Attributes:
        token: the mark of the run's session.
    """

    token: str

    @property
    def devices(self) -> Sequence[WorkedDevice]:
        """One for each GPU, in order; there once the `with` has begun."""
        ...

    def counters_j(self) -> list[float | None]:
        """Each card's energy since its driver was loaded, J; None where it does not tell."""
        ...
