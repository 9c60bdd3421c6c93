"""The hosts that a Dask scheduler knows, one worker each: which GPUs they offer, and whether they can run the jobs."""

from __future__ import annotations

import platform
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from heshare.devices.probe import probe
from heshare.errors import InputError
from heshare.running import engine
from heshare.running.jobs import check_names, check_programs
from heshare.world.jobfile import JobSpec

ANSWER_S = 30.0
"""How long the scheduler, and a worker that has nothing to do but to say so, may take to answer, s."""

_GPU = "GPU-"


@dataclass(frozen=True)
class Offer:
    """A worker with what it offers.

    Attributes:
        host: its name.
        address: where Dask reaches it.
        uuids: the GPUs that it offers.
        found: what `heshare doctor` finds there.
    """

    host: str
    address: str
    uuids: tuple[str, ...]
    found: dict[str, Any]


@contextmanager
def connected(address: str, *, timeout_s: float = ANSWER_S) -> Iterator[Any]:
    """A client of the scheduler at `dask://host:port`.

    Raises:
        InputError: another form, nobody answers, or Dask is not installed.
    """
    if not address.startswith("dask://") or len(address) == len("dask://"):
        raise _unfit(repr(address), "dask://HOST:PORT, a Dask scheduler", "Name the scheduler that the hosts joined.")
    with engine.client(address, column="--hosts", timeout_s=timeout_s) as client:
        yield client


def offers(client: Any) -> list[Offer]:
    """Every worker with what it offers, by the names of the hosts.

    A worker that declares resources named by UUIDs offers these GPUs only.

    Raises:
        InputError: no worker, or one that does not answer or does not run this version of heshare.
    """
    told = _asked(client, _describe, on_error="return")
    if not told:
        raise _unfit("a scheduler without workers", "one worker a host", _START)
    for address, found in sorted(told.items()):
        if not isinstance(found, dict):
            none = "No module named 'heshare'" in str(found)
            what = "no heshare" if none else f"what does not answer ({type(found).__name__}: {found})"
            raise _unfit(f"{what} on the worker {address}", f"heshare {_ours()['version']} there", _INSTALL)
        wrong = [f"{name} {found[name]}" for name, ours in _ours().items() if found[name] != ours]
        if wrong:
            expected = ", ".join(f"{name} {ours}" for name, ours in _ours().items())
            raise _unfit(f"{' and '.join(wrong)} on the worker {address}", f"{expected}, as here", _INSTALL)
    names = Counter(found["host"] for found in told.values())
    every = [_offer(address, found, names[found["host"]] > 1) for address, found in told.items()]
    return sorted(every, key=lambda one: one.host)


def _asked(client: Any, function: Callable[..., object], *arguments: object, **options: Any) -> dict[str, Any]:
    """What every worker answers, by address. `Client.run` would wait for one that hangs for ever: here nobody does."""
    told: SimpleQueue[dict[str, Any] | BaseException] = SimpleQueue()

    def ask() -> None:
        try:
            told.put(client.run(function, *arguments, **options))
        except BaseException as error:
            told.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = told.get(timeout=ANSWER_S)
    except Empty:
        known = ", ".join(sorted(client.scheduler_info(n_workers=-1)["workers"]))
        raise _unfit(
            f"no answer within {ANSWER_S:g} s from all of the workers {known}", "workers that run", _START
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def chosen(every: Sequence[Offer], text: str) -> dict[str, Offer]:
    """Who offers each of the GPUs that `nvml` or `nvml:UUID,nvml:UUID` names, in order.

    Raises:
        InputError: another form, no GPU, one that nobody offers, or one that two workers offer.
    """
    owners: dict[str, Offer] = {}
    for offer in every:
        for uuid in offer.uuids:
            if uuid in owners:
                raise _unfit(
                    f"{uuid} on two workers, {owners[uuid].address} and {offer.address}",
                    "one worker a host",
                    f'{_START} Or give each its own: --resources "{uuid}=1".',
                )
            owners[uuid] = offer
    names = [part.strip() for part in text.split(",")]
    if names == ["nvml"]:
        if not owners:
            why = "; ".join(f"{one.host}: {one.found['nvml']}" for one in every)
            raise _unfit(f"no GPU on {len(every)} workers ({why})", "at least one worker with a GPU", _START)
        return owners
    which = [name.removeprefix("nvml:") for name in names]
    unknown = [name for name in which if name not in owners]
    if unknown or len(set(which)) < len(which):
        raise InputError(
            column="--devices",
            found=f"{unknown[0]!r}, which no worker offers" if unknown else "a GPU twice",
            expected="nvml for every GPU of the hosts, or nvml:UUID, each once, with commas between them",
            action="`heshare doctor --hosts ADDRESS` lists them.",
        )
    return {uuid: owners[uuid] for uuid in which}


def admit(address: str, text: str, specs: Sequence[JobSpec], file: Path) -> list[str]:
    """The UUIDs of the GPUs that are asked for, once every host of theirs is found able to start the jobs.

    Raises:
        InputError: as `connected`, `offers` and `chosen`; two jobs with one key, or a program that a host has not.
    """
    check_names(specs, file)
    with connected(address) as client:
        owners = chosen(offers(client), text)
        hosts = {offer.address: offer.host for offer in owners.values()}
        told = _asked(client, check_programs, specs, file, workers=list(hosts), on_error="return")
        for where, error in sorted(told.items()):
            if isinstance(error, InputError):
                raise InputError(
                    file=error.file,
                    row=error.row,
                    column=error.column,
                    found=f"{error.found}, which is not there on the host {hosts[where]}",
                    expected=error.expected,
                    action=error.action,
                )
    return list(owners)


def _describe(dask_worker: Any = None) -> dict[str, Any]:
    """What a worker says of itself and of its machine; runs there."""
    name = str(dask_worker.name)
    resources = [str(one) for one in dask_worker.state.total_resources]
    host = socket.gethostname() if "://" in name or name.isdecimal() else name
    return {"host": host, "declared": [one for one in resources if one.startswith(_GPU)], **_ours(), **probe()}


def _ours() -> dict[str, str]:
    """What must be the same on every host."""
    return {
        "version": str(import_module("heshare").__version__),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def _offer(address: str, found: dict[str, Any], twice: bool) -> Offer:
    there = [str(gpu["uuid"]) for gpu in found["gpus"] if gpu["uuid"] is not None]
    uuids = tuple(uuid for uuid in there if not found["declared"] or uuid in found["declared"])
    return Offer(f"{found['host']} ({address})" if twice else found["host"], address, uuids, found)


_START = "On each host: dask worker SCHEDULER --nworkers 1 --nthreads 1."
_INSTALL = "Install the same version on every host, in the Python that runs its worker."


def _unfit(found: str, expected: str, action: str) -> InputError:
    return InputError(column="--hosts", found=found, expected=expected, action=action)
