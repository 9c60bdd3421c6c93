"""Where the metrics of a run go: a file for the textfile collector of node_exporter, or an HTTP address."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from heshare.shared import files
from heshare.shared.errors import InputError

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]*):([0-9]{1,5})")
_OPTION = "--metrics"


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """An address that is listened at; port 0 is a free one."""

    host: str
    port: int


def parse_target(text: str) -> Path | HttpAddress:
    """Return the file or the address that `--metrics` names; an address without a host is this machine's loopback.

    Raises:
        InputError: no such port, or a file that node_exporter would not read or that cannot be written.
    """
    match = _ADDRESS.fullmatch(text)
    if match:
        host, port = match[1].strip("[]") or LOOPBACK, int(match[2])
        if port > 65535:
            raise InputError(f"port {port}", "a port up to 65535", "Choose another one.", column=_OPTION)
        return HttpAddress(host, port)
    path = Path(text)
    if path.suffix != ".prom" or path.is_dir():
        expected = "a file FILE.prom (node_exporter reads no others), or an address such as 127.0.0.1:9400"
        raise InputError(repr(text), expected, "Write it in one of these forms.", column=_OPTION)
    files.require_writable(path.absolute().parent, _OPTION)
    return path


def write_textfile(path: Path, content: bytes) -> None:
    """Replace a file that any user may read, whole or not at all.

    node_exporter reads every `*.prom` of the folder, hidden ones too, so the unfinished file has another ending.

    Raises:
        OSError: it cannot be written; the file stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            os.fchmod(handle, 0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
