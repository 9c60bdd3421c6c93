"""Offers of hosts, and the selection of their GPUs: errors that are found before anything is started."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import dask_cluster

from heshare.ops.executor.remote import host_offers
from heshare.shared.errors import InputError

UUIDS = [f"GPU-aaaaaaaa-1111-2222-3333-44444444444{index}" for index in range(3)]


class Client:
    """A client of a scheduler with these workers."""

    def __init__(self, **workers):
        self.workers = {f"tcp://{name}:1": answer for name, answer in workers.items()}

    def run(self, function, *arguments, on_error, **options):
        assert on_error == "return"
        return self.workers


def machine(*uuids, host="h", declared=(), nvml="present", **more):
    gpus = [{"uuid": uuid} for uuid in uuids]
    return {
        "host": host,
        "gpus": gpus,
        "declared": list(declared),
        "hidden": [],
        "nvml": nvml,
        **host_offers.required_versions(),
        **more,
    }


def offered(**workers):
    return host_offers.list_offers(Client(**workers))


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ({}, "a scheduler without workers"),
        ({"a": Exception("ModuleNotFoundError(\"No module named 'heshare'\")")}, "no heshare on the worker tcp://a:1"),
        ({"a": OSError("closed")}, r"what does not reply \(OSError: closed\) on the worker tcp://a:1"),
        ({"a": machine(version="0.0.9")}, "found version 0.0.9 on the worker tcp://a:1; expected version .*, as here"),
        ({"a": machine(), "b": machine(python="2.7")}, "found python 2.7 on the worker tcp://b:1"),
    ],
)
def test_list_offers_refuses_workers_that_cannot_be_used(workers, message):
    with pytest.raises(InputError, match=f"^column --hosts: .*{message}|^column --hosts: {message}"):
        offered(**workers)


@pytest.mark.parametrize(
    ("workers", "text", "message"),
    [
        ({"a": machine(nvml="no driver")}, "nvml", r"no GPU on 1 workers \(h: no driver\)"),
        (
            {"a": machine(UUIDS[0]), "b": machine(UUIDS[0])},
            "nvml",
            f"{UUIDS[0]} on two workers, tcp://a:1 and tcp://b:1",
        ),
        ({"a": machine(*UUIDS)}, "nvml:0", "'0', which no worker offers"),
        ({"a": machine(*UUIDS)}, f"nvml:{UUIDS[0]},nvml:{UUIDS[0]}", "a GPU twice"),
        ({"a": machine(*UUIDS, declared=UUIDS[:1])}, f"nvml:{UUIDS[1]}", "which no worker offers"),
    ],
)
def test_select_offers_refuses_gpus_that_are_not_offered_once(workers, text, message):
    with pytest.raises(InputError, match=message):
        host_offers.select_offers(offered(**workers), text)


def test_select_offers_keeps_the_order_of_hosts_or_of_the_names():
    offers = offered(
        a=machine(UUIDS[0], host="zeta"), b=machine(UUIDS[2], UUIDS[1], host="alpha"), c=machine(host="none")
    )
    assert list(host_offers.select_offers(offers, "nvml")) == [UUIDS[2], UUIDS[1], UUIDS[0]]
    named = host_offers.select_offers(offers, f"nvml:{UUIDS[0]}, nvml:{UUIDS[1]}")
    assert [(uuid, offer.host) for uuid, offer in named.items()] == [(UUIDS[0], "zeta"), (UUIDS[1], "alpha")]


def test_select_offers_accepts_two_workers_of_one_host_with_different_gpus():
    shares = {name: machine(*UUIDS, declared=[uuid]) for name, uuid in zip("ab", UUIDS, strict=False)}
    owners = host_offers.select_offers(offered(**shares), "nvml")
    assert {uuid: offer.host for uuid, offer in owners.items()} == {
        UUIDS[0]: "h (tcp://a:1)", UUIDS[1]: "h (tcp://b:1)",
    }  # fmt: skip


@pytest.mark.parametrize("address", ["tcp://here:8786", "dask://", "here", "tls://here", "dask://127.0.0.1:1/x"])
def test_connect_refuses_another_form_of_address(address):
    with (
        pytest.raises(InputError, match=r"column --hosts: found .*; expected tls://HOST:PORT"),
        host_offers.connect(address),
    ):
        pass


def test_connect_refuses_a_scheduler_that_does_not_reply():
    with (
        pytest.raises(InputError, match=r"dask://127.0.0.1:1, where no scheduler responds"),
        host_offers.connect("dask://127.0.0.1:1", timeout_s=0.2),
    ):
        pass


DEAD_SCHEDULER = """
import sys, time
from heshare.ops.executor.remote.host_offers import connect
with connect(sys.argv[1]) as client:
    print("connected", flush=True)
    while client.status == "running":
        client.submit(abs, -1, pure=False)
        time.sleep(0.001)
    time.sleep(0.5)
"""


def test_connect_makes_one_line_of_the_traceback_that_dask_logs_when_its_scheduler_is_killed(tmp_path):
    with dask_cluster.scheduler(tmp_path) as address:
        command = [sys.executable, "-c", DEAD_SCHEDULER, address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "connected\n"
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert errors.count("the connection to the scheduler broke") == 1
