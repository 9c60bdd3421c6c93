"""The GPUs of several hosts in one run, through Dask: one worker a host, and in it the line to who keeps its GPUs.

Dask carries orders and answers, gives notice of what is new, and notices who has gone, in either direction. What is
done on a host is what a run on one machine does there: locks, note, watchdog, MPS, clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from uuid import uuid4

from heshare.devices.command import Assigned
from heshare.devices.interrupts import Interrupts
from heshare.devices.meter import Patience
from heshare.devices.mps import TIME_SLICE
from heshare.devices.remote.actor import ENDING_S, HostActor
from heshare.devices.remote.host import RemoteHost, Visit, absent
from heshare.devices.remote.messages import Answer, Card, HostLostError, Opening, Order
from heshare.devices.remote.proxies import RemoteDevice
from heshare.errors import DeviceError
from heshare.running.hosts import ANSWER_S, Offer, chosen, connected, offers
from heshare.world.catalogue import gpu

OPENING_S = 120.0
"""How long a host may take to take its GPUs, s: locks are waited for, and MPS daemons started."""

_SYNC = 5


class Hosts:
    """The GPUs of one run on several hosts; a `with` gives everything back, as `heshare.devices.machine.Machine` does.

    Args:
        address: the scheduler, `dask://host:port`.
        uuids: the GPUs.
        jobs: the jobs by task id.
        name: of the run; the hosts keep its outputs under that name.
        now_s: the time of the run, s.
        allow_clocks: let policies lock clocks.
        patience: how long to wait for what.
        known: of a run that goes on, the name and the host of each GPU that it had: those that no worker offers any
            more are lost, and the run goes on without them.

    Attributes:
        devices: one for each GPU, in order; there once the `with` has begun.
        token: the mark of the session.
    """

    def __init__(
        self,
        address: str,
        uuids: Sequence[str],
        jobs: Mapping[int, Assigned],
        name: str,
        now_s: Callable[[], float],
        *,
        allow_clocks: bool = False,
        patience: Patience | None = None,
        known: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self.devices: list[RemoteDevice] = []
        self.token = uuid4().hex
        self._address, self._uuids, self._jobs, self._name, self._now_s = address, uuids, jobs, name, now_s
        self._clocks, self._patience, self._known = allow_clocks, patience or Patience(), known or {}
        self._attempts = {task: job.attempts for task, job in jobs.items()}
        self._hosts: list[RemoteHost] = []
        self._counters_j: dict[str, float | None] = {}
        self._interrupts = Interrupts()
        self._ends = ExitStack()

    def __enter__(self) -> Hosts:
        with ExitStack() as ends:
            self._interrupts.listen()
            ends.callback(self._interrupts.restore)
            self._open(ends)
            self._ends = ends.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.ignore()
        self._ends.__exit__(kind, error, trace)

    def counters_j(self) -> list[float | None]:
        """Each card's energy since its driver was loaded, when it was taken, J; None where it does not tell."""
        return [self._counters_j.get(uuid) for uuid in self._uuids]

    def _open(self, ends: ExitStack) -> None:
        client = ends.enter_context(connected(self._address))
        every = offers(client)
        offered = {uuid for offer in every for uuid in offer.uuids}
        there = [uuid for uuid in self._uuids if uuid in offered or uuid not in self._known]
        owners = chosen(every, ",".join(f"nvml:{uuid}" for uuid in there or self._uuids))
        links = [
            Link(client, offer, f"heshare-{self.token}-{number}", self._patience.nvml_s)
            for number, offer in enumerate({one.address: one for one in owners.values()}.values())
        ]
        ends.push(lambda kind, error, trace: _close(links, error))
        ends.callback(self._let_go)
        self._take(links, owners)
        by_uuid = {device.uuid: device for host in self._hosts for device in host.devices}
        for uuid in [one for one in self._uuids if one not in there]:
            name, host = self._known[uuid]
            why = f"host {host} was lost: no worker offers its GPU any more"
            by_uuid[uuid] = absent(Card(gpu(name), uuid, TIME_SLICE, None), host, why, self._now_s)
            ends.callback(by_uuid[uuid].close)
        self.devices = [by_uuid[uuid] for uuid in self._uuids]

    def _take(self, links: Sequence[Link], owners: Mapping[str, Offer]) -> None:
        """Have every host take its GPUs, all at once.

        Raises:
            DeviceError: one refuses, or goes.
        """
        answers = [link.send("open", self._opening(link, owners)) for link in links]
        for link, answer in zip(links, answers, strict=True):
            cards: tuple[Card, ...] | str = link.wait(answer, OPENING_S)
            if isinstance(cards, str):
                raise DeviceError(f"{link.host}: {cards}")
            link.hear(self._host(link.host, cards, link.visit))

    def _host(self, name: str, cards: Sequence[Card], visit: Visit) -> RemoteHost:
        host = RemoteHost(name, cards, visit, self._now_s, self._attempts, look_s=self._patience.look_s)
        self._hosts.append(host)
        self._counters_j |= {card.uuid: card.counter_j for card in cards}
        return host

    def _let_go(self) -> None:
        for host in self._hosts:
            host.close()

    def _opening(self, link: Link, owners: Mapping[str, Offer]) -> Opening:
        uuids = tuple(uuid for uuid, owner in owners.items() if owner.address == link.address)
        offset_s = link.offset_s(self._now_s)
        return Opening(uuids, self._jobs, self._name, offset_s, self._clocks, self._patience)


class Link:
    """The actor on one worker, seen from here.

    Args:
        client: of the scheduler.
        offer: the worker.
        topic: the events by which it gives notice.
        patience_s: how long it may be silent once it has its GPUs, s.
    """

    def __init__(self, client: Any, offer: Offer, topic: str, patience_s: float) -> None:
        self.host, self.address = offer.host, offer.address
        self._client, self._topic, self._patience_s = client, topic, patience_s
        self._future = client.submit(
            HostActor, topic, actor=True, workers=[offer.address], allow_other_workers=False, pure=False, retries=0
        )
        self._lost = False
        self._actor: Any = None

    def send(self, method: str, *arguments: Any) -> Any:
        """Call a method of the actor; `wait` has the answer.

        Raises:
            HostLostError: the worker has gone.
        """
        try:
            if self._actor is None:
                self._actor = self._future.result(timeout=ANSWER_S)
            return getattr(self._actor, method)(*arguments)
        except Exception as error:
            raise self._gone(error) from error

    def wait(self, answer: Any, patience_s: float) -> Any:
        """What a call returned.

        Raises:
            HostLostError: the worker has gone, or does not answer in time.
        """
        until = time.monotonic() + patience_s
        while True:
            try:
                return answer.result(timeout=min(0.5, patience_s))
            except TimeoutError:
                # Dask never answers a call to a worker that went in the meantime.
                if self._future.status != "finished":
                    raise self._gone(RuntimeError(self._future.status)) from None
                if time.monotonic() >= until:
                    raise self._gone(f"no answer within {patience_s:g} s") from None
            except Exception as error:
                raise self._gone(error) from error

    def visit(self, orders: Sequence[Order]) -> Answer:
        """As `HostActor.visit`, waited for."""
        answer: Answer = self.wait(self.send("visit", list(orders)), self._patience_s)
        return answer

    def offset_s(self, now_s: Callable[[], float]) -> float:
        """What is to be added to the host's monotonic clock to have the time here, s; right to half a round trip."""
        found = []
        for _ in range(_SYNC):
            asked_s = now_s()
            there_s: float = self.wait(self.send("time_s"), ANSWER_S)
            answered_s = now_s()
            found.append((answered_s - asked_s, (asked_s + answered_s) / 2 - there_s))
        return min(found)[1]

    def hear(self, host: RemoteHost) -> None:
        """Let notices of the host wake whoever waits for its devices."""
        self._client.subscribe_topic(self._topic, lambda event: host.devices[event[1]].wake())

    def end(self) -> Any:
        """Ask for the end; None where nobody is there to ask."""
        try:
            return None if self._lost else self.send("close")
        except HostLostError:
            return None

    def ended(self, answer: Any) -> str:
        """What went wrong at the end that was asked for; nothing where nobody was there to ask."""
        try:
            said: str = "" if answer is None else self.wait(answer, ENDING_S + ANSWER_S)
        except HostLostError as error:
            return str(error)
        return said and f"{self.host}: {said}"

    def _gone(self, why: object) -> HostLostError:
        """Give it up. Its keeper puts the host in order: Dask drops the actor there, if it can be reached at all."""
        self._lost = True
        if self._client.status != "running":
            why = "the Dask scheduler has gone"
        else:
            self._client.cancel([self._future], force=True)
            if isinstance(why, OSError | RuntimeError):
                why = f"its Dask worker has gone ({why})"
        if isinstance(why, Exception) and not isinstance(why, HostLostError):
            why = f"{type(why).__name__}: {why}"
        return HostLostError(f"host {self.host} was lost: {why}")


def _close(links: Sequence[Link], error: BaseException | None) -> None:
    """Have every host put in order, all at once.

    Raises:
        DeviceError: one could not say that it was, and there is no other error to tell of.
    """
    asked = [(link, link.end()) for link in links]
    wrong = [said for link, answer in asked if (said := link.ended(answer))]
    if wrong and error is None:
        raise DeviceError(f"{'; '.join(wrong)}. Run `heshare restore` there.")
    if wrong and error is not None:
        error.add_note("; ".join(wrong))
