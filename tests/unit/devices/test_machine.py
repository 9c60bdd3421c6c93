"""Locks, processes and notes: who has a GPU, who still lives, what a killed run left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from heshare.devices import machine, watchdog
from heshare.devices.locks import GpuInUseError, GpuLock
from heshare.devices.processes import MARK, alive, end_marked, marked, started_at
from heshare.errors import DeviceError, InputError
from heshare.files import PACKAGE

HOLD = """
import time
from heshare.devices.locks import GpuLock
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


def test_a_lock_names_its_holder_and_goes_with_it():
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
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


def test_a_lock_in_a_folder_that_is_not_there_is_one_message(monkeypatch, tmp_path):
    monkeypatch.setenv("HESHARE_LOCKS", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="HESHARE_LOCKS"):
        GpuLock("GPU-x")


def test_a_process_is_known_by_its_id_and_its_start():
    mine = started_at(os.getpid())
    assert mine > 0
    assert alive(os.getpid(), mine)
    assert not alive(os.getpid(), mine + 1)
    ended = subprocess.Popen(["true"])
    started = started_at(ended.pid)
    time.sleep(0.1)
    assert not alive(ended.pid, started)  # it waits for its parent, and lives no more
    ended.wait()
    assert started_at(ended.pid) == 0


def test_marked_processes_end_with_what_they_started_even_if_deaf():
    token = f"m{os.getpid()}"
    deaf = sleeper(token, "sh", "-c", "trap '' TERM; env -i sleep 60 & echo up; wait; wait; sleep 60")
    assert deaf.stdout.readline() == b"up\n"
    plain = sleeper(token)
    other = sleeper(token + "-other")
    assert {deaf.pid, plain.pid} <= set(marked(token))
    assert other.pid not in marked(token)
    assert end_marked(token, grace_s=0.2) >= 3
    assert deaf.wait() == -signal.SIGKILL
    assert plain.wait() == -signal.SIGTERM
    assert other.poll() is None
    other.kill()
    for one in (deaf, plain, other):
        one.wait()
        one.stdout.close()


def test_a_watchdog_acts_when_its_run_is_killed_and_not_when_it_is_dismissed(tmp_path):
    note = watchdog.here(tmp_path / "run", "w" * 32)
    note.write()
    dog = watchdog.Watchdog(note, [])
    left = sleeper(note.token)
    dog.dismiss()
    assert left.poll() is None
    assert watchdog.notes() == [note.path]
    with pytest.raises(DeviceError, match=f"process {os.getpid()} .* goes on"):
        watchdog.put_in_order(note)
    gone = watchdog.RunNote(note.path, note.token, note.pid, note.started - 1, note.folder)
    gone.write()
    (ordered,) = machine.sweep()
    assert (ordered.folder, ordered.ended, ordered.restored) == (str(tmp_path / "run"), 1, ())
    assert left.wait() == -signal.SIGTERM
    left.stdout.close()
    assert watchdog.notes() == []


def test_a_damaged_note_is_one_message(tmp_path):
    path = tmp_path / "run-x.json"
    path.write_text("{")
    with pytest.raises(DeviceError, match="not a note of a run"):
        watchdog.RunNote.read(path)


@pytest.mark.parametrize("text", ["", "nvml:", "cuda:0", "nvml:0,nvml:0", "nvml,nvml:0", "nvml:0,"])
def test_gpus_are_named_clearly_or_refused(fake, text):
    with pytest.raises(InputError, match="--devices"):
        machine.chosen(text)


def test_gpus_by_index_by_uuid_and_all(fake):
    fake.set("count", 2)
    first, second = machine.chosen("nvml")
    assert machine.chosen(f"nvml:1,nvml:{first}") == [second, first]
