"""The GPUs of several hosts in one run, through Dask: an actor on one worker a host, connected to its host process.

Dask carries commands and replies, forwards notices of news, and detects that either side has ended. On each host the
host process does what a run on one machine does: locks, watchdog, note, MPS, clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from heshare.ops.executor.gpu_set import GpuSet
from heshare.ops.executor.remote.host_actor import CLOSING_S, HostActor
from heshare.ops.executor.remote.host_offers import REPLY_S, HostOffer, connect, list_offers, select_offers
from heshare.ops.executor.remote.remote_client import RemoteDevice, RemoteHost
from heshare.ops.executor.remote.remote_messages import GpuCommand, HostLostError, HostReply, OpenRequest, RemoteGpu
from heshare.shared.errors import DeviceError

OPENING_S = 120.0
"""How long a host may take to take its GPUs, s: locks are waited for, and MPS daemons started."""

_CLOCK_SAMPLES = 5


@dataclass(eq=False, kw_only=True)
class HostPool(GpuSet):
    """GPUs of several hosts. A known GPU that no worker offers any more is lost.

    The begin of the `with` raises `DeviceError` where a host refuses, or is lost while it takes its GPUs, and
    `InputError` as `connect`, `list_offers` and `select_offers`.

    Attributes:
        address: the scheduler, `tls://host:port`.
        name: of the run; the hosts keep its outputs under that name.
    """

    address: str
    name: str

    def _open(self, exits: ExitStack) -> None:
        dask = exits.enter_context(connect(self.address))
        offers = list_offers(dask)
        offered = {uuid for offer in offers for uuid in offer.uuids}
        present = [uuid for uuid in self.uuids if uuid in offered or uuid not in self.known]
        owners = select_offers(offers, ",".join(f"nvml:{uuid}" for uuid in present or self.uuids))
        clients = [
            DaskHostClient(dask, offer, f"heshare-{self.token}-{number}", self.timeouts.host_s)
            for number, offer in enumerate({offer.address: offer for offer in owners.values()}.values())
        ]
        exits.callback(lambda: self.unreleased.extend(_close_all(clients)))
        devices: dict[str, RemoteDevice] = {}
        counters_j: dict[str, float | None] = {}
        # All hosts take their GPUs at the same time.
        replies = [client.call("request", self._open_request(client, owners)) for client in clients]
        for client, reply in zip(clients, replies, strict=True):
            gpus: tuple[RemoteGpu, ...] | str = client.result(reply, OPENING_S)
            if isinstance(gpus, str):
                raise DeviceError(f"{client.host}: {gpus}")
            poll_s = self.timeouts.poll_s
            host = RemoteHost(client.host, gpus, client.poll, self.now_s, self.attempts, poll_s=poll_s)
            exits.callback(host.close)
            devices |= {device.uuid: device for device in host.devices}
            counters_j |= {taken.uuid: taken.counter_j for taken in gpus}
            client.subscribe(host)
        for uuid in set(self.uuids) - set(present):
            reason = f"host {self.known[uuid][1]} was lost: no worker offers its GPU any more"
            devices[uuid] = self._lost_device(uuid, reason, exits)
        self.devices = [devices[uuid] for uuid in self.uuids]
        self.counters_j = [counters_j.get(uuid) for uuid in self.uuids]

    def _open_request(self, client: DaskHostClient, owners: Mapping[str, HostOffer]) -> OpenRequest:
        uuids = tuple(uuid for uuid, owner in owners.items() if owner.address == client.address)
        offset_s = client.offset_s(self.now_s)
        given = self.allow_clocks, self.timeouts, self.tenant_power
        return OpenRequest(uuids, self.jobs, self.name, offset_s, *given)


class DaskHostClient:
    """The executor's side of the actor on one worker.

    Args:
        dask: the client of the scheduler.
        offer: the worker.
        topic: the events by which it reports news.
        timeout_s: how long it may take to reply once it has its GPUs, s.

    Attributes:
        lost: whether it no longer replies.
    """

    def __init__(self, dask: Any, offer: HostOffer, topic: str, timeout_s: float) -> None:
        self.host, self.address = offer.host, offer.address
        self._dask, self._topic, self._timeout_s = dask, topic, timeout_s
        self._future = dask.submit(
            HostActor, topic, actor=True, workers=[offer.address], allow_other_workers=False, pure=False, retries=0
        )
        self.lost = False
        self._actor: Any = None

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the actor; return what `result` waits for.

        Raises:
            HostLostError: the worker has ended.
        """
        try:
            if self._actor is None:
                self._actor = self._future.result(timeout=REPLY_S)
            return getattr(self._actor, method)(*arguments)
        except Exception as error:
            raise self._lost_error(error) from error

    def result(self, reply: Any, timeout_s: float) -> Any:
        """Wait for and return the result of a call.

        Raises:
            HostLostError: the worker has ended, or does not reply in time.
        """
        until = time.monotonic() + timeout_s
        while True:
            try:
                return reply.result(timeout=min(0.5, timeout_s))
            except TimeoutError:
                # Dask never completes a call to a worker that ended in the meantime.
                if self._future.status != "finished":
                    raise self._lost_error(RuntimeError(self._future.status)) from None
                if time.monotonic() >= until:
                    raise self._lost_error(f"no reply within {timeout_s:g} s") from None
            except Exception as error:
                raise self._lost_error(error) from error

    def poll(self, commands: Sequence[GpuCommand]) -> HostReply:
        """Have the host execute commands, and return its reply; an error as in `result`."""
        reply: HostReply = self.result(self.call("request", list(commands)), self._timeout_s)
        return reply

    def offset_s(self, now_s: Callable[[], float]) -> float:
        """Return the difference between the time here and the host's monotonic clock, s; right to half a round trip."""
        samples = []
        for _ in range(_CLOCK_SAMPLES):
            sent_s = now_s()
            there_s: float = self.result(self.call("time_s"), REPLY_S)
            received_s = now_s()
            samples.append((received_s - sent_s, (sent_s + received_s) / 2 - there_s))
        # That of the shortest round trip.
        return min(samples)[1]

    def subscribe(self, host: RemoteHost) -> None:
        """Let notices of the host wake its devices."""
        self._dask.subscribe_topic(self._topic, lambda event: host.devices[event[1]].wake())

    def _lost_error(self, reason: object) -> HostLostError:
        """Drop the host and return the error; Dask drops the actor there, and its host process cleans up."""
        self.lost = True
        if self._dask.status != "running":
            reason = "the Dask scheduler has gone"
        else:
            self._dask.cancel([self._future], force=True)
            if isinstance(reason, OSError | RuntimeError):
                reason = f"its Dask worker has gone ({reason})"
        if isinstance(reason, Exception) and not isinstance(reason, HostLostError):
            reason = f"{type(reason).__name__}: {reason}"
        return HostLostError(f"host {self.host} was lost: {reason}")


def _close_all(clients: Sequence[DaskHostClient]) -> list[str]:
    """Have every host give everything back, all at once; return what they did not give back, and what to do."""
    replies, wrong = [], []
    for client in clients:
        if not client.lost:
            with suppress(HostLostError):
                replies.append((client, client.call("close")))
    for client, reply in replies:
        try:
            text = client.result(reply, CLOSING_S + REPLY_S)
        except HostLostError as lost:
            wrong.append(f"{lost}. Run `heshare restore` there.")
        else:
            wrong += [f"{client.host}: {text}. Run `heshare restore` there."] if text else []
    return wrong
