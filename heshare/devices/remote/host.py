"""A host of a run as the executor sees it: orders that travel together, and one visit that tells of all its GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from heshare.devices.remote.messages import Answer, Card, HostLostError, Order
from heshare.devices.remote.proxies import RemoteDevice
from heshare.errors import DeviceError

Visit = Callable[[Sequence[Order]], Answer]
_FRESH_S = 0.05


class RemoteHost:
    """One host of a run. Orders are kept until an answer is needed; one visit carries them all and tells of every GPU.

    Args:
        name: the host's.
        cards: what it has taken.
        visit: carries orders to the host and brings its answer; raises `HostLostError` when it does not answer.
        now_s: the time of the run, s.
        attempts: how many attempts at each task there were, shared with all hosts of the run.
        look_s: from look to look while jobs run, s.

    Attributes:
        devices: one for each card, in order.
        lost: why it does not answer any more; empty as long as it does.
    """

    def __init__(
        self,
        name: str,
        cards: Sequence[Card],
        visit: Visit,
        now_s: Callable[[], float],
        attempts: dict[int, int],
        *,
        look_s: float = 1.0,
    ) -> None:
        self.name, self.now_s, self.attempts, self.look_s = name, now_s, attempts, look_s
        self.lost = ""
        self._visit = visit
        self._orders: list[Order] = []
        self._asked_s = -math.inf
        self.devices = [RemoteDevice(self, index, card) for index, card in enumerate(cards)]
        self.ask()

    def bring(self) -> None:
        """Carry the orders there, if there are any; a visit a moment ago is enough where there are none."""
        if self._orders or not self.fresh:
            self.ask()

    def order(self, order: Order) -> None:
        """Have something done, with the next visit."""
        if not self.lost:
            self._orders.append(order)

    @property
    def fresh(self) -> bool:
        """Whether the last visit was a moment ago."""
        return self.now_s() - self._asked_s <= _FRESH_S

    def ask(self, by: RemoteDevice | None = None) -> Any:
        """Carry the orders there, hear how every GPU stands; what the last order returned.

        Args:
            by: who asks, and tells its own news itself; the others are woken by theirs.

        Raises:
            DeviceError: an order was refused.
        """
        if self.lost:
            return None
        orders, self._orders = self._orders, []
        try:
            answer = self._visit(orders)
        except HostLostError as error:
            self.lose(str(error))
            return None
        self._asked_s = self.now_s()
        for device, told in zip(self.devices, answer.told, strict=True):
            if device.hear(told) and device is not by:
                device.wake()
        if answer.refused:
            raise DeviceError(f"{self.name}: {answer.refused}")
        return answer.results[-1] if answer.results else None

    def lose(self, why: str) -> None:
        """Give the host up, with everything on it."""
        self.lost = why
        self._orders.clear()
        for device in self.devices:
            device.notes.append(f"{self.now_s():.1f} s: {self.lost}")
            device.wake()

    def close(self) -> None:
        """Let go of what the devices hold here."""
        for device in self.devices:
            device.close()


def absent(card: Card, host: str, why: str, now_s: Callable[[], float]) -> RemoteDevice:
    """A GPU that was part of a run and is not there any more when the run goes on: lost from the beginning.

    Args:
        card: what it was.
        host: whose.
        why: it is not there.
        now_s: the time of the run, s.
    """

    def visit(orders: Sequence[Order]) -> Answer:
        raise HostLostError(why)

    return RemoteHost(host, (card,), visit, now_s, {}).devices[0]
