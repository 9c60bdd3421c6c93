"""Jobs on the GPUs of several hosts: addresses, offers, and runs through a real Dask scheduler with real workers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import dask
import pytest
from support import dask_cluster, kill_drill
from support.fakenvml import compiler
from support.run_entries import journal_lines
from support.waiting import until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.executor import execute
from heshare.ops.executor.gpu_lock import GpuLock
from heshare.ops.executor.remote import host_offers
from heshare.ops.executor.remote.host_offers import VERSION
from heshare.shared.errors import DeviceError, InputError

CARDS = {
    "alpha": ("Tesla T4", 15_109, 2560),
    "beta": ("Tesla V100-PCIE-32GB", 32_510, 5120),
    "gamma": ("NVIDIA A100-SXM4-80GB", 81_251, 6912),
}
UUIDS = {name: f"GPU-aaaaaaaa-1111-2222-3333-44444444444{index}" for index, name in enumerate(CARDS)}


def entry(name, script, count=1, **more):
    fields = "".join(f", {key}: {value}" for key, value in more.items())
    command = f"command: [sh, -c, '{script}'], like: 'resnet50:8', iterations: 100"
    return f"  - {{name: {name}, {command}, count: {count}{fields}}}\n"


@pytest.fixture
def cluster(tmp_path):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    with dask_cluster.scheduler(tmp_path) as cluster:
        for name, card in CARDS.items():
            cluster.join(name, UUIDS[name], *card)
        cluster.joined(3)
        yield cluster


@pytest.mark.slow
def test_one_executor_runs_jobs_on_three_kinds_of_hosts_and_leaves_nothing_there(cluster, monkeypatch):
    done = CliRunner().invoke(app, ["doctor", "--hosts", cluster.address, "--json"])
    assert done.exit_code == 0, done.stderr
    assert [(host["host"], host["offers"]) for host in json.loads(done.stdout)] == [
        (name, [UUIDS[name]]) for name in CARDS
    ]
    monkeypatch.setattr(execute, "make", lambda name: kill_drill.Drilled())
    say = entry("say", "echo $HESHARE_JOB on $FAKENVML_UUID; grep NoNewPrivs /proc/self/status", count=9)
    bad = entry("bad", "exit 3", retries=2)
    result = cluster.run("jobs:\n" + say + bad, "first", allow_clocks=True)
    jobs = result.jobs.set_index("job")
    assert list(jobs["outcome"]) == ["completed"] * 9 + ["failed"]
    assert (jobs.loc["bad", "attempts"], jobs.loc["bad", "exit_code"]) == (3, 3)
    assert list(result.gpus["name"]) == ["T4", "V100", "A100"]
    assert list(result.gpus["host"]) == list(CARDS)
    for job, row in jobs.iloc[:9].iterrows():
        host, _, path = row["log"].partition(":")
        assert Path(path).is_relative_to(cluster.folder / host / "state" / "heshare" / "runs")
        assert Path(path).read_text() == f"{job} on {UUIDS[host]}\nNoNewPrivs:\t1\n"
    parts = [result.totals[name] for name in ("completed_j", "lost_j", "idle_j")]
    assert result.totals["energy_j"] == pytest.approx(sum(parts))
    assert cluster.clean()


@pytest.mark.slow
def test_jobs_of_a_host_whose_worker_is_killed_run_on_the_others_and_resume_goes_on_without_it(cluster):
    outputs = cluster.folder / "gamma" / "state" / "heshare" / "runs"

    def kill() -> None:
        until(lambda: list(outputs.glob("second*/outputs/*.log")), dask_cluster.LONG_S)
        cluster.kill("gamma")

    killer = threading.Thread(target=kill)
    killer.start()
    result = cluster.run("jobs:\n" + entry("a", "sleep 1", count=8) + entry("b", "exit 1", retries=1), "second")
    killer.join()
    ends = [row["end"] for row in journal_lines(cluster.folder / "second") if "end" in row]
    lost = [end for end in ends if end["outcome"] == "failed: lost"]
    assert lost
    assert all(end["gpu"] == 2 and not end["charged"] and "host gamma was lost" in end["reason"] for end in lost)
    assert sum(end["outcome"] == "completed" for end in ends) == 8
    assert sum("host gamma was lost" in note for note in result.notes) == 1
    cluster.joined(2)
    assert cluster.clean()
    journal = cluster.folder / "second" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    first_end = next(place for place, line in enumerate(lines) if b'"completed"' in line)
    journal.write_bytes(b"".join(lines[:first_end]))
    result = cluster.resume("second")
    assert result.totals["completed"] == 8
    assert any("host gamma was lost: no worker offers its GPU any more" in note for note in result.notes)
    assert cluster.clean()


@pytest.mark.slow
def test_a_gpu_of_another_run_is_refused_and_the_other_hosts_are_released(cluster, monkeypatch):
    monkeypatch.setenv("HESHARE_LOCKS", str(cluster.folder / "beta" / "locks"))
    held = GpuLock(UUIDS["beta"])
    try:
        with pytest.raises(DeviceError, match=f"^beta: GPU {UUIDS['beta']}: another run has it: process {os.getpid()}"):
            cluster.run("jobs:\n" + entry("a", "true"), "third")
    finally:
        held.close()
    assert cluster.clean()


def certificates(folder: Path) -> dict[str, str]:
    """Return Dask's settings for a new key and certificate in a folder, by their names."""
    folder.mkdir()
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365", "-subj", "/CN=heshare"]
    subprocess.run([*made, "-keyout", "key", "-out", "cert"], cwd=folder, check=True, capture_output=True)
    roles = ("client", "scheduler", "worker")
    own = {f"distributed.comm.tls.{role}.{part}": str(folder / part) for role in roles for part in ("key", "cert")}
    return {"distributed.comm.tls.ca-file": str(folder / "cert"), **own}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
def test_a_scheduler_with_tls_accepts_only_clients_with_its_certificate(tmp_path, monkeypatch):
    ours, others = certificates(tmp_path / "ours"), certificates(tmp_path / "others")
    for name, value in ours.items():
        monkeypatch.setenv("DASK_" + name.upper().replace(".", "__").replace("-", "_"), value)
    with dask_cluster.scheduler(tmp_path, "--protocol", "tls") as cluster:
        assert cluster.address.startswith("tls://")
        with dask.config.set(ours):
            cluster.joined(0)
        for settings, address in [({}, cluster.address), (others, cluster.address), (ours, tcp(cluster.address))]:
            with dask.config.set(settings), pytest.raises(InputError, match="where no scheduler responds"):
                connected(address)


def tcp(address: str) -> str:
    return address.replace("tls://", "dask://")


def connected(address: str) -> None:
    with host_offers.connect(address, timeout_s=2.0):
        pass


@pytest.mark.parametrize(
    "address",
    ["tcp://here:8786", "dask://", "here", "tls://here", "dask://127.0.0.1:1/x", "dask://10.0.0.1:8786", "dask://a:1"],
)
def test_connect_refuses_another_form_of_address_and_a_network_without_tls(address):
    with pytest.raises(InputError, match=r"argument --hosts: found .*; expected tls://HOST:PORT.*set up TLS"):
        connected(address)


@pytest.mark.slow
def test_connect_refuses_a_scheduler_that_does_not_reply():
    with pytest.raises(InputError, match=r"dask://127.0.0.1:1, where no scheduler responds"):
        connected("dask://127.0.0.1:1")


class Client:
    """A client of a scheduler with these workers, whose replies, or errors, are known."""

    def __init__(self, **workers):
        self.workers = {f"tcp://{name}:1": reply for name, reply in workers.items()}

    def scheduler_info(self, *, n_workers):
        return {"workers": self.workers}

    def submit(self, function, *arguments, workers, **options):
        return Reply(self.workers[workers[0]])


class Reply:
    def __init__(self, reply):
        self.reply = reply

    def result(self, timeout):
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def machine(*uuids, host="h", version=VERSION, nvml="present"):
    return host, version, uuids, {"nvml": nvml}


@pytest.mark.parametrize(
    ("workers", "text", "message"),
    [
        ({}, "nvml", "a scheduler without workers"),
        (
            {"a": ModuleNotFoundError("No module named 'heshare'")},
            "nvml",
            "no reply from the worker tcp://a:1 .*heshare",
        ),
        ({"a": TimeoutError()}, "nvml", "no reply from the worker tcp://a:1"),
        ({"a": machine(version="heshare 0.0.9")}, "nvml", "found heshare 0.0.9 on the worker .*; expected .*, as here"),
        ({"a": machine(nvml="no driver")}, "nvml", r"no GPU on 1 workers \(h: no driver\)"),
        ({"a": machine("GPU-1")}, "nvml:0", "'0', which no worker offers"),
        ({"a": machine("GPU-1")}, "nvml:GPU-1,nvml:GPU-1", "a GPU twice"),
    ],
)
def test_workers_and_gpus_that_cannot_be_used_are_refused(workers, text, message):
    with pytest.raises(InputError, match=f"^argument --(hosts|devices): .*{message}"):
        host_offers.select_offers(host_offers.list_offers(Client(**workers)), text)


def test_gpus_are_in_the_order_of_hosts_or_as_named():
    workers = {"a": machine("GPU-1", host="zeta"), "b": machine("GPU-3", "GPU-2", host="alpha")}
    offers = host_offers.list_offers(Client(**workers))
    assert list(host_offers.select_offers(offers, "nvml")) == ["GPU-3", "GPU-2", "GPU-1"]
    named = host_offers.select_offers(offers, "nvml:GPU-1, nvml:GPU-2")
    assert [(uuid, offer.host) for uuid, offer in named.items()] == [("GPU-1", "zeta"), ("GPU-2", "alpha")]
