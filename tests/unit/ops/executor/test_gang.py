"""Jobs on several GPUs: one process that sees them all, one attempt in journal and accounts."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.job_rows import by_job, job, jobs_of
from support.kill_drill import UUID
from support.run_entries import run_of, sampled, session

from heshare.ops.executor.gang import Gang, GangMember, join
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import Account, Decision, Started
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.views.dry_run import dry_run
from heshare.ops.views.run_view import RunView
from heshare.shared.errors import InputError
from heshare.shared.signals import Interrupted
from heshare.testing.toy import ToyPredictor

SHOW = "echo $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-none}"


def run_gang(doubles, *rows):
    return doubles.run(jobs_of(*rows), policy="fifo", devices="nvml")


def test_a_gang_sees_all_of_its_gpus_is_no_client_of_mps_and_has_the_energy_of_all(doubles):
    result = run_gang(doubles, job("ddp", "sh", "-c", f"{SHOW}; sleep 1", gpus=2))
    assert result.complete
    shown, pipes, share = (doubles.folder / "run" / "outputs" / "ddp.1.log").read_text().split()
    assert len(set(shown.split(","))) == 2
    assert UUID in shown
    assert (pipes, share) == ("/dev/null", "none")
    row, gpus = by_job(result)["ddp"], result.gpus
    assert (row["gpu"], row["attempts"]) == ("0+1", 1)
    assert (gpus["completed_j"] > 0.0).all()
    assert row["energy_j"] == pytest.approx(gpus["completed_j"].sum())
    assert row["energy_model_j"] == pytest.approx(row["energy_j"])
    shown = run_journal.read_state(doubles.folder / "run").shown_jobs(time.time())
    assert {key for key, _ in shown} == {"ddp"}
    assert sum(energy.energy_j["equal"] for energy in shown.values()) == pytest.approx(row["energy_j"])


def test_a_gang_fails_once_and_is_tried_again(doubles):
    flaky = '[ "$HESHARE_ATTEMPT" = 2 ] || { echo dying; exit 3; }'
    slow = job("slow", "sleep", "60", gpus=2, timeout_s=0.4)
    jobs = by_job(run_gang(doubles, job("flaky", "sh", "-c", flaky, gpus=2, retries=1), slow))
    assert (jobs["flaky"]["outcome"], jobs["flaky"]["attempts"]) == ("completed", 2)
    assert "longer than its 0.4 s" in jobs["slow"]["reason"]
    assert jobs["slow"]["attempts"] == 1
    assert doubles.traces() == []


@pytest.mark.slow
def test_a_gang_survives_the_end_of_an_mps_daemon(doubles):
    def kill_daemons():
        for pid in doubles.folder.glob("tmp/hs-mps-*/pipe/*.pid"):
            os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = doubles.once_started(kill_daemons)
    result = run_gang(doubles, job("ddp", "sleep", "1.5", gpus=2))
    killer.join()
    assert by_job(result)["ddp"]["attempts"] == 1
    assert any("MPS server" in note for note in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_gang_that_loses_a_gpu_fails_free_of_charge(doubles, lost):
    doubles.fake.set("count", 3)
    lose = doubles.once_started(lambda: doubles.fake.set(f"lost{lost}", 1))
    result = run_gang(doubles, job("ddp", "sleep", "2", gpus=2))
    lose.join()
    assert result.complete, result.report()
    assert by_job(result)["ddp"]["attempts"] == 2
    assert str(lost) not in by_job(result)["ddp"]["gpu"]


@pytest.mark.slow
def test_a_gang_is_ended_by_a_signal_and_resumed(doubles):
    ended = doubles.once_started(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        run_gang(doubles, job("ddp", "sleep", "2.5", gpus=2))
    ended.join()
    assert doubles.traces() == []
    result = doubles.resume()
    assert result.complete
    assert by_job(result)["ddp"]["attempts"] == 2
    assert (result.gpus["lost_j"] > 0.0).all()


def test_status_shows_a_gang_on_its_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr("heshare.ops.views.run_view.is_alive", lambda folder: True)
    journal = run_journal.RunJournal(tmp_path, run_of(1))
    journal.append(session(gpus=2))
    journal.append(Decision(0.0, (Started("a", 0, 100, also=(1,)),)))
    journal.append(sampled(1.0, *[Account(10.0, shares_j={"a": 10.0})] * 2))
    journal.close()
    view = RunView(tmp_path)
    assert [row[1] for row in view.job_rows(1002.0)] == ["0+1"]
    assert [row[7] for row in view.gpu_rows()] == ["1", "1"]
    assert view.as_dict(1002.0)["running"][0]["gpu"].count("GPU-") == 2


def test_gangs_are_refused_where_they_cannot_run(doubles):
    jobs = jobs_of(job("ddp", "sleep", "1", gpus=2))
    with pytest.raises(InputError, match="which runs on 2 GPUs, under heshare:trade-off"):
        doubles.run(jobs, policy="heshare:trade-off", devices="nvml")
    with pytest.raises(InputError, match="for 2 GPUs, where 1 can hold it"):
        doubles.run(jobs, policy="fifo", into="other")
    with pytest.raises(InputError, match="`gpus` beside a workload"):
        read_jobs(doubles.write("jobs:\n  - {name: a, workload: resnet50:8, iterations: 5, gpus: 2}\n"))
    with pytest.raises(InputError, match=r"gpus.*0"):
        read_jobs(doubles.write(jobs_of(job("ddp", "sleep", "1", gpus=0))))


def test_a_dry_run_names_all_gpus_of_a_gang(doubles):
    file = doubles.write(jobs_of(job("ddp", "sleep", "1", gpus=2)))
    given = {"policy": "fifo", "devices": "nvml", "predictor": ToyPredictor(), "seed": 0, "allow_clocks": False}
    assert dry_run(file, doubles.folder / "run", **given).jobs["gpu"][0].count("GPU-") == 2


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
