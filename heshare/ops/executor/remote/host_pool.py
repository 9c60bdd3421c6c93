"""The GPUs of several hosts in one run, through Dask: an actor on one worker a host, connected to its host process.

Dask carries commands and replies, and detects that either side has ended. On each host the host process does what a run
on one machine does: locks, watchdog, note, MPS, clocks.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from heshare.ops.executor.gpu_set import GpuSet
from heshare.ops.executor.remote.host_offers import REPLY_S, HostOffer, connect, list_offers, select_offers
from heshare.ops.executor.remote.host_process import HostActor
from heshare.ops.executor.remote.remote_client import HostLostError, RemoteDevice, RemoteHost, lost_device
from heshare.shared.errors import DeviceError

_OPENING_S = 120.0
"""How long a host may take to take its GPUs, or to give them back, s: MPS daemons are started and ended."""


@dataclass(eq=False, kw_only=True)
class HostPool(GpuSet):
    """GPUs of the hosts at a scheduler's address, which keep outputs under the run's name.

    A known GPU that no worker offers any more is lost. `DeviceError` for a host that refuses, or is lost, at the begin.
    """

    address: str
    name: str

    def _open(self, exits: ExitStack) -> None:
        dask = exits.enter_context(connect(self.address))
        offers = list_offers(dask)
        offered = {uuid for offer in offers for uuid in offer.uuids}
        present = [uuid for uuid in self.uuids if uuid in offered or uuid not in self.known]
        owners = select_offers(offers, ",".join(f"nvml:{uuid}" for uuid in present or self.uuids))
        devices: dict[str, RemoteDevice] = {}
        for owner in {owner.address: owner for owner in owners.values()}.values():
            uuids = tuple(uuid for uuid, offer in owners.items() if offer.address == owner.address)
            devices |= {
                device.uuid: device for device in self._open_host(HostClient(dask, owner), uuids, exits).devices
            }
        for uuid in set(self.uuids) - set(present):
            reason = f"host {self.known[uuid][1]} was lost: no worker offers its GPU any more"
            devices[uuid] = lost_device(*self.known[uuid], uuid, reason, self.now_s)
        self.devices = [devices[uuid] for uuid in self.uuids]
        self.counters_j = [device.counter_j for device in self.devices]

    def _open_host(self, client: "HostClient", uuids: tuple[str, ...], exits: ExitStack) -> RemoteHost:
        order = {
            "name": self.name,
            "now_s": self.now_s(),
            "uuids": uuids,
            "jobs": self.jobs,
            "allow_clocks": self.allow_clocks,
            "timeouts": self.timeouts,
            "tenant_power": self.tenant_power,
        }
        gpus = client.ask(order, _OPENING_S)
        if isinstance(gpus, str):
            raise DeviceError(f"{client.host}: {gpus}")
        exits.callback(self._close, client)
        send = partial(client.ask, timeout_s=self.timeouts.host_s)
        return RemoteHost(client.host, gpus, send, self.now_s, self.attempts)

    def _close(self, client: "HostClient") -> None:
        """Have a host give everything back; what it did not is kept for the report."""
        try:
            left = "" if client.lost else client.ask(None, _OPENING_S)
        except HostLostError as lost:
            left = str(lost)
        if left:
            self.unreleased.append(f"{client.host}: {left.removesuffix('.')}. Run `heshare restore` there.")


class HostClient:
    """The executor's side of the actor on one worker; `lost` once it no longer replies."""

    def __init__(self, dask: Any, offer: HostOffer) -> None:
        self.host, self.lost = offer.host, False
        self._dask = dask
        self._future = dask.submit(
            HostActor, actor=True, workers=[offer.address], allow_other_workers=False, pure=False, retries=0
        )
        self._actor: Any = None

    def ask(self, message: Any, timeout_s: float) -> Any:
        """Return the actor's reply to a message; `HostLostError` if the worker has ended or does not reply in time."""
        until = time.monotonic() + timeout_s
        try:
            if self._actor is None:
                self._actor = self._future.result(timeout=REPLY_S)
            reply = self._actor.ask(message)
            while True:
                try:
                    return reply.result(timeout=0.5)
                except TimeoutError:
                    # Dask never completes a call to a worker that ended in the meantime.
                    if self._future.status != "finished" or time.monotonic() >= until:
                        raise
        except Exception as error:
            raise self._lost_error(error) from error

    def _lost_error(self, error: Exception) -> HostLostError:
        """Drop the host and return the error; Dask drops the actor there, and its host process cleans up."""
        self.lost = True
        if self._dask.status != "running":
            reason = "the Dask scheduler has gone"
        elif self._future.status != "finished":
            reason = "its Dask worker has gone"
        else:
            reason = "no reply" if isinstance(error, TimeoutError) else str(error)
        self._dask.cancel([self._future], force=True)
        return HostLostError(f"host {self.host} was lost: {reason}")
