"""Folders and files of a run: modes under any umask, and links, owners and modes that are refused."""

from __future__ import annotations

import os
import stat

import pytest

from heshare.ops.jobs.entries import Run
from heshare.ops.jobs.run_journal import NAME, RunJournal
from heshare.ops.private_files import make_private_folder, open_private
from heshare.shared.errors import InputError

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def write(path):
    os.close(open_private(path, os.O_WRONLY | os.O_APPEND))


def test_umask(tmp_path, umask):
    """New folders and files are private whatever the umask."""
    folder = make_private_folder(tmp_path / "run")
    write(folder / "a.log")
    assert (mode(folder), mode(folder / "a.log")) == (0o700, 0o600)


def test_own_folder(tmp_path):
    """A folder of the user is used as it is; its files become private."""
    folder = tmp_path / "disk"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / NAME).touch(0o644)
    (tmp_path / "run").symlink_to(folder)
    RunJournal(tmp_path / "run", Run("random")).close()
    assert (mode(folder), mode(folder / NAME)) == (0o755, 0o600)


@pytest.mark.parametrize("target", ["there", "missing"])
def test_link(tmp_path, target):
    """A link is refused, and its target stays as it was."""
    (tmp_path / "there").write_text("before")
    (tmp_path / "a.log").symlink_to(tmp_path / target)
    with pytest.raises(InputError, match=r"a\.log: found a link"):
        write(tmp_path / "a.log")
    assert (tmp_path / "there").read_text() == "before"
    assert not (tmp_path / "missing").exists()


def test_pipe(tmp_path):
    """A pipe is refused without waiting for its reader."""
    os.mkfifo(tmp_path / "a.log")
    for flags in (os.O_WRONLY, os.O_RDWR):
        with pytest.raises(InputError, match="a device or pipe"):
            open_private(tmp_path / "a.log", flags)


def test_own_group(tmp_path):
    """A folder that the own group of its owner can write is used; one of another group or of all is refused."""
    import grp
    import pwd

    me = pwd.getpwuid(os.geteuid())
    group = grp.getgrgid(me.pw_gid)
    if group.gr_name != me.pw_name or set(group.gr_mem) - {me.pw_name}:
        pytest.skip("this user has no group of its own")
    folder = tmp_path / "run"
    folder.mkdir()
    os.chown(folder, -1, me.pw_gid)
    folder.chmod(0o775)
    make_private_folder(folder)

    for group, mode in ((me.pw_gid, 0o757), *[(54321, 0o775)] * (os.geteuid() == 0)):
        os.chown(folder, -1, group)
        folder.chmod(mode)
        with pytest.raises(InputError, match="chmod go-w"):
            RunJournal(folder, Run("random"))
        assert list(folder.iterdir()) == []


@root_only
@pytest.mark.parametrize("what", ["folder", "link to a folder", "file"])
def test_other_user(tmp_path, what):
    """A folder, link or file of another user is refused."""
    folder, own = tmp_path / "run", tmp_path / "own"
    own.mkdir()
    if what == "link to a folder":
        folder.symlink_to(own)
        os.chown(folder, 54321, 54321, follow_symlinks=False)
    else:
        folder.mkdir()
        (folder / NAME).touch()
        os.chown(folder if what == "folder" else folder / NAME, 54321, 54321)
    with pytest.raises(InputError, match=f"found a {what.split()[0]} of user 54321"):
        RunJournal(folder, Run("random"))
    assert list(own.iterdir()) == []
