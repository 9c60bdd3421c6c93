"""How SM clocks are set on this machine: by HeShare's clock service, by zeusd, or by NVML in this process."""

import os
from pathlib import Path

from heshare.ops.clocks.service_clock import SERVICE_SOCKET, ServiceClock, service_state
from heshare.ops.clocks.zeusd_clock import ZEUSD_SOCKET, ZeusdClock
from heshare.ops.nvml.binding import NvmlError, NvmlGpu

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


def clock_control(*, admin: bool) -> tuple[bool, str]:
    """Return whether clocks can be set here, and a sentence on how or why not.

    Args:
        admin: whether this process has root or CAP_SYS_ADMIN.
    """
    kind, path = clock_route()
    if kind == SERVICE:
        try:
            limits = service_state(path)["limits"]
        except NvmlError as error:
            return False, f"Clocks cannot be locked: {error}"
        ranges = [f"{uuid} {one['min_mhz']} to {one['max_mhz']} MHz" for uuid, one in limits.items()]
        if not ranges:
            return False, f"Clocks cannot be locked: the clock service at {path} allows this user no card."
        return True, f"Clocks can be locked by the clock service at {path}: {', '.join(ranges)}."
    if kind == ZEUSD:
        return True, f"Clocks can be locked by zeusd at {path}, if it agrees."
    if admin:
        return True, (
            "Clocks can be locked (CAP_SYS_ADMIN), if the driver agrees: `heshare profile --clocks` records them too. "
            "A clock service (`heshare clock-service`) would do it for a plain user."
        )
    return False, (
        "Clocks cannot be locked: it needs a clock service (`heshare clock-service`), root or CAP_SYS_ADMIN (docker: "
        "--cap-add=SYS_ADMIN). Points at the card's own clock can be measured."
    )


def service_clock(uuid: str) -> ServiceClock | None:
    """Return the clock of a card by the clock service; None where that is not the way."""
    kind, path = clock_route()
    return ServiceClock(uuid, path) if kind == SERVICE else None


def noted_clock(card: NvmlGpu, uuid: str) -> ZeusdClock | NvmlGpu:
    """Return what locks and unlocks the clock of a card with a note on disk: zeusd, or the card itself."""
    kind, path = clock_route()
    return ZeusdClock(uuid, path) if kind == ZEUSD else card
