"""The client of zeusd, the daemon of the Zeus project, for clocks: HTTP over its UNIX socket.

Only what its API reference documents is used: `POST /gpu/set_gpu_locked_clocks` and `/gpu/reset_gpu_locked_clocks`
with `gpu_ids`, `min_clock_mhz`, `max_clock_mhz` and `block`, and a bearer token in `ZEUSD_TOKEN` where it asks for one.
zeusd keeps a lock when its client has gone, so a note on disk is needed, as it is for NVML.
"""

import http.client
import json
import os
import socket
from pathlib import Path
from urllib.parse import urlencode

from heshare.ops.nvml.binding import NoPermissionError, NoSuchGpuError, NvmlError
from heshare.ops.nvml.guarded_gpu import find_uuids

ZEUSD_SOCKET = "/run/zeusd/zeusd.sock"
"""Where zeusd's systemd unit has it listen."""
_TIMEOUT_S = 5.0


class ZeusdClock:
    """The clock of one card, set by zeusd; for `ClockLock`.

    Args:
        uuid: the card.
        path: zeusd's socket.
    """

    def __init__(self, uuid: str, path: Path) -> None:
        self._uuid, self._path = uuid, path
        self._index: int | None = None

    def lock_clock(self, sm_mhz: int) -> None:
        """Lock the clock, MHz.

        Raises:
            NvmlError: zeusd does not answer, or refuses.
        """
        self._post("set_gpu_locked_clocks", min_clock_mhz=sm_mhz, max_clock_mhz=sm_mhz)

    def unlock_clock(self) -> None:
        """Leave the clock to the card.

        Raises:
            NvmlError: zeusd does not answer, or refuses.
        """
        self._post("reset_gpu_locked_clocks")

    def _post(self, call: str, **values: int) -> None:
        if self._index is None:
            self._index = _index(self._uuid)
        query = urlencode({"gpu_ids": self._index, **values, "block": "true"})
        token = os.environ.get("ZEUSD_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection = _UnixConnection(self._path)
        try:
            connection.request("POST", f"/gpu/{call}?{query}", headers=headers)
            response = connection.getresponse()
            status, text = response.status, response.read(4096).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise NvmlError(f"GPU {self._uuid}: zeusd does not answer at {self._path}: {error!r}.") from error
        finally:
            connection.close()
        if status != http.client.OK:
            kind = NoPermissionError if status in (401, 403) else NvmlError
            raise kind(f"GPU {self._uuid}: zeusd refuses {call}: status {status}, {_reason(text)}")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(str(self._path))


def _index(uuid: str) -> int:
    """Return NVML's index of a card, by which zeusd names it."""
    uuids = find_uuids()
    if uuid not in uuids:
        raise NoSuchGpuError(f"GPU {uuid}: not found. `heshare doctor` lists the GPUs of this machine.")
    return uuids.index(uuid)


def _reason(text: str) -> str:
    """Return the first error of zeusd's reply, or the reply."""
    try:
        return "; ".join(str(why) for why in json.loads(text)["errors"].values())
    except (ValueError, KeyError, AttributeError, TypeError):
        return text[:200] or "without a reason"
