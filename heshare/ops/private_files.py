"""Private folders and files of a run, which no other user can read, prepare or redirect by a link.

The journal of a run has the environments of its jobs, which may have passwords and keys; so may the outputs.
"""

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path

from heshare.shared.errors import InputError

_ACTION = "Choose another folder."


def make_private_folder(folder: Path) -> Path:
    """Create a folder with mode 0700, independent of the umask, or check an existing one; return it.

    The mode of an existing folder is unchanged: its owner may have opened it to readers on purpose. The files that
    `open_private` creates in it are private in any case. A link is followed if it is owned by the user.

    Raises:
        InputError: another user owns the folder or can write it, or it cannot be created.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            folder.chmod(0o700)
        os.close(_open_folder(folder))
    except OSError as error:
        found = f"what cannot be made or opened ({error.strerror})"
        raise InputError(found, "a folder that can be written", _ACTION, file=folder) from None
    return folder


def open_private(path: Path, flags: int) -> int:
    """Open a file for writing with mode 0600, in a folder of `make_private_folder`; return its descriptor."""
    folder = _open_folder(path.parent)
    try:
        try:
            # Without O_NONBLOCK a pipe would wait for a reader.
            flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path.name, flags, 0o600, dir_fd=folder)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                _require_own_file(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False))
            raise
    finally:
        os.close(folder)
    try:
        _require_own_file(path, os.fstat(descriptor))
        os.fchmod(descriptor, 0o600)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_folder(folder: Path) -> int:
    link = folder.lstat()
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    foreign = [status.st_uid for status in (link, found) if status.st_uid != os.geteuid()]
    if not foreign and not _others_can_write(found):
        return descriptor
    os.close(descriptor)
    if foreign:
        what = "a link" if stat.S_ISLNK(link.st_mode) else "a folder"
        expected = f"a folder of {_name(os.geteuid())}, who runs this"
        raise InputError(f"{what} of {_name(foreign[0])}", expected, _ACTION, file=folder)
    raise InputError(
        f"a folder that others can write (mode {stat.S_IMODE(found.st_mode):04o})",
        "a folder that only its owner can write",
        f"Choose another folder, or, if you trust all that is in it: chmod go-w {folder}.",
        file=folder,
    )


def _others_can_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return True
    return (owner.pw_gid, owner.pw_name) != (group.gr_gid, group.gr_name) or not {*group.gr_mem} <= {owner.pw_name}


def _require_own_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        return
    kinds = {stat.S_IFLNK: "a link", stat.S_IFREG: "a file", stat.S_IFDIR: "a folder"}
    what = kinds.get(stat.S_IFMT(status.st_mode), "a device or pipe")
    expected = f"a file of {_name(os.geteuid())}, who runs this"
    raise InputError(f"{what} of {_name(status.st_uid)}", expected, f"Remove it. {_ACTION}", file=path)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
