"""Where a figure or table comes from: the sidecar written beside each output."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module, metadata
from pathlib import Path

from heshare import files
from heshare.errors import InputError

KINDS = ("emulated", "measured", "published")
_PACKAGES = ("numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "pymoo", "moocore")
_PLACES = frozenset({"out_dir", "cells_dir"})


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file's bytes, as hex."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def version() -> str:
    """This package's version."""
    # By name: the package itself stands above its stages, so they do not import it.
    return str(import_module("heshare").__version__)


@cache
def versions() -> dict[str, str]:
    """The versions of Python, of this package and of those that its numbers pass through."""
    found = {"python": platform.python_version(), "heshare": version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def inputs() -> dict[str, str]:
    """SHA-256 by path of every file in the checkout's `data/`, sorted: whatever was read is among them."""
    top = files.root()
    listed = sorted(path for path in (top / "data").rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(top).as_posix(): sha256(path) for path in listed}


def _below(notebook: Path) -> str:
    """A notebook's path below `notebooks/`."""
    top = files.root() / "notebooks"
    return notebook.relative_to(top).as_posix() if notebook.is_relative_to(top) else notebook.name


@cache
def git_commit() -> str | None:
    """The checkout's commit, with `+` when tracked files differ from it; None outside a git checkout."""

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(files.root()), *words], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return None
    return commit + ("+" if ask("status", "--porcelain", "--untracked-files=no") else "")


def check_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """The different provenances in the order emulated, measured, published.

    Raises:
        InputError: one that is none of the three, or none at all.
    """
    found = set(kinds)
    if not found or found - set(KINDS):
        raise InputError(
            column="provenance",
            found=", ".join(sorted(map(str, found))) or "nothing",
            expected="emulated, measured or published",
            action="Say where the rows come from.",
        )
    return tuple(kind for kind in KINDS if kind in found)


def sidecar(
    *,
    name: str,
    caption: str,
    rows: Mapping[str, int],
    notebook: Path | None,
    parameters: Mapping[str, object],
) -> str:
    """The JSON text written beside an output.

    Args:
        name: the output's name, such as `fig06_comparison`.
        caption: what it shows and where its rows come from.
        rows: how many rows are emulated, measured and published.
        notebook: the notebook that made it, or None.
        parameters: the notebook's parameters; the output folder is left out.
    """
    check_kinds(rows)
    kept = {key: value for key, value in sorted(parameters.items()) if key not in _PLACES}
    content = {
        "name": name,
        "caption": caption,
        "provenance": dict(sorted(rows.items())),
        "notebook": None if notebook is None else f"notebooks/{_below(notebook)}",
        "notebook_sha256": None if notebook is None else sha256(notebook),
        "profile": kept.get("profile"),
        "seed": kept.get("seed"),
        "parameters": kept,
        "input_files": inputs(),
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "git_commit": git_commit(),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
