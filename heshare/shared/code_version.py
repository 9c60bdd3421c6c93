"""Version of the code that computed a stored result."""

import hashlib
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from heshare.shared import files
from heshare.shared.version import __version__

CHANGED = "+"
"""Suffix of the version of a clone whose code or data differ from its commit."""


@cache
def package_version() -> str:
    """Return the version of the package, such as `0.3.0`; in a clone with its commit: `0.3.0 1a2b...`.

    In a clone it ends with `CHANGED` if code or data differ from the commit, or if git does not answer.
    """
    if not files.in_clone():
        return __version__

    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=all", "--", "heshare", "data", "pyproject.toml")
    unchanged = commit is not None and changes == ""
    return f"{__version__} {commit or 'without a commit'}{'' if unchanged else CHANGED}"


def files_hash(paths: Iterable[str | Path]) -> str:
    """Return a SHA-256 over the bytes of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        content = Path(path).read_bytes()
        # With its length: else moving bytes from the end of one file to the start of the next would give the same hash.
        digest.update(b"%d\0" % len(content) + content)
    return digest.hexdigest()


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(files.PACKAGE.parent), *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
