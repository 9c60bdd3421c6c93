"""Locks of GPUs, the note and the watchdog of a run, cleanup after a killed run, selection of GPUs."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.waiting import end, until

from heshare.ops.executor import local_gpus, watchdog
from heshare.ops.executor.gpu_lock import GpuInUseError, GpuLock, lock_path
from heshare.ops.state.run_note import note_of_this_process, noted_runs
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.processes import is_running

HOLD = """
import os, sys, time
from heshare.ops.executor.gpu_lock import GpuLock
if len(sys.argv) > 1:
    os.setresuid(*[int(sys.argv[1])] * 3)
os.umask(0o077)
GpuLock("GPU-x")
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HESHARE_LOCKS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    monkeypatch.setattr("tempfile.tempdir", None)


def held(*arguments):
    """Return a process that holds the lock of GPU-x, as the user of that id if one is given."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, *arguments], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


def test_gpu_lock_names_its_holder_and_is_free_when_that_is_killed():
    holder = held()
    with pytest.raises(GpuInUseError, match=rf"(?s)process {holder.pid}: .*python.* Wait for it to end"):
        GpuLock("GPU-x")
    GpuLock("GPU-y").close()
    holder.kill()
    lock = GpuLock("GPU-x")  # taken although the killed holder was never waited for
    lock.close()
    end(holder)


def test_gpu_lock_asks_nobody_to_end_what_a_user_may_have_written(tmp_path):
    lock_path("GPU-x").write_text("process 1: /usr/sbin/your-database")
    with lock_path("GPU-x").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(GpuInUseError, match=r"Any user can hold this lock and write that line") as refused:
            GpuLock("GPU-x")
    assert "end it" not in str(refused.value)


def test_gpu_lock_is_in_one_folder_for_all_users_which_must_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HESHARE_LOCKS", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="HESHARE_LOCKS"):
        GpuLock("GPU-x")
    monkeypatch.delenv("HESHARE_LOCKS")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert lock_path("GPU-x") == Path("/run/lock/heshare-GPU-x.lock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_gpu_lock_is_for_all_users_whoever_made_it(monkeypatch):
    # Others may not enter the folders of pytest.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setenv("HESHARE_LOCKS", folder)
        path = Path(folder) / "heshare-GPU-x.lock"
        GpuLock("GPU-x").close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        path.chmod(0o644)  # a file of an earlier release, which others cannot write, locks all the same
        path.write_text("")
        user = held("12345")
        with pytest.raises(GpuInUseError):
            GpuLock("GPU-x")
        end(user)
        path.unlink()
        end(held("12345"))
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (12345, 0o666)
        GpuLock("GPU-x").close()


@pytest.mark.parametrize("make", [lambda path: path.symlink_to(path.with_name("target")), os.mkfifo, Path.mkdir])
def test_gpu_lock_refuses_what_is_no_plain_file(tmp_path, make):
    make(tmp_path / "heshare-GPU-x.lock")
    with pytest.raises(DeviceError, match="cannot be opened"):
        GpuLock("GPU-x")
    assert not (tmp_path / "target").exists()


def test_gpu_lock_shows_no_control_characters_of_others(tmp_path):
    holder = held()
    (tmp_path / "heshare-GPU-x.lock").write_text("process 1: \x1b[31mred\nhere")
    with pytest.raises(GpuInUseError) as error:
        GpuLock("GPU-x")
    assert not set("\x1b\n") & set(str(error.value))
    end(holder)


def test_a_watchdog_that_ends_alone_is_replaced(tmp_path):
    told = []
    note = note_of_this_process(tmp_path / "run", "0" * 32, [])
    file = note.hold()
    lock = GpuLock("GPU-x")
    dog = watchdog.Watchdog(note, [lock.descriptor], file.descriptor, tell=told.append)
    first = dog.pid
    os.kill(first, signal.SIGKILL)
    assert until(lambda: told)
    assert told == ["the watchdog ended (by SIGKILL) and was started again"]
    assert dog.pid != first
    inherited = {path.stat().st_ino for path in Path(f"/proc/{dog.pid}/fd").iterdir()}
    assert {lock.path.stat().st_ino, os.fstat(file.descriptor).st_ino} <= inherited
    dog.dismiss()
    dog.dismiss()
    assert not is_running(dog.pid)
    file.remove()
    lock.close()


def test_a_watchdog_that_is_killed_while_it_starts_is_started_again(tmp_path, monkeypatch):
    program, count = tmp_path / "python", tmp_path / "count"
    program.write_text(
        f'#!/bin/sh\necho >> {count}\n[ $(wc -l < {count}) -gt 2 ] || kill -9 $$\nexec {sys.executable} "$@"'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    note = note_of_this_process(tmp_path / "run", "0" * 32, [])
    file = note.hold()
    watchdog.Watchdog(note, [], file.descriptor).dismiss()
    assert len(count.read_text().splitlines()) == 3
    count.unlink()
    program.write_text("#!/bin/sh\nexit 3")
    with pytest.raises(DeviceError, match=r"does not start \(exit code 3\). Check this Python"):
        watchdog.Watchdog(note, [], file.descriptor)
    file.remove()


def test_noted_runs_names_a_damaged_note(tmp_path):
    (tmp_path / "state" / "heshare").mkdir(parents=True)
    (tmp_path / "state" / "heshare" / "run-0.json").write_text('{"token": "x", "pid": 1}')
    assert [run.text.count("not a note of heshare") for run in noted_runs()] == [1]
    assert local_gpus.clean_up_killed_runs() == []


def test_select_gpus_by_index_by_uuid_and_all_and_nothing_else(doubles):
    for text in ("", "nvml:", "cuda:0", "nvml:0,nvml:0", "nvml,nvml:0", "nvml:0,"):
        with pytest.raises(InputError, match="--devices"):
            local_gpus.select_gpus(text)
    first, second = local_gpus.select_gpus("nvml").uuids
    assert local_gpus.select_gpus(f"nvml:1,nvml:{first}").uuids == (second, first)
