"""Jobs on the GPUs of several hosts, through a real Dask scheduler and workers, over stand-ins for NVML and MPS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import dask_cluster, kill_drill
from support.fakenvml import compiler
from support.run_entries import journal_lines
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.executor import execute
from heshare.ops.executor.gpu_lock import GpuLock
from heshare.ops.executor.remote import host_offers
from heshare.shared.errors import DeviceError, InputError

RUN = CliRunner()
ALPHA = [f"GPU-aaaaaaaa-1111-2222-3333-44444444444{index}" for index in range(2)]
BETA = "GPU-bbbbbbbb-1111-2222-3333-444444444440"
GAMMA = "GPU-cccccccc-1111-2222-3333-444444444440"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    from distributed import LocalCluster

    folder = tmp_path_factory.mktemp("h")
    with LocalCluster(n_workers=0, dashboard_address=":0") as dask:
        cluster = dask_cluster.Cluster("dask://" + dask.scheduler_address.removeprefix("tcp://"), folder)
        cluster.join("alpha", uuid=ALPHA[0], cards=2)
        cluster.join("beta", uuid=BETA)
        cluster.joined(2)
        yield cluster
        cluster.end()


@pytest.fixture(autouse=True)
def only_two(cluster):
    """Leave alpha and beta alone to the next test, whatever happens in this one."""
    yield
    for name in set(cluster.hosts) - {"alpha", "beta"}:
        cluster.hosts[name].process.kill()
        cluster.hosts.pop(name).process.wait()
        cluster.joined(2)


def call_when(ready, do, *arguments):
    """Call `do` as soon as `ready` returns something."""
    until = time.monotonic() + 30
    while not list(ready()) and time.monotonic() < until:
        time.sleep(0.01)
    do(*arguments)


def entry(name, script, count=1, **more):
    fields = "".join(f", {key}: {value}" for key, value in more.items())
    command = f"command: [sh, -c, '{script}'], like: 'resnet50:8', iterations: 100"
    return f"  - {{name: {name}, {command}, count: {count}{fields}}}\n"


def test_execute_runs_jobs_on_hosts_and_leaves_nothing_there(cluster, monkeypatch):
    monkeypatch.setattr(execute, "make", lambda name: kill_drill.Drilled())
    text = entry(
        "say",
        "echo $HESHARE_JOB on $FAKENVML_UUID; grep -e ^CapPrm -e NoNewPrivs /proc/self/status; sleep 0.1",
        count=9,
    )
    bad = entry("bad", "exit 3", retries=2)
    result = cluster.run("jobs:\n" + text + bad, "first", clocks=True)
    jobs = result.jobs.set_index("job")
    assert list(jobs["outcome"]) == ["completed"] * 9 + ["failed"]
    assert (jobs.loc["bad", "attempts"], jobs.loc["bad", "exit_code"]) == (3, 3)
    assert list(result.gpus["uuid"]) == [*ALPHA, BETA]
    assert list(result.gpus["host"]) == ["alpha", "alpha", "beta"]
    no_privileges = f"CapPrm:\t{0:016x}\nNoNewPrivs:\t1\n"
    for job, row in jobs.iloc[:9].iterrows():
        host, _, path = row["log"].partition(":")
        assert Path(path).is_relative_to(cluster.hosts[host].folder / "state" / "heshare" / "runs")
        modes = [each.stat().st_mode & 0o777 for each in (Path(path), Path(path).parent, Path(path).parents[1])]
        assert modes == [0o600, 0o700, 0o700]
        assert Path(path).read_text() == f"{job} on {(ALPHA[0] if host == 'alpha' else BETA)}\n" + no_privileges
    locked = [host.fake.called("nvmlDeviceSetGpuLockedClocks") for host in cluster.hosts.values()]
    assert min(locked) > 0
    assert min(result.gpus["sm_mhz"]) < 1980
    for host in ("alpha", "beta"):
        assert set(jobs[jobs["log"].str.startswith(host)].index), host
    assert result.totals["energy_j"] == pytest.approx(
        sum(result.totals[name] for name in ("completed_j", "lost_j", "idle_j"))
    )
    both = jobs[["energy_j", "lost_j", "energy_model_j", "lost_model_j"]].sum()
    assert both["energy_model_j"] + both["lost_model_j"] == pytest.approx(both["energy_j"] + both["lost_j"], rel=1e-9)
    assert cluster.traces() == {}


def test_execute_refuses_a_gpu_of_another_run_and_releases_the_others(cluster, monkeypatch):
    monkeypatch.setenv("HESHARE_LOCKS", str(cluster.hosts["beta"].folder / "locks"))
    held = GpuLock(BETA)
    try:
        with pytest.raises(DeviceError, match=rf"^beta: GPU {BETA}: another run has it: process {os.getpid()}: "):
            cluster.run("jobs:\n" + entry("a", "true"), "second")
    finally:
        held.close()
    assert cluster.traces() == {}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_host_pool_loses_a_host_whose_worker_is_killed_or_hangs(cluster, how):
    gamma = cluster.join("gamma", uuid=GAMMA)
    cluster.joined(3)
    outputs = gamma.folder / "state" / "heshare" / "runs"
    result = cluster.run(
        "jobs:\n" + entry("a", "sleep 0.8", count=8),
        f"third-{how.name}",
        meanwhile=lambda: call_when(
            lambda: outputs.glob(f"third-{how.name}*/outputs/*.log"), gamma.process.send_signal, how
        ),
    )
    assert result.complete
    ends = [row["end"] for row in journal_lines(cluster.folder / f"third-{how.name}") if "end" in row]
    lost = [end for end in ends if end["outcome"] == "failed: lost"]
    assert lost
    assert all(end["gpu"] == 3 and not end["charged"] and "host gamma was lost" in end["reason"] for end in lost)
    completed = [end["job"] for end in ends if end["outcome"] == "completed"]
    assert sorted(completed) == [f"a-{index}" for index in range(8)]
    assert sum("host gamma was lost" in note for note in result.notes) == 1
    if how == signal.SIGSTOP:
        # When it continues, Dask drops its actor, and the host process gives everything back.
        gamma.process.send_signal(signal.SIGCONT)
        assert cluster.traces() == {}
        gamma.process.kill()
    gamma.process.wait()
    assert cluster.traces() == {}
    del cluster.hosts["gamma"]
    cluster.joined(2)


@pytest.mark.slow
def test_resume_continues_a_killed_executor_on_the_remaining_hosts(cluster):
    gamma = cluster.join("gamma", uuid=GAMMA)
    cluster.joined(3)
    (cluster.folder / "fourth.yaml").write_text("jobs:\n" + entry("a", "sleep 0.7", count=5) + entry("b", "sleep 0.1"))
    words = ["--devices", f"nvml:{GAMMA},nvml:{ALPHA[1]}", "--hosts", cluster.address, "--policy", "random"]
    first = start_command(cluster, "jobs", "run", "fourth.yaml", *words, "--out", "fourth")
    journal = cluster.folder / "fourth" / "journal.jsonl"
    call_when(lambda: [1] if journal.exists() and b'"completed"' in journal.read_bytes() else [], first.kill)
    first.communicate()
    assert cluster.traces() == {}
    gamma.process.kill()
    gamma.process.wait()
    del cluster.hosts["gamma"]
    cluster.joined(2)
    result = cluster.resume("fourth")
    assert result.complete
    assert result.totals["sessions"] == 2
    assert result.totals["attempts"] > 6
    assert list(result.gpus["host"]) == ["gamma", "alpha"]
    assert any("host gamma was lost: no worker offers its GPU any more" in note for note in result.notes)
    assert cluster.traces() == {}


def test_doctor_describes_every_host(cluster):
    done = RUN.invoke(app, ["doctor", "--hosts", cluster.address, "--json"])
    assert done.exit_code == 0, done.stderr
    hosts = json.loads(done.stdout)
    assert [(host["host"], host["offers"]) for host in hosts] == [("alpha", ALPHA), ("beta", [BETA])]
    assert all(gpu["catalogue"] == "H100" for host in hosts for gpu in host["gpus"])


def start_command(cluster, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "heshare", *words],
        cwd=cluster.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_list_offers_names_a_worker_that_hangs(cluster, monkeypatch):
    monkeypatch.setattr(host_offers, "REPLY_S", 1.0)
    cluster.hosts["beta"].process.send_signal(signal.SIGSTOP)
    try:
        with host_offers.connect(cluster.address) as client, pytest.raises(InputError, match="no reply within 1 s"):
            host_offers.list_offers(client)
    finally:
        cluster.hosts["beta"].process.send_signal(signal.SIGCONT)
