"""What results depend on besides their parameters: the code, the data and the libraries, as one hash."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module, metadata, util
from pathlib import Path

from heshare import files
from heshare.errors import InputError

_STAGES = ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running")
_BASE = ("errors.py", "files.py")
_LIBRARIES = ("numpy", "scipy", "pandas", "scikit-learn", "numba", "pymoo", "moocore")


@cache
def code() -> str:
    """SHA-256 over this package's source up to the running stage, its `data/`, and the libraries' versions.

    What only draws or prints results is left out: a new caption makes no result stale.
    """
    total = hashlib.sha256()
    for name, path in _inputs():
        total.update(f"{name}\0{hash_of([path])}\n".encode())
    for library in _LIBRARIES:
        total.update(f"{library} {_version(library)}\n".encode())
    total.update("python {}.{}".format(*platform.python_version_tuple()).encode())
    return total.hexdigest()


def hash_of(paths: Iterable[str | Path]) -> str:
    """SHA-256 over the bytes of files, in the order given."""
    total = hashlib.sha256()
    for path in paths:
        content = Path(path).read_bytes()
        total.update(b"%d\0" % len(content) + content)
    return total.hexdigest()


def source(module: str) -> str:
    """SHA-256 of a module's source; empty for one that `code` covers.

    Raises:
        InputError: there is no such module, or it has no file, so that a change of it would go unnoticed.
    """
    package, stage = [*module.split("."), ""][:2]
    if package == "heshare" and (stage in _STAGES or f"{stage}.py" in _BASE):
        return ""
    file = _file(module)
    if file is None or not Path(file).is_file():
        raise InputError(
            column="module",
            found=f"{module}, which has no file",
            expected="a module that is imported from a file",
            action="Put what it defines into a .py file, so that kept results can notice when it changes.",
        )
    return hash_of([file])


def _file(module: str) -> str | None:
    if module not in sys.modules:
        try:
            if util.find_spec(module) is None:
                return None
            import_module(module)
        except ImportError:
            return None
    return getattr(sys.modules[module], "__file__", None)


def _inputs() -> list[tuple[str, Path]]:
    package = files.PACKAGE
    sources = [package / name for name in _BASE]
    for stage in _STAGES:
        sources += (package / stage).rglob("*.py")
    data = files.root() / "data"
    # What live comparisons wrote is a result, not what results depend on.
    found = (path for path in data.rglob("*") if not path.is_relative_to(data / "live"))
    tables = [path for path in found if path.is_file() and not path.name.startswith(".")]
    named = [(path.relative_to(package).as_posix(), path) for path in sources]
    named += [(path.relative_to(files.root()).as_posix(), path) for path in tables]
    return sorted(named)


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "none"
