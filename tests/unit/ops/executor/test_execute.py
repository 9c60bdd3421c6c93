"""The executor over stand-ins for NVML and MPS, with real processes: jobs, energy, what is refused and kept."""

from __future__ import annotations

import errno
import os
import signal
import sys

import pytest
from support.job_rows import by_job, job, jobs_of
from support.run_entries import journal_lines
from support.waiting import until

from heshare.ops.cleanup import restore
from heshare.ops.executor import executor_device
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.mps import MpsSession
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.shared.errors import DeviceError

TRUE = jobs_of(job("a", "true"))


def ends_of(doubles, into="run"):
    return [row["end"] for row in journal_lines(doubles.folder / into) if "end" in row]


def output(doubles, name):
    return (doubles.folder / "run" / "outputs" / name).read_text()


def test_outcomes(doubles):
    """Jobs complete, fail, are retried and time out; nothing of them is left behind."""
    flaky = 'if [ "$HESHARE_ATTEMPT" = 1 ]; then echo CUDA out of memory; exit 1; fi'
    rows = (
        job("say", "printf", "%s|", "$HOME; ls", "a b"),
        job("copies", "sh", "-c", "echo $HESHARE_JOB $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; sleep 0.2", count=2),
        job("bad", "sh", "-c", r"printf 'dying \033]0;owned\007\033[2J\n'; exit 3", retries=1),
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

    # Control characters of a job's output stay in its output.
    report = (doubles.folder / "run" / "report.txt").read_text()
    for text in (result.text(), (doubles.folder / "run" / "jobs.csv").read_text(), report):
        assert "dying" in text
        assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize("mps", [True, False])
def test_energy_shares(doubles, monkeypatch, mps):
    """While two jobs share a GPU, the heavier one has more of its energy; MPS percentages count under MPS alone."""
    asked, together_j, share_energy = set(), [], executor_device.share_energy

    def spy(gpu, residents, *given):
        parts_j = share_energy(gpu, residents, *given)
        asked.update(resident.mps_pct for resident in residents)
        if len(residents) == 2:
            together_j.append({one.workload.model: part for one, part in zip(residents, parts_j, strict=True)})
        return parts_j

    monkeypatch.setattr(executor_device, "share_energy", spy)
    if not mps:
        (doubles.folder / "bin" / "nvidia-cuda-mps-control").unlink()
    pair = job("light", "sleep", "0.4", like="mobilenet:1"), job("heavy", "sleep", "0.4", like="vgg19:32")
    jobs = by_job(doubles.run(jobs_of(*pair), policy="morak"))

    light_j, heavy_j = (sum(parts[model] for parts in together_j) for model in ("mobilenet", "vgg19"))
    assert 0 < light_j < heavy_j
    assert jobs["light"]["energy_j"] >= light_j * (1 - 1e-6)
    assert jobs["heavy"]["energy_j"] >= heavy_j * (1 - 1e-6)
    assert asked == ({50} if mps else {100})


@pytest.mark.slow
def test_resume_without_gpu(doubles):
    """A resumed run is refused without any GPU, and goes on without a missing one."""
    ended = doubles.once_started(lambda: os.kill(os.getpid(), signal.SIGTERM), count=4)
    with pytest.raises(BaseException, match="SIGTERM"):
        doubles.run(jobs_of(job("a", "sleep", "0.6", count=4)), devices="nvml")
    ended.join()
    doubles.fake.set("count", 0)
    with pytest.raises(DeviceError, match="usable"):
        doubles.resume()
    doubles.fake.set("count", 1)
    result = doubles.resume()
    assert result.complete
    assert set(result.jobs["gpu"]) == {0}
    assert any("found" in note for note in result.notes)


@pytest.mark.parametrize("clocks", [False, True])
def test_clocks_not_set(doubles, clocks):
    """Clocks that may not be set are left alone, planned at their default and noted."""
    if clocks:
        doubles.fake.set("may_lock", 0)
    result = doubles.run(TRUE, clocks=clocks)
    assert result.complete
    assert list(result.gpus["planned_mhz"]) == ["1980 (the card's own)"]
    assert any("clocks cannot be set" in note for note in result.notes) is clocks
    assert doubles.fake.called("nvmlDeviceSetGpuLockedClocks") == clocks


def test_batch_starts_together(doubles):
    """Jobs of a batch begin together, once all have loaded."""
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


def test_no_service_tokens(doubles, monkeypatch):
    """Tokens and sockets of a service reach neither a job nor its supervisor."""
    tokens = ("ZEUSD_TOKEN", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC",
              "WATCHDOG_PID", "CREDENTIALS_DIRECTORY")  # fmt: skip
    for name in tokens:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_TOKEN", "the user's own")
    assert doubles.run(jobs_of(job("a", "sh", "-c", r"env; tr '\0' '\n' </proc/$PPID/environ"))).complete
    seen = output(doubles, "a.1.log")
    assert seen.count("HF_TOKEN=the user's own") == 2
    assert [name for name in tokens if name in seen] == []


def test_missing_folder(doubles):
    """A job whose output has no folder any more fails with the name of the folder."""
    remove = job("a", "sh", "-c", f"rm -rf {doubles.folder / 'run' / 'outputs'}; sleep 0.3")
    result = doubles.run(jobs_of(remove, job("b", "true", arrival_s=0.2, retries=0)))
    assert "outputs" in by_job(result)["b"]["reason"]


def test_release_later(doubles, monkeypatch):
    """What cannot be ended at the end of a run is reported, and `restore` ends it later."""

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
