"""Locks of GPUs, the note and the watchdog of a run, cleanup after a killed run, selection of GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from heshare.errors import DeviceError, InputError
from heshare.gpu.executor import local_gpus, watchdog
from heshare.gpu.executor.gpu_lock import GpuInUseError, GpuLock
from heshare.processes import MARK

HOLD = """
import time
from heshare.gpu.executor.gpu_lock import GpuLock
GpuLock("GPU-x")
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HESHARE_LOCKS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def sleeper(token, *command):
    return subprocess.Popen(
        command or ("sleep", "60"), env={**os.environ, MARK: token}, start_new_session=True, stdout=subprocess.PIPE
    )


def test_gpu_lock_names_its_holder_and_is_free_when_that_is_killed():
    environment = {**os.environ}
    holder = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(GpuInUseError, match=rf"(?s)process {holder.pid}: .*python.* Wait for it to end"):
        GpuLock("GPU-x")
    GpuLock("GPU-y").close()
    holder.kill()
    lock = GpuLock("GPU-x")  # taken although the killed holder was never waited for
    lock.close()
    holder.wait()
    holder.stdout.close()


def test_gpu_lock_refuses_a_missing_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HESHARE_LOCKS", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="HESHARE_LOCKS"):
        GpuLock("GPU-x")


def test_clean_up_ends_processes_of_killed_runs_only(tmp_path):
    note = watchdog.note_of_this_process(tmp_path / "run", "w" * 32)
    note.write()
    dog = watchdog.Watchdog(note, [])
    left = sleeper(note.token)
    dog.dismiss()
    assert left.poll() is None
    assert watchdog.run_notes() == [note.path]
    with pytest.raises(DeviceError, match=f"process {os.getpid()} .* still runs"):
        watchdog.clean_up(note)
    gone = watchdog.RunNote(note.token, note.pid, note.started - 1, note.folder)
    gone.write()
    (report,) = local_gpus.clean_up_killed_runs()
    assert (report.folder, report.ended, report.restored) == (str(tmp_path / "run"), 1, ())
    assert left.wait() == -signal.SIGTERM
    left.stdout.close()
    assert watchdog.run_notes() == []


def test_run_note_read_refuses_a_damaged_file(tmp_path):
    path = tmp_path / "run-x.json"
    path.write_text("{")
    with pytest.raises(DeviceError, match="not a note of a run"):
        watchdog.RunNote.read(path)


@pytest.mark.parametrize("text", ["", "nvml:", "cuda:0", "nvml:0,nvml:0", "nvml,nvml:0", "nvml:0,"])
def test_select_gpus_refuses_other_forms_and_duplicates(fake, text):
    with pytest.raises(InputError, match="--devices"):
        local_gpus.select_gpus(text)


def test_select_gpus_by_index_by_uuid_and_all(fake):
    fake.set("count", 2)
    first, second = local_gpus.select_gpus("nvml")
    assert local_gpus.select_gpus(f"nvml:1,nvml:{first}") == [second, first]
