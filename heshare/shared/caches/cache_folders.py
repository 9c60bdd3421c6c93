"""Folders outside the sources where this user may cache what can be computed again."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from heshare.shared import files


def cache_folders(name: str) -> Iterator[Path]:
    """Yield the folders that exist or can be made for the cache of that name, the best first; maybe none.

    That is the user's cache, or a private folder for the time until the machine is started again.
    """
    with suppress(OSError, RuntimeError):  # there is no home folder, or it cannot be written
        folder = files.user_cache() / name
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            yield folder
    with suppress(OSError):
        # What numba caches is code, so nobody else may write there.
        folder = Path(tempfile.gettempdir()) / f"heshare-{os.geteuid()}-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
        if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077:
            yield folder
