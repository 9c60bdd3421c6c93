"""Notes under file locks: whether the process that wrote one still runs, also from other containers and hosts."""

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


def test_a_note_is_seen_whole_private_and_held_until_it_is_removed(path):
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


def test_a_note_that_was_closed_or_whose_process_was_killed_is_of_an_ended_one(path, holder):
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


def test_a_note_of_an_earlier_start_of_the_host_is_of_an_ended_process_whatever_its_number_means_now(path, holder):
    process = holder()
    change(path, place=moved(boot="earlier"))
    assert life(path) is OwnerStatus.RUNNING  # its lock is held, so its place cannot be right
    kill(process)
    change(path, pid=os.getpid())
    assert life(path) is OwnerStatus.REBOOTED
    change(path, locks=False)
    assert life(path) is OwnerStatus.REBOOTED


@pytest.mark.parametrize("facts", [{"host": "other", "boot": "other"}, {"machine": "other", "boot": "other"}])
def test_a_note_of_another_host_is_left_alone_and_says_where_to_go(path, holder, facts):
    process = holder()
    change(path, place=moved(**facts))
    assert life(path) is OwnerStatus.RUNNING
    kill(process)
    with open_state_file(path) as file:
        assert file.owner_status is OwnerStatus.UNKNOWN
        assert not file.owner_status.has_ended
        assert f"of host {facts.get('host', os.uname().nodename)}, pid namespace" in file.elsewhere()
        assert "Run `heshare restore` there" in file.elsewhere()


def test_without_file_locks_the_process_decides_and_notes_of_others_are_left_alone(path, monkeypatch):
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
def test_a_note_of_another_container_is_live_as_long_as_its_process(path, holder):
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


def test_found_note_refuses_links_and_damaged_notes(path):
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


def test_discard_parts_deletes_old_notes_without_a_name(path):
    file = StateFile(path, {})
    (part,) = path.parent.iterdir()
    delete_unpublished(path.parent)
    assert part.exists()
    os.utime(part, (0, 0))
    delete_unpublished(path.parent)
    assert not part.exists()
    file.remove()
