"""The executor over stand-ins for NVML and MPS, with real processes: jobs, energy, what is refused and kept."""

from __future__ import annotations

import errno
import os
import signal
import sys
from dataclasses import replace

import pytest
from support.job_rows import by_job, job, jobs_of
from support.kill_drill import UUID
from support.run_entries import journal_lines

from heshare.lab.tenants.measured_work import MeasuredWork
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.gpu_lock import GpuInUseError, GpuLock
from heshare.ops.executor.watchdog import clean_up_killed_runs
from heshare.ops.jobs import learned_commands
from heshare.ops.mps import MpsSession
from heshare.ops.nvml.card_sampler import CardSampler
from heshare.ops.state.held_note import state_folder
from heshare.ops.state.run_note import noted_runs
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.shared.errors import DeviceError, InputError

TRUE = jobs_of(job("a", "true"))


def ends_of(doubles, into="run"):
    return [row["end"] for row in journal_lines(doubles.folder / into) if "end" in row]


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


def test_both_ways_of_dividing_energy_sum_to_the_energy_of_the_gpu(doubles):
    pair = job("light", "sleep", "0.4", like="mobilenet:1"), job("heavy", "sleep", "0.4", like="vgg19:32")
    result = doubles.run(jobs_of(*pair, job("bad", "sh", "-c", "sleep 0.3; exit 1")))
    ends = ends_of(doubles)
    samples = [row["sample"]["gpus"][0] for row in journal_lines(doubles.folder / "run") if "sample" in row]
    for sample in samples:
        model, equal = sample.get("model_shares_j") or {}, sample.get("shares_j", {})
        assert model.keys() == equal.keys()
        assert sum(model.values()) == pytest.approx(sum(equal.values()), rel=1e-9)
    for name in ("energy_j", "energy_model_j"):
        given_j = sum(end[name] for end in ends) + samples[-1].get("idle_j", 0.0)
        assert given_j == pytest.approx(samples[-1]["energy_j"], rel=1e-3)
    jobs = by_job(result)
    assert jobs["light"]["energy_j"] == pytest.approx(jobs["heavy"]["energy_j"], rel=0.5)
    assert jobs["light"]["energy_model_j"] < jobs["light"]["energy_j"]
    assert jobs["heavy"]["energy_model_j"] > jobs["heavy"]["energy_j"]
    assert jobs["bad"]["lost_model_j"] > 0


@pytest.mark.parametrize("mps", [True, False])
def test_jobs_are_weighed_at_their_shares_and_without_mps_as_alone_in_their_turns(doubles, mps):
    asked = set()

    class Spy(TenantPower):
        def shares_j(self, gpu, residents, sm_mhz, energy_j, duration_s):
            asked.update(resident.mps_pct for resident in residents)
            return super().shares_j(gpu, residents, sm_mhz, energy_j, duration_s)

    if not mps:
        (doubles.folder / "bin" / "nvidia-cuda-mps-control").unlink()
    assert doubles.run(jobs_of(job("a", "sleep", "0.2", count=2)), policy="morak", tenant_power=Spy()).complete
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
        with pytest.raises(DeviceError, match="None of the run's GPUs can be used"):
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
        launcher=lambda mps, outputs: ProcessLauncher(mps, command=command, log_dir=outputs, warmup_s=0.05),
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
    for text in (result.report(), (folder / "jobs.csv").read_text(), (folder / "report.txt").read_text()):
        assert "dying" in text
        assert "owned" in text
        assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.slow
def test_shares_by_model_do_not_depend_on_how_often_the_counter_moves(doubles, monkeypatch):
    """A real counter moves every 0.1 s; a step in which it has not moved is no step below idle power."""
    sample, parts, add_to = CardSampler.sample, [], MeasuredWork.add_to
    doubles.fake.set("power_mw", 300_000)
    pair = jobs_of(job("light", "sleep", "2.5", like="mobilenet:1"), job("heavy", "sleep", "2.5", like="vgg19:32"))
    for step_j in (0.0, 60.0):

        def stepped(self, step_j=step_j, **options):
            found = sample(self, **options)
            energy_j = found.energy_j if not step_j else found.energy_j // step_j * step_j
            return replace(found, energy_j=energy_j)

        added_s = []
        monkeypatch.setattr(CardSampler, "sample", stepped)
        monkeypatch.setattr(
            MeasuredWork,
            "add_to",
            lambda works, *given, added_s=added_s: added_s.append(given[-1] * bool(works)) or add_to(works, *given),
        )
        jobs = by_job(doubles.run(pair, into=f"run-{step_j:g}", timeouts=Timeouts(poll_s=0.03, grace_s=0.5)))
        ends = ends_of(doubles, f"run-{step_j:g}")
        ran_s = max(end["end_s"] for end in ends) - min(end["start_s"] for end in ends)
        assert 0.0 < sum(added_s) <= ran_s + 0.5, "no time is added twice to what is learned"
        (state_folder() / learned_commands.NAME).unlink()  # both are the same command, which the next run would know
        model_j = [jobs[name]["energy_model_j"] for name in ("light", "heavy")]
        parts.append(model_j[0] / sum(model_j))
    assert parts[1] == pytest.approx(parts[0], abs=0.04)


def test_without_the_runs_folder_the_message_is_about_the_folder(doubles):
    remove = job("a", "sh", "-c", f"rm -rf {doubles.folder / 'run' / 'outputs'}; sleep 0.3")
    result = doubles.run(jobs_of(remove, job("b", "true", arrival_s=0.2, retries=0)))
    reason = by_job(result)["b"]["reason"]
    assert "outputs" in reason
    assert "Check the command" not in reason


def test_what_cannot_be_ended_at_the_end_of_a_run_stays_noted(doubles, monkeypatch):
    def refuse(variable):
        raise OSError(errno.EMFILE, "Too many open files")

    sessions, start = [], MpsSession.start
    with monkeypatch.context() as patch:
        patch.setattr(MpsSession, "start", lambda session: sessions.append(session) or start(session))
        patch.setattr("heshare.ops.mps.processes_with", refuse)
        doubles.run(TRUE)
    assert any("hs-mps" in one for one in doubles.traces())
    assert [run.life.over for run in noted_runs()] == [True], "restore and the next run know of it"
    for session in sessions:
        session.stop()  # as the end of the process would let go of them
    clean_up_killed_runs()
    assert doubles.traces() == []
