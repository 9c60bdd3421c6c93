"""State files under file locks: whether the process that wrote one still runs, also from other containers and hosts."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from support.waiting import CONTAINER, can_unshare, until

from heshare.ops.state.state_file import OwnerStatus, ProcessLocation, StateFile, delete_unpublished, open_state_file
from heshare.shared.errors import DeviceError

HOLD = """
import sys, time
from pathlib import Path
from heshare.ops.state.state_file import StateFile
file = StateFile(Path(sys.argv[1]), {"what": "x"})
file.publish()
print("held", flush=True)
time.sleep(60)
"""
LOOK = """
import sys
from pathlib import Path
from heshare.ops.state.state_file import open_state_file
with open_state_file(Path(sys.argv[1])) as file:
    print(file.owner_status.value)
"""


def kill(process):
    process.kill()
    process.wait()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "file.json"


@pytest.fixture
def holder(path):
    """A function that starts a process that holds the file, by itself or after a command; it is killed at the end."""
    started = []

    def start(*before):
        process = subprocess.Popen([*before, sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        kill(process)
        process.stdout.close()


def life(path):
    with open_state_file(path) as file:
        return file.owner_status


def change(path, **facts):
    """Change what a file says, in its place: its lock stays."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def moved(**facts):
    return asdict(replace(ProcessLocation.here(), **facts))


def test_publish(path):
    """A state file is seen whole, is private, and is held until it is removed."""
    file = StateFile(path, {"what": "x"})
    assert not path.exists()
    file.publish()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["pid"] == os.getpid()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert life(path) is OwnerStatus.RUNNING
    second = StateFile(path, {})
    with pytest.raises(FileExistsError):
        second.publish()
    second.remove()
    assert life(path) is OwnerStatus.RUNNING
    file.remove()
    file.remove()
    assert list(path.parent.iterdir()) == []


def test_unpublished(path):
    """Only old files that were never published are deleted."""
    file = StateFile(path, {})
    (part,) = path.parent.iterdir()
    delete_unpublished(path.parent)
    assert part.exists()
    os.utime(part, (0, 0))
    delete_unpublished(path.parent)
    assert not part.exists()
    file.remove()


def test_ended(path, holder):
    """A file that was closed, or whose process was killed, is of an ended process."""
    process = holder()
    assert life(path) is OwnerStatus.RUNNING
    kill(process)
    with open_state_file(path) as file:
        assert file.owner_status is OwnerStatus.ENDED
        assert life(path) is OwnerStatus.RUNNING, "one process cleans up after a file, and no other one meanwhile"
    path.unlink()
    file = StateFile(path, {})
    file.publish()
    file.close()
    assert life(path) is OwnerStatus.ENDED


def test_rebooted(path, holder):
    """A file of an earlier boot is of an ended process, whatever its number means now."""
    process = holder()
    change(path, place=moved(boot="earlier"))
    assert life(path) is OwnerStatus.RUNNING  # its lock is held, so its place cannot be right
    kill(process)
    change(path, pid=os.getpid())
    assert life(path) is OwnerStatus.REBOOTED
    change(path, locks=False)
    assert life(path) is OwnerStatus.REBOOTED


@pytest.mark.parametrize("facts", [{"host": "other", "boot": "other"}, {"machine": "other", "boot": "other"}])
def test_other_host(path, holder, facts):
    """A file of another host is left alone and says where to restore it."""
    process = holder()
    change(path, place=moved(**facts))
    assert life(path) is OwnerStatus.RUNNING
    kill(process)
    with open_state_file(path) as file:
        assert file.owner_status is OwnerStatus.UNKNOWN
        assert not file.owner_status.has_ended
        assert f"of host {facts.get('host', os.uname().nodename)}, pid namespace" in file.elsewhere()
        assert "Run `heshare restore` there" in file.elsewhere()


def test_no_locks(path, monkeypatch):
    """Without file locks the process decides; files of other places are left alone."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    file = StateFile(path, {})
    file.publish()
    file.close()
    assert json.loads(path.read_text())["locks"] is False
    assert life(path) is OwnerStatus.RUNNING
    change(path, started=1)
    assert life(path) is OwnerStatus.ENDED
    change(path, place=moved(pids="1"))
    with open_state_file(path) as found:
        assert found.owner_status is OwnerStatus.UNKNOWN
        assert "file locks do not work there" in found.elsewhere()


@pytest.mark.skipif(not can_unshare(), reason="no right to make a pid namespace")
def test_container(path, holder):
    """A file of another container is live as long as its process."""
    process = holder(*CONTAINER)
    facts = json.loads(path.read_text())
    assert facts["pid"] == 1
    assert facts["place"]["pids"] != ProcessLocation.here().pids
    assert facts["place"]["boot"] == ProcessLocation.here().boot
    assert life(path) is OwnerStatus.RUNNING
    look = [*CONTAINER, sys.executable, "-c", LOOK, str(path)]
    assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == "runs\n"
    kill(process)
    assert until(lambda: life(path) is not OwnerStatus.RUNNING)
    assert life(path) is OwnerStatus.HIDDEN
    path.unlink()
    holder().kill()
    assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == "hidden\n"


def test_damaged(path):
    """Links and damaged files are refused."""
    path.parent.mkdir()
    target = path.with_name("target")
    target.write_text("{}")
    path.symlink_to(target)
    with pytest.raises(DeviceError, match="cannot be read"), open_state_file(path):
        pass
    path.unlink()
    with pytest.raises(FileNotFoundError), open_state_file(path):
        pass
    for text in ("", "{}", "[]", '{"place": {}, "pid": 1, "started": 1}', "\x00" * 10):
        path.write_text(text)
        with pytest.raises(DeviceError, match="not a state file of heshare"), open_state_file(path):
            pass
