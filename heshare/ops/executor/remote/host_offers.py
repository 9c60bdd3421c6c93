"""The hosts that joined a Dask scheduler, one worker each: their GPUs, and whether they can run the jobs."""

import logging
import os
import platform
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from heshare.ops.executor.job_tasks import check_programs
from heshare.ops.executor.remote.scheduler import check_address, dask_client
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.nvml.binding import NvmlError
from heshare.ops.nvml.card_survey import CUDA_VARIABLE, hidden, survey
from heshare.ops.probe import probe
from heshare.shared.errors import InputError
from heshare.shared.version import __version__

REPLY_S = 30.0
"""How long the scheduler, or an idle worker, may take to reply, s."""

_COLUMN = "--hosts"
_START = "On each host: dask worker SCHEDULER --nworkers 1 --nthreads 1."
_INSTALL = "Install the same version on every host, in the Python that runs its worker."


@dataclass(frozen=True)
class HostOffer:
    """A worker and the GPUs that it offers.

    Attributes:
        host: its name.
        address: where Dask reaches it.
        uuids: the GPUs that it offers.
        machine: the findings of `heshare doctor` there.
    """

    host: str
    address: str
    uuids: tuple[str, ...]
    machine: dict[str, Any]


@contextmanager
def connect(address: str, *, timeout_s: float = REPLY_S) -> Iterator[Any]:
    """Yield a client of the scheduler at `tls://host:port`, or at `dask://host:port` on this machine.

    Raises:
        InputError: another form, no TLS over a network, no scheduler replies, or Dask is not installed.
    """
    check_address(address, _COLUMN)
    filters = {logging.getLogger("distributed.client"): _one_line, logging.getLogger("distributed.batched"): _not_info}
    for log, keep in filters.items():
        log.addFilter(keep)
    try:
        with dask_client(address, column=_COLUMN, timeout_s=timeout_s) as client:
            yield client
    finally:
        for log, keep in filters.items():
            log.removeFilter(keep)


def _one_line(record: logging.LogRecord) -> bool:
    """Make one line of a traceback that Dask's client logs when its scheduler ends; what follows is the run's note."""
    if record.exc_info and record.exc_info[0] is not None:
        record.msg, record.args = f"the connection to the scheduler broke ({record.exc_info[0].__name__})", ()
        record.exc_info = record.exc_text = None
    return True


def _not_info(record: logging.LogRecord) -> bool:
    """Drop the traceback that a message logs which was on its way when the scheduler ended: `_one_line` says it."""
    return record.levelno > logging.INFO


def list_offers(client: Any) -> list[HostOffer]:
    """Return every worker with the GPUs that it offers, by the names of the hosts.

    A worker that declares resources named by UUIDs offers these GPUs only.

    Raises:
        InputError: no worker, or one that does not reply or does not run this version of heshare.
    """
    replies = _run_on_workers(client, _describe, on_error="return")
    if not replies:
        raise InputError("a scheduler without workers", "one worker a host", _START, column=_COLUMN)
    versions = required_versions()
    for address, reply in sorted(replies.items()):
        if not isinstance(reply, dict):
            missing = "No module named 'heshare'" in str(reply)
            found = "no heshare" if missing else f"what does not reply ({type(reply).__name__}: {reply})"
            expected = f"heshare {versions['version']} there"
            raise InputError(f"{found} on the worker {address}", expected, _INSTALL, column=_COLUMN)
        wrong = [f"{name} {reply[name]}" for name, version in versions.items() if reply[name] != version]
        if wrong:
            expected = ", ".join(f"{name} {version}" for name, version in versions.items()) + ", as here"
            raise InputError(f"{' and '.join(wrong)} on the worker {address}", expected, _INSTALL, column=_COLUMN)
    counts = Counter(machine["host"] for machine in replies.values())
    offers = []
    for address, machine in replies.items():
        present = [str(gpu["uuid"]) for gpu in machine["gpus"] if gpu["uuid"] is not None]
        present = [uuid for uuid in present if uuid not in machine["hidden"]]
        uuids = tuple(uuid for uuid in present if not machine["declared"] or uuid in machine["declared"])
        host = f"{machine['host']} ({address})" if counts[machine["host"]] > 1 else machine["host"]
        offers.append(HostOffer(host, address, uuids, machine))
    return sorted(offers, key=lambda offer: offer.host)


def _run_on_workers(client: Any, function: Callable[..., object], *arguments: object, **options: Any) -> dict[str, Any]:
    """Return the reply of every worker, by address.

    `Client.run` waits for a worker that hangs without end, so it runs in a thread that may be left behind.
    """
    replies: Future[dict[str, Any]] = Future()

    def run() -> None:
        try:
            replies.set_result(client.run(function, *arguments, **options))
        except BaseException as error:
            replies.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return replies.result(REPLY_S)
    except TimeoutError:
        if replies.done():
            raise
        workers = ", ".join(sorted(client.scheduler_info(n_workers=-1)["workers"]))
        found = f"no reply within {REPLY_S:g} s from all of the workers {workers}"
        raise InputError(found, "workers that run", _START, column=_COLUMN) from None


def _describe(dask_worker: Any = None) -> dict[str, Any]:
    """Return the description of a worker and its machine; runs on the worker."""
    name = str(dask_worker.name)
    host = socket.gethostname() if "://" in name or name.isdecimal() else name
    declared = [str(resource) for resource in dask_worker.state.total_resources if str(resource).startswith("GPU-")]
    return {"host": host, "declared": declared, "hidden": _hidden(), **required_versions(), **probe()}


def _hidden() -> list[str]:
    """Return the UUIDs of the GPUs that CUDA_VISIBLE_DEVICES hides from this worker."""
    try:
        return sorted(hidden(survey(), os.environ.get(CUDA_VARIABLE)))
    except NvmlError:
        return []


def required_versions() -> dict[str, str]:
    """Return the versions that must be the same on every host."""
    return {"version": __version__, "python": ".".join(platform.python_version_tuple()[:2])}


def select_offers(offers: Sequence[HostOffer], text: str) -> dict[str, HostOffer]:
    """Return the worker of each of the GPUs that `nvml` or `nvml:UUID,nvml:UUID` names, by UUID, in order.

    Raises:
        InputError: another form, no GPU, one that no worker offers, or one that two workers offer.
    """
    owners: dict[str, HostOffer] = {}
    for offer in offers:
        for uuid in offer.uuids:
            if uuid in owners:
                found = f"{uuid} on two workers, {owners[uuid].address} and {offer.address}"
                action = f'{_START} Or give each its own: --resources "{uuid}=1".'
                raise InputError(found, "one worker a host", action, column=_COLUMN)
            owners[uuid] = offer
    names = [part.strip() for part in text.split(",")]
    if names == ["nvml"]:
        if not owners:
            reasons = "; ".join(f"{offer.host}: {offer.machine['nvml']}" for offer in offers)
            found = f"no GPU on {len(offers)} workers ({reasons})"
            raise InputError(found, "at least one worker with a GPU", _START, column=_COLUMN)
        return owners
    uuids = [name.removeprefix("nvml:") for name in names]
    unknown = [uuid for uuid in uuids if uuid not in owners]
    if unknown or len(set(uuids)) < len(uuids):
        raise InputError(
            f"{unknown[0]!r}, which no worker offers" if unknown else "a GPU twice",
            "nvml for every GPU of the hosts, or nvml:UUID, each once, with commas between them",
            "`heshare doctor --hosts ADDRESS` lists them.",
            column="--devices",
        )
    return {uuid: owners[uuid] for uuid in uuids}


def select_checked_gpus(address: str, text: str, specs: Sequence[JobSpec], file: Path) -> list[str]:
    """Return the UUIDs of the GPUs that a text names, after a check that each of their hosts can start the jobs.

    Raises:
        InputError: as `connect`, `list_offers` and `select_offers`, or a program that a host does not have.
    """
    with connect(address) as client:
        owners = select_offers(list_offers(client), text)
        hosts = {offer.address: offer.host for offer in owners.values()}
        replies = _run_on_workers(client, check_programs, specs, file, workers=list(hosts), on_error="return")
        for worker, error in sorted(replies.items()):
            if isinstance(error, InputError):
                found = f"{error.found}, which is not there on the host {hosts[worker]}"
                raise InputError(**{**vars(error), "found": found})
    return list(owners)
