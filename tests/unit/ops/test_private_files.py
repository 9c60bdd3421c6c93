"""Folders and files of a run: modes under any umask, and links, owners and modes that are refused."""

from __future__ import annotations

import os
import stat

import pytest

from heshare.ops.executor.job_process import CommandWorker
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


def test_new_folders_and_files_are_private_whatever_the_umask(tmp_path, umask):
    folder = make_private_folder(tmp_path / "run")
    write(folder / "a.log")
    assert (mode(folder), mode(folder / "a.log")) == (0o700, 0o600)


def test_a_folder_or_link_of_the_user_is_used_as_it_is_and_its_files_become_private(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / NAME).touch(0o644)
    (tmp_path / "run").symlink_to(folder)
    RunJournal(tmp_path / "run", Run("random")).close()
    assert (mode(folder), mode(folder / NAME)) == (0o755, 0o600)


@pytest.mark.parametrize("target", ["there", "missing"])
def test_open_private_refuses_a_link_and_leaves_its_target_as_it_was(tmp_path, target):
    (tmp_path / "there").write_text("before")
    (tmp_path / "a.log").symlink_to(tmp_path / target)
    with pytest.raises(InputError, match=r"a.log: found a link of .*Remove it"):
        write(tmp_path / "a.log")
    assert (tmp_path / "there").read_text() == "before"
    assert not (tmp_path / "missing").exists()


def test_open_private_refuses_a_pipe_without_waiting_for_its_reader(tmp_path):
    os.mkfifo(tmp_path / "a.log")
    for flags in (os.O_WRONLY, os.O_RDWR):
        with pytest.raises(InputError, match="a device or pipe"):
            open_private(tmp_path / "a.log", flags)


@pytest.mark.parametrize("kind", ["world", "group"])
def test_a_folder_that_others_can_write_is_refused_with_the_command_that_mends_it(tmp_path, kind):
    folder = tmp_path / "run"
    folder.mkdir()
    if kind == "group":
        if os.geteuid() != 0:
            pytest.skip("only root can give files to another group")
        os.chown(folder, -1, 54321)
    folder.chmod(0o775 if kind == "group" else 0o757)
    with pytest.raises(InputError, match=r"others can write \(mode 07\d\d\).*chmod go-w"):
        RunJournal(folder, Run("random"))
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    RunJournal(folder, Run("random")).close()


def test_a_folder_that_the_own_group_of_its_owner_can_write_is_accepted(tmp_path):
    import grp
    import pwd

    me = pwd.getpwuid(os.geteuid())
    group = grp.getgrgid(me.pw_gid)
    if group.gr_name != me.pw_name or set(group.gr_mem) - {me.pw_name}:
        pytest.skip("this user has no group of its own")
    (tmp_path / "run").mkdir()
    os.chown(tmp_path / "run", -1, me.pw_gid)
    (tmp_path / "run").chmod(0o775)
    make_private_folder(tmp_path / "run")


@root_only
@pytest.mark.parametrize("what", ["folder", "link to a folder", "file"])
def test_what_another_user_prepared_is_refused(tmp_path, what):
    folder, own = tmp_path / "run", tmp_path / "own"
    own.mkdir()
    if what == "link to a folder":
        folder.symlink_to(own)
        os.chown(folder, 54321, 54321, follow_symlinks=False)
    else:
        folder.mkdir()
        (folder / NAME).touch()
        os.chown(folder if what == "folder" else folder / NAME, 54321, 54321)
    with pytest.raises(InputError, match=rf"found a {what.split()[0]} of user 54321; expected .* root, who runs this"):
        RunJournal(folder, Run("random"))
    assert list(own.iterdir()) == []


def test_a_job_whose_output_is_a_link_does_not_start(tmp_path):
    (tmp_path / "a.1.log").symlink_to(tmp_path / "secret")
    with pytest.raises(Exception, match=r"a: sh does not start: .*found a link of"):
        CommandWorker(
            "a", ["sh", "-c", "echo hello"], directory=tmp_path, environment={}, log=tmp_path / "a.1.log",
            iterations=1, grace_s=1.0, output_mib=1,
        )  # fmt: skip
    assert not (tmp_path / "secret").exists()
