"""The hosts that joined a Dask scheduler, one worker each: their GPUs, and whether they can run the jobs.

Dask's messages are pickles: whoever connects to a scheduler or a worker runs anything there. TLS with certificates of
one authority on both sides (`distributed.comm.tls` of Dask's configuration) is what keeps others out.
"""

import logging
import os
import platform
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heshare.ops.executor.job_tasks import check_programs
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.nvml.binding import NvmlError
from heshare.ops.nvml.card_survey import CUDA_VARIABLE, hidden, survey
from heshare.ops.probe import probe
from heshare.shared.errors import InputError, require
from heshare.shared.extras import require_extra
from heshare.shared.version import __version__

REPLY_S = 30.0
"""How long the scheduler, or an idle worker, may take to reply, s."""

_ADDRESS = re.compile(r"(tls://[^\s/]+|dask://(localhost|127\.0\.0\.1|\[::1\])):\d{1,5}")
_FORMS = "tls://HOST:PORT, or dask://localhost:PORT for a Dask scheduler of this machine, or one that a tunnel reaches"
VERSION = f"heshare {__version__}, Python {'.'.join(platform.python_version_tuple()[:2])}"
"""What must be the same on every host."""
_COLUMN = "--hosts"
_START = "On each host: dask worker SCHEDULER --nworkers 1 --nthreads 1."


@dataclass(frozen=True)
class HostOffer:
    """A worker by name and address, the GPUs that its CUDA_VISIBLE_DEVICES leaves, and what `heshare doctor` finds."""

    host: str
    address: str
    uuids: tuple[str, ...]
    machine: dict[str, Any]


@contextmanager
def connect(address: str, *, timeout_s: float = REPLY_S) -> Iterator[Any]:
    """Yield a client of the scheduler at `tls://host:port`, or at `dask://localhost:port`.

    Raises:
        InputError: another form (a connection over a network has TLS), no scheduler replies, no certificates, or Dask
            is not installed.
    """
    action = "Whoever can reach a scheduler without TLS can run anything as its users: set up TLS (docs/operations.md)."
    require(_COLUMN, repr(address), _ADDRESS.fullmatch(address) is not None, _FORMS, action)
    require_extra("dask", _COLUMN)
    import distributed

    dask: Any = distributed  # its classes have no types
    # A scheduler that ends is an error of a call here, or a note of the run; Dask would log a traceback of it as well.
    for name in ("distributed.client", "distributed.batched", "distributed.core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        security = dask.Security(require_encryption=True) if address.startswith("tls://") else None
        client = dask.Client(address.replace("dask://", "tcp://"), timeout=timeout_s, security=security)
    except (OSError, TypeError, ValueError) as error:
        raise InputError(
            f"{address}, where no scheduler responds ({error})",
            "the address of a running Dask scheduler, and for TLS certificates in Dask's configuration",
            "Start one with `dask scheduler`, and workers with `dask worker ADDRESS` (docs/operations.md).",
            column=_COLUMN,
        ) from None
    with client:
        yield client


def list_offers(client: Any) -> list[HostOffer]:
    """Return every worker with the GPUs that it offers, by the names of the hosts.

    Raises:
        InputError: no worker, or one that does not reply or does not run this version of heshare.
    """
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    require(_COLUMN, "a scheduler without workers", bool(workers), "one worker a host", _START)
    offers = []
    for address, (host, version, uuids, machine) in _run_on(client, workers, _describe).items():
        action = "Install the same version on every host, in the Python that runs its worker."
        require(_COLUMN, f"{version} on the worker {address}", version == VERSION, f"{VERSION}, as here", action)
        offers.append(HostOffer(host, address, uuids, machine))
    return sorted(offers, key=lambda offer: offer.host)


def _run_on(client: Any, workers: Iterable[str], function: Callable[..., object], *arguments: object) -> dict[str, Any]:
    futures = {
        address: client.submit(function, *arguments, workers=[address], allow_other_workers=False, pure=False)
        for address in workers
    }
    replies = {}
    for address, future in futures.items():
        try:
            replies[address] = future.result(timeout=REPLY_S)
        except InputError as error:
            raise InputError(**{**vars(error), "found": f"{error.found}, on the worker {address}"}) from None
        except Exception as error:
            found = f"no reply from the worker {address} ({type(error).__name__}: {error})"
            raise InputError(found, f"a worker that runs, with {VERSION}", _START, column=_COLUMN) from None
    return replies


def _describe() -> tuple[str, str, tuple[str, ...], dict[str, Any]]:
    # Runs on the worker.
    from distributed import get_worker

    name = str(get_worker().name)
    host = socket.gethostname() if "://" in name or name.isdecimal() else name
    machine = probe()
    try:
        unseen = hidden(survey(), os.environ.get(CUDA_VARIABLE))
    except NvmlError:
        unseen = frozenset()
    uuids = tuple(str(gpu["uuid"]) for gpu in machine["gpus"] if gpu["uuid"] is not None)
    uuids = tuple(uuid for uuid in uuids if uuid not in unseen)
    return host, VERSION, uuids, {"python": platform.python_version(), **machine}


def select_offers(offers: Sequence[HostOffer], text: str) -> dict[str, HostOffer]:
    """Return the worker of each of the GPUs that `nvml` or `nvml:UUID,nvml:UUID` names, by UUID, in order.

    Raises:
        InputError: another form, no GPU, or one that no worker offers.
    """
    owners = {uuid: offer for offer in offers for uuid in offer.uuids}
    names = [part.strip() for part in text.split(",")]
    if names == ["nvml"]:
        reasons = "; ".join(f"{offer.host}: {offer.machine['nvml']}" for offer in offers)
        found = f"no GPU on {len(offers)} workers ({reasons})"
        require(_COLUMN, found, bool(owners), "at least one worker with a GPU", _START)
        return owners
    uuids = [name.removeprefix("nvml:") for name in names]
    unknown = [uuid for uuid in uuids if uuid not in owners]
    require(
        "--devices",
        f"{unknown[0]!r}, which no worker offers" if unknown else "a GPU twice",
        not unknown and len(set(uuids)) == len(uuids),
        "nvml for every GPU of the hosts, or nvml:UUID, each once, with commas between them",
        "`heshare doctor --hosts ADDRESS` lists them.",
    )
    return {uuid: owners[uuid] for uuid in uuids}


def select_checked_gpus(address: str, text: str, specs: Sequence[JobSpec], file: Path) -> list[str]:
    """Return the UUIDs of the GPUs that a text names, after a check that each of their hosts can start the jobs."""
    with connect(address) as client:
        owners = select_offers(list_offers(client), text)
        _run_on(client, sorted({offer.address for offer in owners.values()}), check_programs, specs, file)
    return list(owners)
