"""Jobs on several GPUs: one process that sees them all, nothing beside it, one attempt in journal and accounts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from support.kill_drill import UUID

from heshare.ops.executor.gang import Gang, GangMember, join
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.views.dry_run import dry_run
from heshare.ops.views.run_view import RunView
from heshare.shared.errors import InputError
from heshare.shared.signals import Interrupted
from heshare.testing.toy import ToyPredictor


def entry(name, *command, **more):
    lines = [f"  - name: {name}", f"    command: [{', '.join(map(repr, command))}]", "    like: resnet50:8"]
    lines += ["    iterations: 100", *[f"    {key}: {value}" for key, value in more.items()]]
    return "\n".join(lines) + "\n"


def by_job(result):
    return result.jobs.set_index("job").to_dict("index")


SHOW = "echo $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-none}"


def test_a_gang_sees_all_of_its_gpus_and_is_no_client_of_mps(doubles):
    result = doubles.run(
        "jobs:\n" + entry("ddp", "sh", "-c", f"{SHOW}; sleep 0.5", gpus=2) + entry("one", "sleep", "0.3", count=3),
        policy="fifo", devices="nvml",
    )  # fmt: skip
    jobs = by_job(result)
    assert {job["outcome"] for job in jobs.values()} == {"completed"}
    shown, pipes, share = (doubles.folder / "run" / "outputs" / "ddp.1.log").read_text().split()
    assert len(set(shown.split(","))) == 2
    assert UUID in shown
    assert (pipes, share) == ("/dev/null", "none")
    assert jobs["ddp"]["gpu"] == "0+1"
    assert jobs["ddp"]["attempts"] == 1
    assert doubles.traces() == []


def test_the_energy_of_a_gang_is_the_sum_over_its_gpus(doubles):
    result = doubles.run("jobs:\n" + entry("ddp", "sleep", "1", gpus=2), policy="fifo", devices="nvml")
    job, gpus = by_job(result)["ddp"], result.gpus
    assert (gpus["completed_j"] > 0.0).all()
    assert job["energy_j"] == pytest.approx(gpus["completed_j"].sum())
    assert job["energy_model_j"] == pytest.approx(job["energy_j"])
    state = run_journal.read_state(doubles.folder / "run")
    assert sum(gpu.lost_j for gpu in state.gpus) == 0.0
    (shown,) = {key for key, _ in state.shown_jobs(time.time())}
    assert shown == "ddp"
    assert sum(energy.energy_j["equal"] for energy in state.shown_jobs(time.time()).values()) == pytest.approx(
        job["energy_j"]
    )


@pytest.mark.parametrize("policy", ["fifo", "power-flow"])
def test_nothing_runs_beside_a_gang(doubles, policy):
    result = doubles.run(
        "jobs:\n" + entry("one", "sleep", "0.4", count=3) + entry("ddp", "sleep", "0.4", gpus=2, count=2)
        + entry("more", "sleep", "0.3", count=2),
        policy=policy, devices="nvml",
    )  # fmt: skip
    assert result.complete, result.report()
    ends = [end for session in run_journal.read_state(doubles.folder / "run").sessions for end in session.ends]
    gangs = [end for end in ends if end.job.startswith("ddp")]
    assert {len(end.parts) for end in gangs} == {2}
    for gang in gangs:
        for other in ends:
            apart = other.end_s <= gang.start_s or gang.end_s <= other.start_s
            assert other is gang or apart, (gang.job, other.job)


def test_a_gang_fails_once_and_is_tried_again(doubles):
    flaky = '[ "$HESHARE_ATTEMPT" = 2 ] || { echo dying; exit 3; }'
    result = doubles.run(
        "jobs:\n"
        + entry("flaky", "sh", "-c", flaky, gpus=2, retries=1)
        + entry("slow", "sleep", "60", gpus=2, timeout_s=0.4)
        + entry("missing", "sh", "-c", "exit 1", gpus=2),
        policy="fifo", devices="nvml",
    )  # fmt: skip
    jobs = by_job(result)
    assert (jobs["flaky"]["outcome"], jobs["flaky"]["attempts"]) == ("completed", 2)
    assert jobs["flaky"]["lost_j"] >= 0.0
    assert "longer than its 0.4 s" in jobs["slow"]["reason"]
    assert jobs["slow"]["attempts"] == jobs["missing"]["attempts"] == 1
    assert doubles.traces() == []


def test_a_gang_survives_the_end_of_an_mps_daemon(doubles):
    def kill_daemons():
        for pid in doubles.folder.glob("tmp/hs-mps-*/pipe/*.pid"):
            os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = doubles.once_started(kill_daemons)
    result = doubles.run("jobs:\n" + entry("ddp", "sleep", "1.5", gpus=2), policy="fifo", devices="nvml")
    killer.join()
    assert result.complete
    assert by_job(result)["ddp"]["attempts"] == 1
    assert any("MPS server" in note for note in result.notes)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_gang_that_loses_a_gpu_fails_free_of_charge(doubles, lost):
    doubles.fake.set("count", 3)
    lose = doubles.once_started(lambda: doubles.fake.set(f"lost{lost}", 1))
    result = doubles.run("jobs:\n" + entry("ddp", "sleep", "2", gpus=2), policy="fifo", devices="nvml")
    lose.join()
    assert result.complete, result.report()
    job = by_job(result)["ddp"]
    assert job["attempts"] == 2
    assert str(lost) not in job["gpu"]


def test_a_gang_is_ended_by_a_signal_and_resumed(doubles):
    ended = doubles.once_started(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        doubles.run("jobs:\n" + entry("ddp", "sleep", "2.5", gpus=2), policy="fifo", devices="nvml")
    ended.join()
    assert doubles.traces() == []
    result = doubles.resume()
    assert result.complete
    assert by_job(result)["ddp"]["attempts"] == 2
    assert (result.gpus["lost_j"] > 0.0).all()


@pytest.mark.slow
def test_a_gang_whose_executor_is_killed_leaves_nothing_and_is_resumed(doubles):
    file = doubles.write("jobs:\n" + entry("ddp", "sleep", "4", gpus=2))
    words = [sys.executable, "-m", "heshare", "jobs", "run", file.name, "--policy", "fifo", "--out", "run"]
    run = subprocess.Popen(words, cwd=doubles.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    doubles.once_started(run.kill).join()
    run.wait(30)
    until = time.monotonic() + 10.0
    while doubles.traces() and time.monotonic() < until:
        time.sleep(0.1)
    assert doubles.traces() == []
    doubles.resume()
    result = run_journal.read_state(doubles.folder / "run")
    (end,) = [end for session in result.sessions for end in session.ends]
    assert (end.outcome, end.attempt, len(end.parts)) == ("completed", 2, 2)


def test_status_shows_a_gang_on_its_gpus(doubles):
    views = []
    look = doubles.once_started(lambda: views.append(RunView(doubles.folder / "run")))
    doubles.run("jobs:\n" + entry("ddp", "sleep", "2", gpus=2), policy="fifo", devices="nvml")
    look.join()
    (view,) = views
    assert [row[1] for row in view.job_rows(time.time())] == ["0+1"]
    assert [row[7] for row in view.gpu_rows()] == ["1", "1"]
    assert view.as_dict(time.time())["running"][0]["gpu"].count("GPU-") == 2


def test_gangs_are_refused_where_they_cannot_run(doubles):
    jobs = "jobs:\n" + entry("ddp", "sleep", "1", gpus=2)
    with pytest.raises(InputError, match="which runs on 2 GPUs, under heshare:trade-off"):
        doubles.run(jobs, policy="heshare:trade-off", devices="nvml")
    with pytest.raises(InputError, match="for 2 GPUs, where 1 can hold it"):
        doubles.run(jobs, policy="fifo", into="other")
    serve = "jobs:\n  - {name: a, workload: resnet50:8, iterations: 5, gpus: 2}\n"
    with pytest.raises(InputError, match="`gpus` beside a workload"):
        read_jobs(doubles.write(serve))
    with pytest.raises(InputError, match=r"gpus.*0"):
        read_jobs(doubles.write(jobs.replace("gpus: 2", "gpus: 0")))
    assert doubles.traces() == []


def test_a_dry_run_names_all_gpus_of_a_gang(doubles):
    file = doubles.write("jobs:\n" + entry("ddp", "sleep", "1", gpus=2))
    found = dry_run(
        file, doubles.folder / "run", policy="fifo", devices="nvml", predictor=ToyPredictor(), seed=0,
        allow_clocks=False,
    )  # fmt: skip
    assert found.jobs["gpu"][0].count("GPU-") == 2


def test_one_gpu_starts_the_process_and_one_reports_its_end():
    gangs: dict[int, Gang] = {}
    assert join(gangs, 0, 1, "a") is None
    gang = join(gangs, 7, 2, "a")
    assert gang is not None
    assert not gang.may_start("a")
    assert join(gangs, 7, 2, "b") is gang
    assert not gang.may_start("b")
    assert gang.may_start("a")
    assert (gang.claim("b"), gang.claim("a"), gang.claim("b")) == (True, False, True)
    del gangs[7]
    assert join(gangs, 7, 2, "b") is not gang  # the next attempt


def test_a_member_ends_nothing():
    class First:
        pid = 5

    member = GangMember(First())
    member.go()
    member.poll()
    assert (member.stop(), member.finished, member.failure, member.pid) == (0.0, False, None, 5)
