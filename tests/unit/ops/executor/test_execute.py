"""The executor over stand-ins for NVML and MPS, with real processes: faults of every kind, and nothing left behind."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest
from support.kill_drill import UUID
from support.run_entries import journal_lines

from heshare.lab.tenants.measured_work import MeasuredWork
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.gpu_lock import GpuInUseError, GpuLock
from heshare.ops.executor.outcome import run_outcome
from heshare.ops.executor.watchdog import clean_up_killed_runs
from heshare.ops.jobs import learned_commands, run_journal
from heshare.ops.mps import MpsSession
from heshare.ops.nvml.card_sampler import CardSampler
from heshare.ops.state.held_note import state_folder
from heshare.ops.state.run_note import noted_runs
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.shared.errors import DeviceError, InputError


def entry(name, *command, count=1, like="resnet50:8", **more):
    lines = [f"  - name: {name}", f"    command: [{', '.join(map(repr, command))}]", f"    like: {like}"]
    lines += ["    iterations: 100", f"    count: {count}", *[f"    {key}: {value}" for key, value in more.items()]]
    return "\n".join(lines) + "\n"


def later(after_s, action):
    """Call a function after some time, s."""
    timer = threading.Timer(after_s, action)
    timer.start()
    return timer


def by_job(result):
    return result.jobs.set_index("job").to_dict("index")


def test_execute_completes_retries_and_times_out_jobs(doubles):
    flaky = 'if [ "$HESHARE_ATTEMPT" = 1 ]; then echo CUDA out of memory; exit 1; fi'
    result = doubles.run(
        "jobs:\n"
        + entry("say", "printf", "%s|", "$HOME; ls", "a b")
        + entry("copies", "sh", "-c", "echo $HESHARE_JOB $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; sleep 0.2", count=3)
        + entry("bad", "sh", "-c", "echo dying; exit 3", retries=1)
        + entry("flaky", "sh", "-c", flaky, retries=1)
        + entry("hangs", "sh", "-c", "trap '' TERM; sleep 60 & wait; wait", timeout_s=0.3),
        timeouts=Timeouts(poll_s=0.1, grace_s=0.5, shared_s=0.0),  # failures at one moment are each their own here
    )
    jobs = by_job(result)
    outputs = doubles.folder / "run" / "outputs"
    assert (outputs / "say.1.log").read_text() == "$HOME; ls|a b|"
    assert (outputs / "copies-2.1.log").read_text() == "copies-2 100\n"
    assert {name: job["outcome"] for name, job in jobs.items()} == {
        "say": "completed", "copies-0": "completed", "copies-1": "completed", "copies-2": "completed",
        "bad": "failed", "flaky": "completed", "hangs": "failed",
    }  # fmt: skip
    assert (jobs["bad"]["attempts"], jobs["bad"]["exit_code"]) == (2, 3)
    assert "dying" in jobs["bad"]["reason"]
    assert jobs["flaky"]["attempts"] == 2
    assert "longer than its 0.3 s" in jobs["hangs"]["reason"]
    assert not result.complete
    assert doubles.traces() == []


def test_both_ways_of_dividing_energy_sum_to_the_energy_of_the_gpu(doubles):
    light, heavy = entry("light", "sleep", "0.4", like="mobilenet:1"), entry("heavy", "sleep", "0.4", like="vgg19:32")
    result = doubles.run("jobs:\n" + light + heavy + entry("bad", "sh", "-c", "sleep 0.3; exit 1"))
    entries = journal_lines(doubles.folder / "run")
    ends = [row["end"] for row in entries if "end" in row]
    assert len(ends) == 3
    assert sum(end["energy_model_j"] for end in ends) == pytest.approx(sum(end["energy_j"] for end in ends), rel=1e-9)
    for sample in [row["sample"]["gpus"][0] for row in entries if "sample" in row]:
        model, equal = sample.get("model_shares_j") or {}, sample.get("shares_j", {})
        assert model.keys() == equal.keys()
        assert sum(model.values()) == pytest.approx(sum(equal.values()), rel=1e-9)
    last = [row["sample"]["gpus"][0] for row in entries if "sample" in row][-1]
    for name in ("energy_j", "energy_model_j"):
        assert sum(end[name] for end in ends) + last.get("idle_j", 0.0) == pytest.approx(last["energy_j"], rel=1e-3)
    jobs = by_job(result)
    assert jobs["light"]["energy_j"] == pytest.approx(jobs["heavy"]["energy_j"], rel=0.5)
    assert jobs["light"]["energy_model_j"] < jobs["light"]["energy_j"]
    assert jobs["heavy"]["energy_model_j"] > jobs["heavy"]["energy_j"]
    both = result.jobs[["energy_j", "energy_model_j", "lost_j", "lost_model_j"]].sum()
    assert both["energy_model_j"] + both["lost_model_j"] == pytest.approx(both["energy_j"] + both["lost_j"], rel=1e-9)
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
    assert doubles.run("jobs:\n" + entry("a", "sleep", "0.2", count=2), policy="morak", tenant_power=Spy()).complete
    assert asked == ({50} if mps else {100})


@pytest.mark.slow
def test_resume_runs_only_unfinished_jobs_and_counts_each_job_once(doubles):
    text = "jobs:\n" + entry("quick", "true", count=3) + entry("long", "sleep", "0.8", count=2)
    journal = doubles.folder / "run" / run_journal.NAME

    def end_when_the_quick_ones_are_done():
        while not journal.exists() or journal.read_bytes().count(b'"completed"') < 3:
            time.sleep(0.01)
        time.sleep(0.3)  # the long ones have begun, and cost energy
        os.kill(os.getpid(), signal.SIGTERM)

    ended = later(0.0, end_when_the_quick_ones_are_done)
    with pytest.raises(BaseException, match="SIGTERM"):
        doubles.run(text, clocks=True)
    ended.join()
    assert doubles.traces() == []
    before = run_outcome(run_journal.read_state(doubles.folder / "run"))
    assert before.history.over == dict.fromkeys(("quick-0", "quick-1", "quick-2"), "completed")
    result = doubles.resume()
    assert result.complete
    assert {name: job["attempts"] for name, job in by_job(result).items()} == {
        "quick-0": 1, "quick-1": 1, "quick-2": 1, "long-0": 2, "long-1": 2,
    }  # fmt: skip
    assert result.totals["sessions"] == 2
    assert result.totals["lost_j"] > 0
    both = result.jobs[["energy_j", "lost_j", "energy_model_j", "lost_model_j"]].sum()
    assert both["energy_model_j"] + both["lost_model_j"] == pytest.approx(both["energy_j"] + both["lost_j"], rel=1e-9)
    assert doubles.resume().totals == result.totals
    assert doubles.traces() == []


@pytest.mark.slow
def test_execute_runs_jobs_of_a_lost_gpu_on_the_others(doubles):
    gone = doubles.once_started(lambda: doubles.fake.set("lost0", 1), count=6)
    result = doubles.run("jobs:\n" + entry("a", "sleep", "0.8", count=6), devices="nvml")
    gone.join()
    assert result.complete
    assert set(result.jobs["gpu"]) == {1}
    assert any("lost" in note for note in result.notes)
    doubles.fake.set("lost0", 0)
    assert doubles.traces() == []


@pytest.mark.parametrize("cards", [1, 0])
@pytest.mark.slow
def test_resume_runs_without_a_gpu_that_is_missing(doubles, cards):
    ended = doubles.once_started(lambda: os.kill(os.getpid(), signal.SIGTERM), count=4)
    with pytest.raises(BaseException, match="SIGTERM"):
        doubles.run("jobs:\n" + entry("a", "sleep", "0.6", count=4), devices="nvml")
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
    doubles.fake.set("count", 2)
    assert doubles.traces() == []


def test_execute_refuses_a_gpu_of_another_run_and_names_its_process(doubles):
    lock = GpuLock(UUID)
    with pytest.raises(GpuInUseError, match=rf"another run has it: process {os.getpid()}: \S*python"):
        doubles.run("jobs:\n" + entry("a", "true"))
    lock.close()
    assert doubles.traces() == []
    assert doubles.resume().complete


@pytest.mark.slow
def test_execute_retries_all_clients_of_an_mps_daemon_that_ended(doubles):
    def end_the_daemon():
        (note,) = (doubles.folder / "tmp").glob("hs-mps-*/pipe/*.pid")
        os.kill(int(note.read_text()), signal.SIGKILL)

    killed = doubles.once_started(end_the_daemon, count=3)
    result = doubles.run("jobs:\n" + entry("a", "sleep", "0.9", count=3))
    killed.join()
    assert result.complete
    assert list(result.jobs["attempts"]) == [2, 2, 2]
    assert any("went down" in note for note in result.notes)
    assert doubles.traces() == []


def test_execute_runs_a_suspect_alone_and_charges_no_retry_to_its_co_runners(doubles):
    once = 'if [ "$HESHARE_ATTEMPT" = 1 ]; then sleep {}; exit 1; fi; sleep 0.1'
    result = doubles.run(
        "jobs:\n"
        + entry("culprit", "sh", "-c", once.format(0.2), retries=1)
        + entry("victim", "sh", "-c", once.format(0.4), count=2)
    )
    assert result.complete
    ends = [row["end"] for row in journal_lines(doubles.folder / "run") if "end" in row]
    last = {end["job"]: end for end in ends}
    assert all(last["culprit"]["start_s"] >= last[f"victim-{index}"]["end_s"] for index in range(2))
    assert {(end["job"], end["charged"]) for end in ends if end["outcome"] == "failed: shared"} == {
        ("victim-0", False), ("victim-1", False),
    }  # fmt: skip


@pytest.mark.parametrize("clocks", [False, True])
def test_report_states_that_clocks_were_not_set(doubles, clocks):
    if clocks:
        doubles.fake.set("may_lock", 0)
    result = doubles.run("jobs:\n" + entry("a", "true"), clocks=clocks)
    assert result.complete
    assert list(result.gpus["planned_mhz"]) == ["1980 (the card's own)"]
    assert any("clocks cannot be set" in note for note in result.notes) is clocks
    assert "Clocks were left to the cards" in (doubles.folder / "run" / "report.txt").read_text()
    assert doubles.fake.called("nvmlDeviceSetGpuLockedClocks") == clocks


def test_execute_delays_a_job_while_another_process_holds_the_memory(doubles):
    doubles.fake.set("free_mib", 500)
    freed = later(0.6, lambda: doubles.fake.set("free_mib", 80_900))
    result = doubles.run("jobs:\n" + entry("a", "true", retries=9))
    freed.join()
    assert result.complete
    ends = [row["end"] for row in journal_lines(doubles.folder / "run") if "end" in row]
    assert ends[-1]["start_s"] > 0.2
    assert all("MiB needed" in end["reason"] for end in ends[:-1])


def full_disk(monkeypatch):
    """Let writes of the ends of attempts to the journal meet a full disk; other files do not."""
    write = os.write

    def refuse(handle, data):
        if b'"end"' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data)

    monkeypatch.setattr("os.write", refuse)


def test_execute_ends_on_a_full_disk_and_can_be_resumed(doubles, monkeypatch):
    with monkeypatch.context() as patch:
        full_disk(patch)
        with pytest.raises(DeviceError, match=r"No space left.*--resume"):
            doubles.run("jobs:\n" + entry("a", "sleep", "0.2", count=2))
    assert doubles.traces() == []
    assert doubles.resume().complete


@pytest.mark.parametrize(
    "text", ["jobs: []", "jobs: [{name: a, command: [no-such-program], like: low, iterations: 1}]"]
)
def test_execute_starts_nothing_for_a_bad_job_file(doubles, text):
    with pytest.raises(InputError):
        doubles.run(text)
    assert not (doubles.folder / "run").exists()
    assert doubles.fake.get("calls") == 0


def test_execute_refuses_the_folder_of_another_run(doubles):
    doubles.run("jobs:\n" + entry("a", "true"))
    with pytest.raises(InputError, match="--resume"):
        doubles.run("jobs:\n" + entry("a", "true"))
    # A run that was refused before it decided anything may begin again.
    lock = GpuLock(UUID)
    with pytest.raises(GpuInUseError):
        doubles.run("jobs:\n" + entry("a", "true"), into="other")
    lock.close()
    assert doubles.run("jobs:\n" + entry("b", "true"), into="other").complete
    with pytest.raises(InputError, match="no journal"):
        doubles.resume("elsewhere")


def test_execute_starts_a_batch_of_workloads_together(doubles):
    command = (sys.executable, "-m", "support.spin_worker", "--ms", "5", "--load-s", "0.2")
    text = "jobs:\n" + "".join(
        f"  - {{name: {name}, workload: '{name}:8', iterations: 40}}\n" for name in ("resnet50", "mobilenet")
    )
    result = doubles.run(
        text, launcher=lambda mps, outputs: ProcessLauncher(mps, command=command, log_dir=outputs, warmup_s=0.05)
    )
    assert result.complete
    ended = [row["end"] for row in journal_lines(doubles.folder / "run") if "end" in row]
    assert len(ended) == 2
    assert ended[0]["released_s"] == ended[1]["released_s"]  # released at once, after both had loaded
    assert doubles.traces() == []


def test_attempt_numbers_of_a_job_are_counted_over_all_gpus(doubles):
    count = 'echo "$HESHARE_ATTEMPT" >> attempts.txt; test "$(wc -l < attempts.txt)" = 6'
    # Two long jobs, one a GPU, so that the third moves between them as they end.
    text = entry("moves", "sh", "-c", count, retries=5) + entry("hold", "sleep", "0.4", count=2)
    result = doubles.run("jobs:\n" + text, devices="nvml")
    assert result.complete
    assert (doubles.folder / "attempts.txt").read_text().split() == list("123456")


def test_no_token_or_socket_of_a_service_reaches_a_job_or_what_is_above_it(doubles, monkeypatch):
    tokens = ("ZEUSD_TOKEN", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC",
              "WATCHDOG_PID", "CREDENTIALS_DIRECTORY")  # fmt: skip
    for name in tokens:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_TOKEN", "the user's own")
    assert doubles.run("jobs:\n" + entry("a", "sh", "-c", "env; tr '\\\\0' '\\\\n' </proc/$PPID/environ")).complete
    seen = (doubles.folder / "run" / "outputs" / "a.1.log").read_text()
    assert seen.count("HF_TOKEN=the user's own") == 2
    assert [name for name in tokens if name in seen] == []


def test_control_characters_of_a_jobs_output_stay_in_its_output(doubles):
    result = doubles.run("jobs:\n" + entry("a", "sh", "-c", r"printf 'dying \033]0;owned\007\033[2J\n'; exit 3"))
    folder = doubles.folder / "run"
    assert "dying" in by_job(result)["a"]["reason"]
    for text in (result.report(), (folder / "jobs.csv").read_text(), (folder / "report.txt").read_text()):
        assert "owned" in text
        assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.slow
def test_shares_by_model_do_not_depend_on_how_often_the_counter_moves(doubles, monkeypatch):
    """A real counter moves every 0.1 s; a step in which it has not moved is no step below idle power."""
    sample, parts, add_to = CardSampler.sample, [], MeasuredWork.add_to
    doubles.fake.set("power_mw", 300_000)
    for step_j in (0.0, 60.0):

        def stepped(self, step_j=step_j, **options):
            found = sample(self, **options)
            energy_j = found.energy_j if not step_j else found.energy_j // step_j * step_j
            return replace(found, energy_j=energy_j)

        added_s = []
        monkeypatch.setattr(CardSampler, "sample", stepped)
        monkeypatch.setattr(
            MeasuredWork, "add_to", lambda *given, added_s=added_s: added_s.append(given[-1]) or add_to(*given)
        )
        light, heavy = (
            entry("light", "sleep", "2.5", like="mobilenet:1"),
            entry("heavy", "sleep", "2.5", like="vgg19:32"),
        )
        times = Timeouts(poll_s=0.03, grace_s=0.5)
        jobs = by_job(doubles.run("jobs:\n" + light + heavy, into=f"run-{step_j:g}", timeouts=times))
        ran_s = max(job["end_s"] for job in jobs.values()) - min(job["start_s"] for job in jobs.values())
        assert 0.0 < sum(added_s) <= ran_s + 0.5, "no time is added twice to what is learned"
        (state_folder() / learned_commands.NAME).unlink()  # both are the same command, which the next run would know
        model_j = [jobs[name]["energy_model_j"] for name in ("light", "heavy")]
        parts.append(model_j[0] / sum(model_j))
    assert parts[1] == pytest.approx(parts[0], abs=0.04)


def test_without_the_runs_folder_the_message_is_about_the_folder(doubles):
    remove = f"rm -rf {doubles.folder / 'run' / 'outputs'}; sleep 0.3"
    result = doubles.run("jobs:\n" + entry("a", "sh", "-c", remove) + entry("b", "true", arrival_s=0.2, retries=0))
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
        doubles.run("jobs:\n" + entry("a", "true"))
    assert any("hs-mps" in one for one in doubles.traces())
    assert [run.life.over for run in noted_runs()] == [True], "restore and the next run know of it"
    for session in sessions:
        session.stop()  # as the end of the process would let go of them
    clean_up_killed_runs()
    assert doubles.traces() == []
