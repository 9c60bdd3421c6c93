"""The executor over stand-ins for NVML and MPS, with real processes: jobs, energy, what is refused and kept."""

from __future__ import annotations

import errno
import os
import signal
import sys

import pytest
from support.job_rows import by_job, job, jobs_of
from support.kill_drill import UUID
from support.run_entries import journal_lines
from support.waiting import until

from heshare.ops.cleanup import restore
from heshare.ops.executor import executor_device
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.gpu_lock import GpuInUseError, GpuLock
from heshare.ops.mps import MpsSession
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.shared.errors import DeviceError, InputError

TRUE = jobs_of(job("a", "true"))


def ends_of(doubles, into="run"):
    return [row["end"] for row in journal_lines(doubles.folder / into) if "end" in row]


def accounts_of(doubles):
    """The accounts of the first GPU in the journal, each with the energy of the attempts that had ended, J."""
    ended_j, found = 0.0, []
    for row in journal_lines(doubles.folder / "run"):
        if "end" in row:
            ended_j += row["end"]["energy_j"]
        account = row["sample"]["gpus"][0] if "sample" in row else row.get("end", {}).get("account")
        if account is not None:
            found.append({**account, "ended_j": ended_j})
    assert found
    return found


def output(doubles, name):
    return (doubles.folder / "run" / "outputs" / name).read_text()


def test_execute_completes_retries_and_times_out_jobs(doubles):
    flaky = 'if [ "$HESHARE_ATTEMPT" = 1 ]; then echo CUDA out of memory; exit 1; fi'
    rows = (
        job("say", "printf", "%s|", "$HOME; ls", "a b"),
        job("copies", "sh", "-c", "echo $HESHARE_JOB $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; sleep 0.2", count=2),
        job("bad", "sh", "-c", "echo dying; exit 3", retries=1),
        job("flaky", "sh", "-c", flaky, retries=1),
        job("hangs", "sh", "-c", "trap '' TERM; sleep 60 & wait; wait", timeout_s=0.3),
    )
    each_alone = Timeouts(poll_s=0.1, grace_s=0.5, shared_s=0.0)  # failures at one moment are each their own here
    result = doubles.run(jobs_of(*rows), timeouts=each_alone)
    jobs = by_job(result)
    assert output(doubles, "say.1.log") == "$HOME; ls|a b|"
    assert output(doubles, "copies-1.1.log") == "copies-1 100\n"
    failed = {name for name, row in jobs.items() if row["outcome"] == "failed"}
    assert (failed, len(jobs), result.complete) == ({"bad", "hangs"}, 6, False)
    assert (jobs["bad"]["attempts"], jobs["bad"]["exit_code"]) == (2, 3)
    assert "dying" in jobs["bad"]["reason"]
    assert jobs["flaky"]["attempts"] == 2
    assert "longer than its 0.3 s" in jobs["hangs"]["reason"]
    assert doubles.traces() == []


def test_the_energy_of_the_gpu_is_the_sum_of_its_parts_and_the_heavier_job_has_more(doubles):
    pair = job("light", "sleep", "0.4", like="mobilenet:1"), job("heavy", "sleep", "0.4", like="vgg19:32")
    doubles.fake.set("power_mw", 300_000)
    result = doubles.run(jobs_of(*pair, job("bad", "sh", "-c", "sleep 0.3; exit 1")))
    for account in accounts_of(doubles):
        given_j = account["ended_j"] + account.get("idle_j", 0.0) + sum(account.get("shares_j", {}).values())
        assert given_j == pytest.approx(account["energy_j"], rel=1e-9, abs=1e-9)
    (gpu,) = result.gpus.to_dict("records")
    parts = ("completed_j", "lost_j", "idle_j", "between_j")
    assert sum(gpu[name] for name in parts) == pytest.approx(gpu["energy_j"], rel=1e-9)
    assert gpu["energy_j"] == pytest.approx(gpu["counter_j"], rel=1e-6)
    jobs = by_job(result)
    assert 0 < jobs["light"]["energy_j"] < jobs["heavy"]["energy_j"]
    assert jobs["bad"]["lost_j"] > 0


@pytest.mark.parametrize("mps", [True, False])
def test_jobs_are_weighed_at_their_shares_and_without_mps_as_alone_in_their_turns(doubles, monkeypatch, mps):
    asked, share_energy = set(), executor_device.share_energy

    def spy(gpu, residents, *given):
        asked.update(resident.mps_pct for resident in residents)
        return share_energy(gpu, residents, *given)

    monkeypatch.setattr(executor_device, "share_energy", spy)
    if not mps:
        (doubles.folder / "bin" / "nvidia-cuda-mps-control").unlink()
    assert doubles.run(jobs_of(job("a", "sleep", "0.2", count=2)), policy="morak").complete
    assert asked == ({50} if mps else {100})


@pytest.mark.parametrize("cards", [1, 0])
@pytest.mark.slow
def test_resume_runs_without_a_gpu_that_is_missing(doubles, cards):
    ended = doubles.once_started(lambda: os.kill(os.getpid(), signal.SIGTERM), count=4)
    with pytest.raises(BaseException, match="SIGTERM"):
        doubles.run(jobs_of(job("a", "sleep", "0.6", count=4)), devices="nvml")
    ended.join()
    doubles.fake.set("count", cards)
    if cards:
        result = doubles.resume()
        assert result.complete
        assert set(result.jobs["gpu"]) == {0}
        assert any("no GPU was found" in note or "not found" in note for note in result.notes)
    else:
        with pytest.raises(DeviceError, match="None of the run's GPUs is usable"):
            doubles.resume()


def test_execute_runs_a_suspect_alone_and_charges_no_retry_to_its_co_runners(doubles):
    once = 'if [ "$HESHARE_ATTEMPT" = 1 ]; then sleep {}; exit 1; fi; sleep 0.1'
    culprit = job("culprit", "sh", "-c", once.format(0.2), retries=1)
    assert doubles.run(jobs_of(culprit, job("victim", "sh", "-c", once.format(0.4), count=2))).complete
    ends = ends_of(doubles)
    last = {end["job"]: end for end in ends}
    assert all(last["culprit"]["start_s"] >= last[f"victim-{index}"]["end_s"] for index in range(2))
    shared = {(end["job"], end["charged"]) for end in ends if end["outcome"] == "failed: shared"}
    assert shared == {("victim-0", False), ("victim-1", False)}


@pytest.mark.parametrize("clocks", [False, True])
def test_report_states_that_clocks_were_not_set(doubles, clocks):
    if clocks:
        doubles.fake.set("may_lock", 0)
    result = doubles.run(TRUE, clocks=clocks)
    assert result.complete
    assert list(result.gpus["planned_mhz"]) == ["1980 (the card's own)"]
    assert any("clocks cannot be set" in note for note in result.notes) is clocks
    assert "Clocks were left to the cards" in (doubles.folder / "run" / "report.txt").read_text()
    assert doubles.fake.called("nvmlDeviceSetGpuLockedClocks") == clocks


def test_execute_starts_nothing_for_a_bad_job_file(doubles):
    with pytest.raises(InputError):
        doubles.run(jobs_of(job("a", "no-such-program")))
    assert not (doubles.folder / "run").exists()
    assert doubles.fake.get("calls") == 0


@pytest.mark.slow
def test_execute_refuses_the_folder_of_another_run(doubles):
    doubles.run(TRUE)
    with pytest.raises(InputError, match="--resume"):
        doubles.run(TRUE)
    # A run that was refused before it decided anything may begin again.
    lock = GpuLock(UUID)
    with pytest.raises(GpuInUseError):
        doubles.run(TRUE, into="other")
    lock.close()
    assert doubles.run(TRUE, into="other").complete
    with pytest.raises(InputError, match="no journal"):
        doubles.resume("elsewhere")


def test_execute_starts_a_batch_of_workloads_together(doubles):
    command = (sys.executable, "-m", "support.spin_worker", "--ms", "5", "--load-s", "0.2")
    rows = [f"  - {{name: {name}, workload: '{name}:8', iterations: 40}}\n" for name in ("resnet50", "mobilenet")]
    result = doubles.run(
        jobs_of(*rows),
        models=lambda mps, outputs: ProcessLauncher(mps, command=command, log_dir=outputs, warmup_s=0.05),
    )
    assert result.complete
    first, second = ends_of(doubles)
    assert first["released_s"] == second["released_s"]  # released at once, after both had loaded
    assert doubles.traces() == []


def test_attempt_numbers_of_a_job_are_counted_over_all_gpus(doubles):
    count = 'echo "$HESHARE_ATTEMPT" >> attempts.txt; test "$(wc -l < attempts.txt)" = 6'
    # Two long jobs, one a GPU, so that the third moves between them as they end.
    rows = job("moves", "sh", "-c", count, retries=5), job("hold", "sleep", "0.4", count=2)
    assert doubles.run(jobs_of(*rows), devices="nvml").complete
    assert (doubles.folder / "attempts.txt").read_text().split() == list("123456")


def test_no_token_or_socket_of_a_service_reaches_a_job_or_what_is_above_it(doubles, monkeypatch):
    tokens = ("ZEUSD_TOKEN", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC",
              "WATCHDOG_PID", "CREDENTIALS_DIRECTORY")  # fmt: skip
    for name in tokens:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_TOKEN", "the user's own")
    assert doubles.run(jobs_of(job("a", "sh", "-c", r"env; tr '\0' '\n' </proc/$PPID/environ"))).complete
    seen = output(doubles, "a.1.log")
    assert seen.count("HF_TOKEN=the user's own") == 2
    assert [name for name in tokens if name in seen] == []


def test_control_characters_of_a_jobs_output_stay_in_its_output(doubles):
    result = doubles.run(jobs_of(job("a", "sh", "-c", r"printf 'dying \033]0;owned\007\033[2J\n'; exit 3")))
    folder = doubles.folder / "run"
    for text in (result.text(), (folder / "jobs.csv").read_text(), (folder / "report.txt").read_text()):
        assert "dying" in text
        assert "owned" in text
        assert all(line.isprintable() for line in text.splitlines())


def test_without_the_runs_folder_the_message_is_about_the_folder(doubles):
    remove = job("a", "sh", "-c", f"rm -rf {doubles.folder / 'run' / 'outputs'}; sleep 0.3")
    result = doubles.run(jobs_of(remove, job("b", "true", arrival_s=0.2, retries=0)))
    reason = by_job(result)["b"]["reason"]
    assert "outputs" in reason
    assert "Check the command" not in reason


def test_what_cannot_be_ended_at_the_end_of_a_run_is_told_and_given_back_later(doubles, monkeypatch):
    def refuse(variable):
        raise OSError(errno.EMFILE, "Too many open files")

    sessions, start = [], MpsSession.start
    with monkeypatch.context() as patch:
        patch.setattr(MpsSession, "start", lambda session: sessions.append(session) or start(session))
        patch.setattr("heshare.ops.mps.processes_with", refuse)
        doubles.run(TRUE)
    assert any("hs-mps" in one for one in doubles.traces())
    assert "not released" in (doubles.folder / "run" / "report.txt").read_text()
    for session in sessions:
        session.stop()  # as the end of the process would let go of them
    restore()
    assert until(lambda: doubles.traces() == [])
