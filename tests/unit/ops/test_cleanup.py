"""The cleanup process: restarts, pauses, dismissal and damaged notes; killed runs are restored in the drills."""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.kill_drill import UUID
from support.waiting import until

from heshare.ops import cleanup
from heshare.ops.cleanup import CleanupProcess, pauses_s
from heshare.ops.executor.gpu_lock import GpuLock
from heshare.ops.state.run_state_file import find_runs, run_state_file_of_this_process
from heshare.shared.errors import DeviceError
from heshare.shared.processes import is_running


def test_restarted(doubles):
    """A cleanup process that is killed is restarted, with the same locks."""
    told, lock = [], GpuLock(UUID)
    one = CleanupProcess([lock.descriptor], report=told.append)
    first = one.pid
    os.kill(first, signal.SIGKILL)
    assert until(lambda: told)
    assert "SIGKILL" in told[0]
    assert one.pid != first
    inherited = {path.stat().st_ino for path in Path(f"/proc/{one.pid}/fd").iterdir()}
    assert lock.path.stat().st_ino in inherited
    for _ in range(2):
        one.dismiss()
    assert not is_running(one.pid)
    lock.close()


def test_dismissed(doubles):
    """A cleanup process that is dismissed with something left goes on until that is given back."""
    run = run_state_file_of_this_process(doubles.folder / "run", "0" * 32, [])
    file = run.write()
    run.publish(file)
    one = CleanupProcess()
    one.dismiss(all_released=False)
    file.close()  # as a run leaves the note of what it could not give back
    assert until(lambda: not is_running(one.pid))
    assert find_runs() == []


def test_killed_at_start(tmp_path, monkeypatch):
    """A cleanup process killed at its start is started again a few times; then the run is refused."""
    program, count = tmp_path / "python", tmp_path / "count"
    program.write_text(
        f'#!/bin/sh\necho >> {count}\n[ $(wc -l < {count}) -gt 2 ] || kill -9 $$\nexec {sys.executable} "$@"'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    CleanupProcess().dismiss()
    assert len(count.read_text().splitlines()) == 3
    program.write_text("#!/bin/sh\nexit 3")
    with pytest.raises(DeviceError, match="exit code 3"):
        CleanupProcess()


def test_restart_pauses(monkeypatch):
    """Pauses before restarts grow up to a longest one, and begin again after a process that lived long."""
    *_, before_last, longest = islice(pauses_s(0.2), 20)
    assert before_last == longest > 0.8
    one = object.__new__(CleanupProcess)
    now_s, pauses, lives_s = [0.0], [], iter([0.0, 1.0, 1.0, 61.0, 1.0])

    def wait():
        life_s = next(lives_s, None)
        one._dismissed = life_s is None
        now_s[0] += life_s or 0.0
        return 1

    process = SimpleNamespace(wait=wait, stdin=SimpleNamespace(close=lambda: None))
    parts = {"_turn": threading.Lock(), "_report": lambda text: None, "_process": process, "_start": lambda: process}
    vars(one).update(parts)
    monkeypatch.setattr(cleanup, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=pauses.append))
    one._restart()
    assert pauses == [0.2, 0.4, 0.8, 0.2, 0.4]


def test_damaged_note(doubles):
    """A damaged note of a run is named and restores nothing: it may be of a run that runs."""
    folder = doubles.folder / "state" / "heshare"
    folder.mkdir(parents=True)
    (folder / "run-0.json").write_text('{"token": "x", "pid": 1}')
    assert [run.text.count("not a state file of heshare") for run in find_runs()] == [1]
    restored = cleanup.restore()
    assert (restored.runs, len(restored.refused)) == ((), 1)
    (folder / "run-0.json").unlink()
