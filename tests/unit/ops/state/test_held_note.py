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

from heshare.ops.state.held_note import HeldNote, Life, MachinePlace, discard_parts, found_note
from heshare.shared.errors import DeviceError

HOLD = """
import sys, time
from pathlib import Path
from heshare.ops.state.held_note import HeldNote
note = HeldNote(Path(sys.argv[1]), {"what": "x"})
note.publish()
print("held", flush=True)
time.sleep(60)
"""
LOOK = """
import sys
from pathlib import Path
from heshare.ops.state.held_note import found_note
with found_note(Path(sys.argv[1])) as note:
    print(note.life.value)
"""


def kill(process):
    process.kill()
    process.wait()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "note.json"


@pytest.fixture
def holder(path):
    """A function that starts a process that holds the note, by itself or after a command; it is killed at the end."""
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
    with found_note(path) as note:
        return note.life


def change(path, **facts):
    """Change what a note says, in its place: its lock stays."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def moved(**facts):
    return asdict(replace(MachinePlace.here(), **facts))


def test_a_note_is_seen_whole_private_and_held_until_it_is_removed(path):
    note = HeldNote(path, {"what": "x"})
    assert not path.exists()
    note.publish()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["pid"] == os.getpid()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert life(path) is Life.RUNS
    second = HeldNote(path, {})
    with pytest.raises(FileExistsError):
        second.publish()
    second.remove()
    assert life(path) is Life.RUNS
    note.remove()
    note.remove()
    assert list(path.parent.iterdir()) == []


def test_a_note_that_was_closed_or_whose_process_was_killed_is_of_an_ended_one(path, holder):
    process = holder()
    assert life(path) is Life.RUNS
    kill(process)
    with found_note(path) as note:
        assert note.life is Life.ENDED
        assert life(path) is Life.RUNS, "one process cleans up after a note, and no other one meanwhile"
    path.unlink()
    note = HeldNote(path, {})
    note.publish()
    note.close()
    assert life(path) is Life.ENDED


def test_a_note_of_an_earlier_start_of_the_host_is_of_an_ended_process_whatever_its_number_means_now(path, holder):
    process = holder()
    change(path, place=moved(boot="earlier"))
    assert life(path) is Life.RUNS  # its lock is held, so its place cannot be right
    kill(process)
    change(path, pid=os.getpid())
    assert life(path) is Life.REBOOTED
    change(path, locks=False)
    assert life(path) is Life.REBOOTED


@pytest.mark.parametrize("facts", [{"host": "other", "boot": "other"}, {"machine": "other", "boot": "other"}])
def test_a_note_of_another_host_is_left_alone_and_says_where_to_go(path, holder, facts):
    process = holder()
    change(path, place=moved(**facts))
    assert life(path) is Life.RUNS
    kill(process)
    with found_note(path) as note:
        assert note.life is Life.UNKNOWN
        assert not note.life.over
        assert f"of host {facts.get('host', os.uname().nodename)}, pid namespace" in note.elsewhere()
        assert "Run `heshare restore` there" in note.elsewhere()


def test_without_file_locks_the_process_decides_and_notes_of_others_are_left_alone(path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    note = HeldNote(path, {})
    note.publish()
    note.close()
    assert json.loads(path.read_text())["locks"] is False
    assert life(path) is Life.RUNS
    change(path, started=1)
    assert life(path) is Life.ENDED
    change(path, place=moved(pids="1"))
    with found_note(path) as found:
        assert found.life is Life.UNKNOWN
        assert "file locks do not work there" in found.elsewhere()


@pytest.mark.skipif(not can_unshare(), reason="no right to make a pid namespace")
def test_a_note_of_another_container_is_live_as_long_as_its_process(path, holder):
    process = holder(*CONTAINER)
    facts = json.loads(path.read_text())
    assert facts["pid"] == 1
    assert facts["place"]["pids"] != MachinePlace.here().pids
    assert facts["place"]["boot"] == MachinePlace.here().boot
    assert life(path) is Life.RUNS
    look = [*CONTAINER, sys.executable, "-c", LOOK, str(path)]
    assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == "runs\n"
    kill(process)
    assert until(lambda: life(path) is not Life.RUNS)
    assert life(path) is Life.HIDDEN
    path.unlink()
    holder().kill()
    assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == "hidden\n"


def test_found_note_refuses_links_and_damaged_notes(path):
    path.parent.mkdir()
    target = path.with_name("target")
    target.write_text("{}")
    path.symlink_to(target)
    with pytest.raises(DeviceError, match="cannot be read"), found_note(path):
        pass
    path.unlink()
    with pytest.raises(FileNotFoundError), found_note(path):
        pass
    for text in ("", "{}", "[]", '{"place": {}, "pid": 1, "started": 1}', "\x00" * 10):
        path.write_text(text)
        with pytest.raises(DeviceError, match="not a note of heshare"), found_note(path):
            pass


def test_discard_parts_deletes_old_notes_without_a_name(path):
    note = HeldNote(path, {})
    (part,) = path.parent.iterdir()
    discard_parts(path.parent)
    assert part.exists()
    os.utime(part, (0, 0))
    discard_parts(path.parent)
    assert not part.exists()
    note.remove()
