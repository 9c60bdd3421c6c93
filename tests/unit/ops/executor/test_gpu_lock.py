"""Locks of GPUs: one run a GPU, for all users of a machine, whoever made the file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.waiting import end

from heshare.ops.executor.gpu_lock import GpuInUseError, GpuLock, lock_path
from heshare.shared.errors import DeviceError

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


def held(*arguments):
    """Return a process that holds the lock of GPU-x, as the user of that id if one is given."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, *arguments], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


def test_names_holder():
    """A lock names its holder, and is free once that is killed."""
    holder = held()
    with pytest.raises(GpuInUseError, match=f"process {holder.pid}"):
        GpuLock("GPU-x")
    GpuLock("GPU-y").close()
    holder.kill()
    lock = GpuLock("GPU-x")  # taken although the killed holder was never waited for
    lock.close()
    end(holder)


def test_folder(monkeypatch, tmp_path):
    """Locks of all users are in one folder, which must exist."""
    monkeypatch.setenv("HESHARE_LOCKS", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="HESHARE_LOCKS"):
        GpuLock("GPU-x")
    monkeypatch.delenv("HESHARE_LOCKS")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert lock_path("GPU-x") == Path("/run/lock/heshare-GPU-x.lock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_all_users(monkeypatch):
    """A lock excludes all users, whoever made its file."""
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


@pytest.mark.parametrize("make", [lambda path: path.symlink_to(path.with_name("target")), os.mkfifo])
def test_no_plain_file(tmp_path, make):
    """A link or a pipe in the place of a lock is refused."""
    make(tmp_path / "heshare-GPU-x.lock")
    with pytest.raises(DeviceError, match="cannot be opened"):
        GpuLock("GPU-x")
    assert not (tmp_path / "target").exists()
