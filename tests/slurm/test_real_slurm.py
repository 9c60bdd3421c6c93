"""End to end with Debian's Slurm and stand-in GPUs: held jobs are planned, released, and run as the plan says."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support import fake_mps
from support.slurm_cluster import NODE, SETTINGS, NoSlurmError, SlurmCluster
from typer.testing import CliRunner

from heshare.cli import app
from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.ops.slurm import slurm_queue
from heshare.ops.slurm.release_plan import PlanSettings, ReleaseWatch
from heshare.ops.slurm.slurm_queue import call

pytestmark = pytest.mark.slow
SHOW_NODE = ["scontrol", "show", "node", "--oneliner"]
WORKS = (
    "resnet50:1 iterations=20000",
    "bert_large:4 iterations=5000",
    "transformer:2 iterations=5000",
    "transformer:2 iterations=20000",
    "vgg19:8 iterations=10000",
    "resnet18:1 iterations=10000",
    "resnet101:8 iterations=10000",
)
"""Jobs for which Trade-off shares both GPUs, with shares of 20 and 100 %, and plans a second batch on each."""
_SCRIPT = """#!/bin/sh
exec >/tmp/job-$SLURM_JOB_ID
date +%s.%N
echo "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
echo "$CUDA_VISIBLE_DEVICES"
echo "$CUDA_MPS_PIPE_DIRECTORY"
sleep {sleep_s:g}
date +%s.%N
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(SlurmCluster(tmp_path_factory.mktemp("slurm"), ("T4a", "V100a")))
        except NoSlurmError as error:
            pytest.skip(f"no Slurm on this machine: {error}")
        yield opened


@pytest.fixture
def types(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of types; Slurm's programs are those of the place."""
    monkeypatch.setenv("PATH", str(slurm.programs), prepend=":")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "types.yaml"
    file.write_text("T4a: T4\nV100a: V100\n")
    slurm.run("sh", "-c", "rm -f /tmp/nvidia-smi.log")
    return file


def submit(comment: str, *options: str, sleep_s: float = 0.5) -> int:
    command = [
        "sbatch",
        "--uid=games",
        "--hold",
        "--parsable",
        "--ntasks=1",
        "--output=/dev/null",
        f"--comment={comment}",
        *options,
    ]
    return int(
        subprocess.run(
            command, input=_SCRIPT.format(sleep_s=sleep_s), text=True, capture_output=True, check=True
        ).stdout
    )


def heshare(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["slurm", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def wait_until_over(slurm: SlurmCluster, jobs: list[int], seconds: float = 120.0) -> None:
    """Wait until jobs have ended, their epilogs included."""
    until = time.monotonic() + seconds
    while {job.id for job in slurm_queue.read_queue()} & set(jobs) or "State=IDLE " not in call(SHOW_NODE):
        assert time.monotonic() < until, f"{call(['squeue'])}\n{slurm.log()}"
        time.sleep(0.3)


def ran(slurm: SlurmCluster, job: int) -> dict[str, Any]:
    """What a job wrote: its times and its own environment."""
    start_s, share, gpu, pipe, end_s = (slurm.root / f"tmp/job-{job}").read_text().splitlines()
    return {"start_s": float(start_s), "end_s": float(end_s), "mps_pct": int(share), "gpu": gpu, "pipe": pipe}


def check_runs(slurm: SlurmCluster, rows: list[dict[str, Any]]) -> None:
    """Check that each job had its share and GPU, in the order of the plan, and batches ran together."""
    index = {f"{NODE}/T4a": 0, f"{NODE}/V100a": 1}
    found = {row["job"]: ran(slurm, row["job"]) for row in rows}
    for row in rows:
        own, gpu = found[row["job"]], index[row["gpu"]]
        assert (own["mps_pct"], own["gpu"]) == (row["mps_pct"], f"GPU-stand-in-{gpu}")
        assert own["pipe"] == f"/run/heshare-slurm/gpu-{gpu}/pipe"
        assert all(found[int(before)]["end_s"] <= own["start_s"] for before in row["after"].split())
    for gpu in index:
        there = [row for row in rows if row["gpu"] == gpu]
        for row in there:
            for other in there:
                if (row["start_s"], row["after"]) == (other["start_s"], other["after"]):
                    assert found[row["job"]]["start_s"] < found[other["job"]]["end_s"]
        planned, measured = (
            [row["job"] for row in sorted(there, key=key)]
            for key in (
                lambda row: (row["start_s"], found[row["job"]]["start_s"]),
                lambda row: found[row["job"]]["start_s"],
            )
        )
        assert measured == planned


def clock_calls(slurm: SlurmCluster) -> list[str]:
    return [line for line in (slurm.root / "tmp/nvidia-smi.log").read_text().splitlines() if "query" not in line]


def test_jobs_planned_by_heshare_run_together_with_their_shares_and_clocks(slurm: SlurmCluster, types: Path) -> None:
    # Jobs of a batch start within a second or two of each other, in two rounds of the scheduler.
    jobs = [submit(f"heshare like={work}", sleep_s=3) for work in WORKS]
    others = [
        submit("mine"),
        submit("heshare like=resnet50:8"),
        submit("heshare like=resnet50:8 iterations=1", "-a1-2"),
    ]
    plan = json.loads(heshare("plan", "--types", types, "--json"))
    assert sorted(row["job"] for row in plan["rows"]) == jobs
    assert {row["mps_pct"] for row in plan["rows"]} == {70, 80, 90, 100}
    assert sum(bool(row["after"]) for row in plan["rows"]) == 3
    assert {row["gpu"] for row in plan["rows"]} == {f"{NODE}/T4a", f"{NODE}/V100a"}
    assert [job for job in others if any(f"Job {job} is left alone" in note for note in plan["notes"])] == others[1:]
    assert all(job.held for job in slurm_queue.read_queue())

    heshare("apply", "--types", types, "--yes", "-q")
    wait_until_over(slurm, jobs)
    check_runs(slurm, plan["rows"])
    wanted = {
        f"-i GPU-stand-in-{row['gpu'] == f'{NODE}/V100a':d} -lgc {row['sm_mhz']},{row['sm_mhz']}"
        for row in plan["rows"]
    }
    calls = clock_calls(slurm)
    assert {line for line in calls if "-lgc" in line} == wanted
    for gpu in ("GPU-stand-in-0", "GPU-stand-in-1"):
        assert [line for line in calls if gpu in line][-1] == f"-i {gpu} -rgc"
    assert sorted(path.name for path in (slurm.root / "run/heshare-slurm").iterdir()) == ["gpu-0.lock", "gpu-1.lock"]
    assert "nvidia-cuda-mps" not in slurm.run("sh", "-c", "cat /proc/[0-9]*/comm")
    assert sorted({job.id for job in slurm_queue.read_queue() if job.held}) == others
    for job in others:
        call(["scontrol", "update", f"JobId={job}", "Comment="])


def test_jobs_planned_by_srtf_run_alone_shortest_first(slurm: SlurmCluster, types: Path) -> None:
    jobs = [submit(f"heshare like={work}") for work in WORKS[2:]]
    plan = json.loads(heshare("plan", "--types", types, "--policy", "srtf", "--json"))
    heshare("apply", "--types", types, "--policy", "srtf", "--yes", "-q")
    wait_until_over(slurm, jobs)
    assert {row["mps_pct"] for row in plan["rows"]} == {100}
    check_runs(slurm, plan["rows"])
    assert clock_calls(slurm) == []


def test_a_release_that_was_cut_off_is_continued(slurm: SlurmCluster, types: Path) -> None:
    jobs = [submit(f"heshare like={work}") for work in WORKS[:3]]
    plan = json.loads(heshare("plan", "--types", types, "--policy", "sjf:fastest", "--json"))
    first = plan["rows"][0]
    call(shlex.split(plan["commands"][0]))
    again = json.loads(heshare("plan", "--types", types, "--policy", "sjf:fastest", "--json"))
    assert sorted(row["job"] for row in again["rows"]) == sorted(set(jobs) - {first["job"]})
    assert any(f"Jobs {first['job']} have a place" in note for note in again["notes"])
    same = [row for row in again["rows"] if row["gpu"] == first["gpu"]]
    assert not same or str(first["job"]) in same[0]["after"].split()
    heshare("apply", "--types", types, "--policy", "sjf:fastest", "--yes", "-q")
    wait_until_over(slurm, jobs)
    check_runs(slurm, [first, *again["rows"]])
    assert "No held job" in heshare("apply", "--types", types, "--yes", "-q")


def test_watch_releases_jobs_as_a_gpu_becomes_free(slurm: SlurmCluster, types: Path) -> None:
    told: list[str] = []
    # The second card has no type that the catalogue knows, so that the order is that of one queue.
    settings = PlanSettings("sjf", load_predictor(), {"T4a": "T4"})
    watch = ReleaseWatch(settings, told.append, carry_out=True)
    jobs = [
        submit(f"heshare like=resnet50:8 iterations={iterations}", sleep_s=sleep_s)
        for iterations, sleep_s in ((100, 4), (300, 0.5), (200, 0.5))
    ]
    assert watch.round() == 1
    assert watch.round() == 0
    jobs.append(submit("heshare like=resnet50:8 iterations=10"))
    until = time.monotonic() + 120
    while sum(line.startswith("scontrol release") for line in told) < len(jobs):
        assert time.monotonic() < until, told
        watch.round()
        time.sleep(0.3)
    wait_until_over(slurm, jobs)
    assert sorted(jobs, key=lambda job: ran(slurm, job)["start_s"]) == [jobs[0], jobs[3], jobs[2], jobs[1]]
    assert "GPU type V100a of node node1 is left out" in told[0]


def script(slurm: SlurmCluster, name: str, job: int, **variables: object) -> tuple[int, str]:
    """The exit code of a prolog or epilog as slurmd calls it, with no other variables, and what it says."""
    words = [f"{key}={value}" for key, value in {"SLURM_JOB_ID": job, "SLURM_JOB_GPUS": 1, **variables}.items()]
    command = f"env -i {shlex.join(words)} /etc/slurm/{name}.sh 2>&1; echo $?"
    *lines, code = slurm.run("sh", "-c", command).splitlines()
    return int(code), "\n".join(lines)


def test_prolog_and_epilog_bound_clocks_and_tell_failures(slurm: SlurmCluster, types: Path) -> None:
    settings = slurm.root / "etc/heshare/slurm.sh"
    settings.write_text("LEAST_MHZ=300\nMOST_MHZ=1500\nSITE_MHZ=900\n")
    comment = "heshare like=a:1 iterations=1 gpu=n/b mps_pct=40 sm_mhz="
    assert script(slurm, "prolog", 1, SLURM_JOB_COMMENT="of others *") == (0, "")
    assert script(slurm, "epilog", 1) == (0, "")
    assert not (slurm.root / "tmp/nvidia-smi.log").exists(), "jobs of others are left alone"

    code, said = script(slurm, "prolog", 901, SLURM_JOB_COMMENT=f"{comment}2000")
    assert (code, "2000 MHz is not in 300 to 1500 MHz" in said) == (0, True)
    assert script(slurm, "prolog", 902, SLURM_JOB_COMMENT=f"{comment}1200") == (0, "")
    assert script(slurm, "prolog", 903, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25) == (0, "")
    notes = {job: (slurm.root / f"run/heshare-slurm/job-{job}.env").read_text() for job in (902, 903)}
    assert [text.splitlines()[-1] for text in notes.values()] == [
        f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={share}" for share in (40, 25)
    ]
    daemon = (slurm.root / "run/heshare-slurm/gpu-1/pipe/nvidia-cuda-mps-control.pid").read_text().strip()
    for job in (901, 902):
        assert script(slurm, "epilog", job) == (0, "")
    assert (slurm.root / f"proc/{daemon}").exists(), "one job is left"
    assert script(slurm, "epilog", 903) == (0, "")
    assert not (slurm.root / f"proc/{daemon}").exists()
    assert clock_calls(slurm) == ["-i GPU-stand-in-1 -lgc 1200,1200", "-i GPU-stand-in-1 -lgc 900,900"]

    fake_mps.install(slurm.root / "usr/local/bin", "refuses")
    code, said = script(slurm, "prolog", 904, SLURM_JOB_COMMENT=f"{comment}1200")
    assert (code, "MPS did not start on GPU 1" in said) == (0, True), "a comment drains no node"
    assert not (slurm.root / "run/heshare-slurm/job-904.env").exists()
    code, said = script(slurm, "prolog", 914, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25)
    assert (code, "MPS did not start on GPU 1" in said) == (1, True)
    assert script(slurm, "epilog", 914) == (0, "")
    assert script(slurm, "epilog", 904) == (0, "")
    code, said = script(slurm, "prolog", 905, SLURM_JOB_COMMENT=comment, SLURM_JOB_GPUS="0,1")
    assert (code, "found GPUs '0,1'" in said) == (0, True)
    fake_mps.install(slurm.root / "usr/local/bin")
    refusing = slurm.root / "usr/local/bin/nvidia-smi"
    kept = refusing.read_text()
    assert script(slurm, "prolog", 906, SLURM_JOB_COMMENT=f"{comment}1200") == (0, "")
    refusing.write_text(f'{kept}case "$*" in *gc*) exit 3 ;; esac\n')
    code, said = script(slurm, "epilog", 906)
    assert (code, "clock could not be given back" in said) == (1, True)
    refusing.write_text(kept)
    assert script(slurm, "prolog", 907, SLURM_JOB_COMMENT=comment) == (0, "")
    assert script(slurm, "epilog", 907) == (0, "")
    assert clock_calls(slurm)[-1] == "-i GPU-stand-in-1 -rgc"
    settings.write_text("")
    code, said = script(slurm, "prolog", 908, SLURM_JOB_COMMENT=f"{comment}1200")
    assert (code, "1200 MHz is not in (unset)" in said) == (0, True), "without bounds no comment sets a clock"
    assert script(slurm, "epilog", 908) == (0, "")
    settings.write_text(SETTINGS)
    assert not list((slurm.root / "run/heshare-slurm").glob("job-*"))
