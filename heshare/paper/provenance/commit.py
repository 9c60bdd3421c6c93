"""The checkout's git commit, and whether the package's sources or a notebook's code differ from it."""

import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path

from heshare.shared import files

_SOURCES = (".py", ".j2")
"""Files of the package that decide its outputs: code, and texts."""


@cache
def git_commit() -> str | None:
    """Return the checkout's commit, with `+` if tracked files or the package differ from it; None outside a clone."""
    commit = _commit()
    if commit is None:
        return None
    # Unlike `git status`, `git diff` compares a notebook with saved outputs as its filter leaves it.
    return commit + ("+" if _git("diff", "HEAD", "--shortstat") or package_sha256() else "")


@cache
def package_sha256() -> str | None:
    """Return a SHA-256 of this package's sources (Python and templates); None if they are those of the commit.

    It is over the lines "<SHA-256 of the file> <path below the package>", sorted by path.
    """
    package = files.PACKAGE
    if _commit() is not None and package.parent == files.checkout():
        changed = _git("status", "--porcelain", "--untracked-files=all", "--", package.name)
        if changed is not None and not any(line.strip('"').endswith(_SOURCES) for line in changed.splitlines()):
            return None
    sources = sorted(path for path in package.rglob("*") if path.suffix in _SOURCES)
    lines = [f"{files.sha256(path)} {path.relative_to(package).as_posix()}\n" for path in sources]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def is_edited(notebook: Path) -> bool:
    """Return whether a notebook's code differs from the commit's, or is not in the commit.

    Outputs, Markdown and metadata do not count. Outside a git clone the result is False for a notebook of the checkout
    or of the installed package.
    """
    top = files.checkout()
    if top is None and notebook.is_relative_to(files.PACKAGE):
        return False
    if top is None or not notebook.is_relative_to(top):
        return True
    if _commit() is None:
        return False
    committed = _git("show", f"HEAD:{notebook.relative_to(top).as_posix()}")
    return committed is None or code_cells(committed) != code_cells(notebook.read_text(encoding="utf-8"))


def code_cells(notebook: str) -> list[str]:
    """Return the sources of the code cells of a notebook, given as its JSON text, in order, without empty ones."""
    cells = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    return [source for cell in cells if (source := "".join(cell["source"]).strip())]


@cache
def _commit() -> str | None:
    # An archive unpacked inside another clone is not a clone.
    top, clone = files.checkout(), _git("rev-parse", "--show-toplevel")
    if top is None or clone is None or Path(clone).resolve() != top.resolve():
        return None
    return _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str | None:
    top = files.checkout()
    if top is None:
        return None
    command = ["git", "-C", str(top), *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
