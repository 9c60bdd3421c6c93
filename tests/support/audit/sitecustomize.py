"""Logs which files below `READS_ROOT` each Python process reads, a line `pid path` each, in the file `READS_LOG`.

Python imports this module at its start where its folder is on `PYTHONPATH`. Files that are read for their hash do not
count, unless it is the key of a kept object, which is computed from them.
"""

import os
import sys
from typing import Any

_LOG, _ROOT = os.environ.get("READS_LOG", ""), os.environ.get("READS_ROOT", "") + os.sep
_HASHES = ("sha256", "files_hash")


def _log_read(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not isinstance(arguments[0], str) or not arguments[0].startswith(_ROOT):
        return
    frame = sys._getframe()
    for _ in range(6):
        if frame.f_back is None:
            break
        frame = frame.f_back
        if frame.f_code.co_name in _HASHES:
            if frame.f_back is not None and frame.f_back.f_code.co_name == "key_of":
                break
            return
    os.write(_file, f"{os.getpid()} {arguments[0].removeprefix(_ROOT)}\n".encode())


if _LOG:
    _file = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sys.addaudithook(_log_read)
