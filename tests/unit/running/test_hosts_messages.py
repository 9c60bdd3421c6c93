"""What can be wrong with hosts before anything is started: one clear message each. And proxies without Dask."""

from __future__ import annotations

import pytest

from heshare.errors import InputError
from heshare.running import hosts

UUIDS = [f"GPU-aaaaaaaa-1111-2222-3333-44444444444{index}" for index in range(3)]


class Client:
    """Answers as a scheduler with these workers would."""

    def __init__(self, **workers):
        self.workers = {f"tcp://{name}:1": found for name, found in workers.items()}

    def run(self, function, *arguments, on_error, **options):
        assert on_error == "return"
        return self.workers


def worker(*uuids, host="h", declared=(), nvml="present", **more):
    gpus = [{"uuid": uuid} for uuid in uuids]
    return {"host": host, "gpus": gpus, "declared": list(declared), "nvml": nvml, **hosts._ours(), **more}


def offered(**workers):
    return hosts.offers(Client(**workers))


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ({}, "a scheduler without workers"),
        ({"a": Exception("ModuleNotFoundError(\"No module named 'heshare'\")")}, "no heshare on the worker tcp://a:1"),
        ({"a": OSError("closed")}, r"what does not answer \(OSError: closed\) on the worker tcp://a:1"),
        ({"a": worker(version="0.0.9")}, "found version 0.0.9 on the worker tcp://a:1; expected version .*, as here"),
        ({"a": worker(), "b": worker(python="2.7")}, "found python 2.7 on the worker tcp://b:1"),
    ],
)
def test_workers_that_are_not_fit(workers, message):
    with pytest.raises(InputError, match=f"^column --hosts: .*{message}|^column --hosts: {message}"):
        offered(**workers)


@pytest.mark.parametrize(
    ("workers", "text", "message"),
    [
        ({"a": worker(nvml="no driver")}, "nvml", r"no GPU on 1 workers \(h: no driver\)"),
        ({"a": worker(UUIDS[0]), "b": worker(UUIDS[0])}, "nvml", f"{UUIDS[0]} on two workers, tcp://a:1 and tcp://b:1"),
        ({"a": worker(*UUIDS)}, "nvml:0", "'0', which no worker offers"),
        ({"a": worker(*UUIDS)}, f"nvml:{UUIDS[0]},nvml:{UUIDS[0]}", "a GPU twice"),
        ({"a": worker(*UUIDS, declared=UUIDS[:1])}, f"nvml:{UUIDS[1]}", "which no worker offers"),
    ],
)
def test_gpus_that_cannot_be_meant(workers, text, message):
    with pytest.raises(InputError, match=message):
        hosts.chosen(offered(**workers), text)


def test_gpus_are_in_the_order_of_the_hosts_names_or_as_they_were_named():
    every = offered(a=worker(UUIDS[0], host="zeta"), b=worker(UUIDS[2], UUIDS[1], host="alpha"), c=worker(host="none"))
    assert list(hosts.chosen(every, "nvml")) == [UUIDS[2], UUIDS[1], UUIDS[0]]
    named = hosts.chosen(every, f"nvml:{UUIDS[0]}, nvml:{UUIDS[1]}")
    assert [(uuid, offer.host) for uuid, offer in named.items()] == [(UUIDS[0], "zeta"), (UUIDS[1], "alpha")]


def test_two_workers_of_one_host_may_share_its_gpus_out():
    shares = {name: worker(*UUIDS, declared=[uuid]) for name, uuid in zip("ab", UUIDS, strict=False)}
    owners = hosts.chosen(offered(**shares), "nvml")
    assert {uuid: offer.host for uuid, offer in owners.items()} == {
        UUIDS[0]: "h (tcp://a:1)", UUIDS[1]: "h (tcp://b:1)",
    }  # fmt: skip


@pytest.mark.parametrize("address", ["tcp://here:8786", "dask://", "here"])
def test_an_address_that_is_none(address):
    with (
        pytest.raises(InputError, match=r"column --hosts: found .*; expected dask://HOST:PORT"),
        hosts.connected(address),
    ):
        pass


def test_a_scheduler_that_does_not_answer():
    with (
        pytest.raises(InputError, match=r"dask://127.0.0.1:1, where no scheduler answers"),
        hosts.connected("dask://127.0.0.1:1", timeout_s=0.2),
    ):
        pass
