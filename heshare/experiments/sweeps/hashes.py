"""Hashes of the code, data and libraries that results depend on."""

import hashlib
import platform
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module, metadata, util
from pathlib import Path

from heshare import files
from heshare.errors import InputError

_FOLDERS = (
    "caches",
    "inputs",
    "world",
    "devices",
    "profiles",
    "prediction",
    "scheduling",
    "policies",
    "running",
    "plus",
    "systems",
    "experiments/sweeps",
)
"""The parts of the package that a cell's result depends on, beside the modules at its top."""
_NOT_COMPUTING = ("__init__.py", "__main__.py", "api.py", "study.py")
"""Modules at the top, and those of the systems, that call a sweep or draw its results."""
_LIBRARIES = ("numpy", "scipy", "pandas", "scikit-learn", "numba", "pymoo", "moocore")


@cache
def code_hash() -> str:
    """Return a SHA-256 over this package's source, its `data/` and the libraries' versions.

    Source that only draws or prints results is left out: a new caption makes no result stale.
    """
    digest = hashlib.sha256()
    for name, path in sorted(_named_files()):
        digest.update(f"{name}\0{files_hash([path])}\n".encode())
    for library in _LIBRARIES:
        digest.update(f"{library} {_version(library)}\n".encode())
    digest.update("python {}.{}".format(*platform.python_version_tuple()).encode())
    return digest.hexdigest()


def files_hash(paths: Iterable[str | Path]) -> str:
    """Return a SHA-256 over the bytes of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        content = Path(path).read_bytes()
        # With its length, so that bytes cannot move from one file to the next unseen.
        digest.update(b"%d\0" % len(content) + content)
    return digest.hexdigest()


def module_hash(module: str) -> str:
    """Return the SHA-256 of a module's source; empty for one that `code_hash` covers.

    Raises:
        InputError: there is no such module, or it has no file, so that a change of it would go unnoticed.
    """
    file = _file(module)
    if file is None or not file.is_file():
        raise InputError(
            f"{module}, which has no file",
            "a module that is imported from a file",
            "Put what it defines into a .py file, so that kept results can notice when it changes.",
            column="module",
        )
    return "" if file in package_sources() else files_hash([file])


def package_sources() -> list[Path]:
    """Return the package's source files that a result depends on."""
    return list(_sources_of(files.PACKAGE))


@cache
def _sources_of(package: Path) -> tuple[Path, ...]:
    sources = [*package.glob("*.py"), *(path for folder in _FOLDERS for path in (package / folder).rglob("*.py"))]
    return tuple(sorted(path for path in sources if path.name not in _NOT_COMPUTING))


def data_files() -> list[Path]:
    """Return the files of `data/` without hidden ones, sorted."""
    paths = files.data().rglob("*")
    return sorted(path for path in paths if path.is_file() and not path.name.startswith("."))


def _file(module: str) -> Path | None:
    if module not in sys.modules:
        try:
            if util.find_spec(module) is None:
                return None
            import_module(module)
        except ImportError:
            return None
    file = getattr(sys.modules[module], "__file__", None)
    return None if file is None else Path(file).resolve()


def _named_files() -> list[tuple[str, Path]]:
    # Results of live comparisons are in data/, but nothing is computed from them.
    live = files.data() / "live"
    tables = [path for path in data_files() if not path.is_relative_to(live)]
    folders = ((files.PACKAGE, package_sources()), (files.data().parent, tables))
    return [(path.relative_to(top).as_posix(), path) for top, paths in folders for path in paths]


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "none"
