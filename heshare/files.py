"""Paths of the package's data and of its checkout, and atomic writing: a file is complete, or it is not there."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from heshare.errors import InputError

PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """Return the top folder of the checkout: `HESHARE_ROOT` if it is set, or the clone that the package lies in.

    None where the package was installed from a wheel.
    """
    override = os.environ.get("HESHARE_ROOT")
    if override:
        return Path(override).resolve()
    return PACKAGE.parent if in_clone() else None


def in_clone() -> bool:
    """Return whether the package lies in a clone of its repository, not among a Python's installed packages."""
    return (PACKAGE.parent / "pyproject.toml").is_file() and (PACKAGE.parent / "data").is_dir()


def user_cache() -> Path:
    """Return the user's folder for what can be computed again: `$XDG_CACHE_HOME/heshare`, or `~/.cache/heshare`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heshare"


def root() -> Path:
    """Return the top folder of the checkout, for what only a checkout has: notebooks, figures, sources of the fit.

    Raises:
        InputError: the package was installed without one.
    """
    folder = checkout()
    if folder is None:
        raise InputError(
            "heshare installed as a package, which has no notebooks and no figures",
            "a clone of its repository",
            "Run this in a clone (pip install -e '.[notebooks]' there), or set HESHARE_ROOT to one.",
        )
    return folder


def data(*parts: str) -> Path:
    """Return a path under `data/`: that of the checkout, or the copy in the installed package.

    Raises:
        InputError: the file does not exist.
    """
    folder = checkout()
    top = folder / "data" if folder is not None else Path(str(resources.files("heshare") / "data"))
    path = top.joinpath(*parts)
    if not path.exists():
        raise InputError(
            "no such file",
            "a file of the folder data/",
            "Correct HESHARE_ROOT, or install heshare again." if folder is None else "Restore it from the repository.",
            file=path,
        )
    return path


def require_writable(folder: str | Path, column: str) -> None:
    """Check before the work that a folder can be written to, or made; nothing is made yet.

    Raises:
        InputError: a file is in its place, or writing is not permitted; `column` names the option.
    """
    folder = Path(folder)
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return
    found = f"{above}, where this user may not write" if above.is_dir() else f"{above}, which is a file"
    raise InputError(found, "a folder to write to, or one that can be made", "Name another one.", column=column)


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, hexadecimal."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def write_atomic(target: str | Path, write: Callable[[Path], object]) -> Path:
    """Call `write` with a temporary path beside `target`, rename that file to `target`, and return it.

    If `write` raises, `target` stays as it was.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def write_text(target: str | Path, text: str) -> Path:
    """Write `text` to `target` in UTF-8 with Unix line ends, atomically."""
    return write_atomic(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))
