"""Folder of numba's compilation cache where numba's default folders are not writable."""

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from heshare.shared import files


def set_numba_cache() -> None:
    """Set `NUMBA_CACHE_DIR` to a temporary folder if numba has no writable cache folder and would raise an error.

    Numba writes to `NUMBA_CACHE_DIR`, else next to the sources, else to the user's cache. The temporary folder is
    deleted when this process ends, so the next process compiles again.
    """
    if "NUMBA_CACHE_DIR" in os.environ or os.access(files.PACKAGE, os.W_OK):
        return
    with suppress(RuntimeError, OSError):  # there is no home folder, or it is another user's
        existing = next(folder for folder in files.user_cache().parents if folder.exists())
        if os.access(existing, os.W_OK):
            return
    with suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="heshare-numba-"))
        os.environ["NUMBA_CACHE_DIR"] = str(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
