"""How SM clocks are set on this machine: by HeShare's clock service, by zeusd, or by NVML in this process."""

import os
from pathlib import Path

from heshare.gpu.clocks.service_clock import SERVICE_SOCKET, ServiceClock
from heshare.gpu.clocks.zeusd_clock import ZEUSD_SOCKET, ZeusdClock
from heshare.gpu.nvml.binding import NvmlGpu

SERVICE, ZEUSD, NVML = "clock service", "zeusd", "NVML"


def clock_route() -> tuple[str, Path]:
    """Return how clocks are set here, and by which socket.

    The clock service is used where `HESHARE_CLOCKS` names its socket or the usual one is there; zeusd likewise, by its
    own variable `ZEUSD_SOCK_PATH`; else NVML in this process, which takes root or CAP_SYS_ADMIN.
    """
    ways = ((SERVICE, "HESHARE_CLOCKS", SERVICE_SOCKET), (ZEUSD, "ZEUSD_SOCK_PATH", ZEUSD_SOCKET))
    for kind, variable, usual in ways:
        named = os.environ.get(variable)
        if named or Path(usual).is_socket():
            return kind, Path(named or usual)
    return NVML, Path()


def service_clock(uuid: str) -> ServiceClock | None:
    """Return the clock of a card by the clock service; None where that is not the way."""
    kind, path = clock_route()
    return ServiceClock(uuid, path) if kind == SERVICE else None


def noted_clock(card: NvmlGpu, uuid: str) -> ZeusdClock | NvmlGpu:
    """Return what locks and unlocks the clock of a card with a note on disk: zeusd, or the card itself."""
    kind, path = clock_route()
    return ZeusdClock(uuid, path) if kind == ZEUSD else card
