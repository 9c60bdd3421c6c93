"""Paths of the package's data and its checkout, reading of input files, and atomic writing of output files."""

import errno
import hashlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import BinaryIO

from heshare.shared.display import found
from heshare.shared.errors import InputError, require

MOST_BYTES = 256 << 20
"""Most bytes of a file that is read whole: a plan of 100,000 tasks has 20 MiB."""

PACKAGE = Path(__file__).resolve().parents[1]


def checkout() -> Path | None:
    """Return the top folder of the checkout: `HESHARE_ROOT` if it is set, or the clone that has the package.

    None where the package was installed from a wheel.
    """
    override = os.environ.get("HESHARE_ROOT")
    if override:
        return Path(override).resolve()
    return PACKAGE.parent if in_clone() else None


def in_clone() -> bool:
    """Return whether the package is imported from a clone of its repository, not from an installed wheel."""
    return (PACKAGE.parent / "pyproject.toml").is_file() and (PACKAGE.parent / "data").is_dir()


def user_cache() -> Path:
    """Return the user's cache folder: `$XDG_CACHE_HOME/heshare`, or `~/.cache/heshare`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heshare"


def root() -> Path:
    """Return the top folder of the checkout, which has the sources of the fit and of the reference.

    Raises:
        InputError: the package is installed from a wheel.
    """
    folder = checkout()
    if folder is None:
        raise InputError(
            "heshare installed as a package, which cannot be changed",
            "a clone of its repository",
            "Run this in a clone (pip install -e '.[notebooks]' there), or set HESHARE_ROOT to one.",
        )
    return folder


def data(*parts: str) -> Path:
    """Return a path under `data/`: that of the checkout, or the copy in the installed package."""
    folder = checkout()
    top = folder / "data" if folder is not None else Path(str(resources.files("heshare") / "data"))
    path = top.joinpath(*parts)
    action = "Correct HESHARE_ROOT, or install heshare again." if folder is None else "Restore it from the repository."
    require(None, "no such file", path.exists(), "a file of the folder data/", action, file=path)
    return path


def notebooks() -> Path:
    """Return the folder of the notebooks: that of the checkout, or the copy in the installed package."""
    return _here_or_packaged("notebooks")


def reference() -> Path:
    """Return the folder of the reference: that of the checkout, or what of it the installed package has."""
    return _here_or_packaged("reference")


def _here_or_packaged(name: str) -> Path:
    folder = checkout()
    return folder / name if folder is not None else PACKAGE / name


def workplace() -> Path:
    """Return the folder that has `figures/` and `build/`: the checkout, or else the current folder."""
    return checkout() or Path.cwd()


def require_writable(folder: str | Path, column: str) -> None:
    """Raise `InputError` unless a folder is writable or can be created; `column` is the option that names it."""
    folder = as_path(folder)
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return
    what = f"{above}, where this user may not write" if above.is_dir() else f"{above}, which is a file"
    raise InputError(what, "a folder to write to, or one that can be made", "Name another one.", column=column)


def as_path(path: object) -> Path:
    """Return the path of an input; `InputError` for an object that names no file."""
    if isinstance(path, str | os.PathLike):
        return Path(path)
    raise InputError(found(path), "the path of a file", "Pass a path.", column="path")


def open_input(path: str | Path) -> BinaryIO:
    """Open a file for reading; an `OSError` for a pipe or a device, which could block or never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:
        raise FileNotFoundError(errno.ENOENT, "no file has such a name", str(path)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "a folder, pipe or device, not a file", str(path))
    return os.fdopen(descriptor, "rb")


def read_input(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the UTF-8 text of a file that is read whole; errors as `open_input`, and an `OSError` if it is larger."""
    with open_input(path) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes >> 20} MiB", str(path))
    return content.decode("utf-8")


def sha256(path: str | Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def write_atomic(target: str | Path, write: Callable[[Path], object], *, private: bool = False) -> Path:
    """Call `write` with a temporary path in the folder of `target`, rename that file to `target`, and return `target`.

    If `write` raises, `target` is unchanged; an `OSError` names `target`, not the temporary file. If `target` is a
    symbolic link, the file that it leads to is replaced. A pipe, a terminal, `/dev/null` or `/dev/stdout` gets the
    bytes once they are complete. A file that exists keeps its mode, a new one has that of the user's umask. With
    `private` only the user may read the file (mode 0600), and a link is replaced, never followed.
    """
    target = Path(target)
    if not private and is_stream(target):
        with tempfile.TemporaryDirectory() as folder:
            write(complete := Path(folder) / (target.name or "text"))
            with _naming(target), complete.open("rb") as source, os.fdopen(_open_stream(target), "wb") as stream:
                shutil.copyfileobj(source, stream)
        return target

    place = target if private else Path(os.path.realpath(target))
    temporary = place.parent / f".{place.stem[:40]}-{secrets.token_hex(8)}{place.suffix}"
    with _naming(target, temporary):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, "a folder, not a file")
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() and not private else None
        # Until it is complete, the content of a file with a mode of its own is the user's alone.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(temporary, flags, 0o666 if mode is None and not private else 0o600))

    try:
        with _naming(target, temporary):
            write(temporary)
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
    return target


@contextmanager
def _naming(target: Path, temporary: Path | None = None) -> Iterator[None]:
    """Let an `OSError` that names no file, or only the temporary one or a folder above, name the file asked for."""
    try:
        yield
    except OSError as error:
        named = None if error.filename is None else Path(error.filename)
        if error.errno is not None and named in (None, temporary, *target.parents):
            raise OSError(error.errno, error.strerror, str(target)) from None
        raise


def write_text(target: str | Path, text: str, *, private: bool = False) -> Path:
    """Write `text` to `target` in UTF-8 with Unix line ends, as `write_atomic`."""
    return write_atomic(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"), private=private)


def is_stream(target: Path) -> bool:
    """Return whether a path leads to a device, pipe, socket or open descriptor, which a rename must not replace."""
    try:
        mode = target.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or _descriptor(target) is not None


def _open_stream(target: Path) -> int:
    # An open descriptor is duplicated, not opened again, so that the position in the file does not change.
    descriptor = _descriptor(target)
    if descriptor is not None:
        sys.stdout.flush()
        return os.dup(descriptor)
    if target.is_block_device():
        raise InputError("a disk", "a file, or a stream such as /dev/stdout", "Name another file.", file=target)
    return os.open(target, os.O_WRONLY | os.O_CLOEXEC)


def _descriptor(path: Path) -> int | None:
    # The number of this process's descriptor that a path such as `/dev/stdout` leads to; None for others.
    for _ in range(40):  # links that the system follows
        if os.path.realpath(path.parent) == f"/proc/{os.getpid()}/fd" and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None
