"""How SM clocks are set on this machine: by HeShare's clock service, or by NVML in this process."""

import os
from pathlib import Path

from heshare.ops.clocks.service_clock import SERVICE_SOCKET, ServiceClock, service_state
from heshare.ops.nvml.binding import NvmlError


def service_socket() -> Path | None:
    """Return the socket of the clock service: what `HESHARE_CLOCKS` names, or the usual one; None without a service.

    Without it clocks are set by NVML in this process, which takes root or CAP_SYS_ADMIN.
    """
    named = os.environ.get("HESHARE_CLOCKS")
    return Path(named or SERVICE_SOCKET) if named or Path(SERVICE_SOCKET).is_socket() else None


def clock_control(*, admin: bool) -> tuple[bool, str]:
    """Return whether clocks can be set here, and a sentence on how or why not.

    Args:
        admin: whether this process has root or CAP_SYS_ADMIN.
    """
    path = service_socket()
    if path is not None:
        try:
            limits = service_state(path)["limits"]
        except NvmlError as error:
            return False, f"Clocks cannot be locked: {error}"
        ranges = [f"{uuid} {one['min_mhz']} to {one['max_mhz']} MHz" for uuid, one in limits.items()]
        if not ranges:
            return False, f"Clocks cannot be locked: the clock service at {path} allows this user no card."
        return True, f"Clocks can be locked by the clock service at {path}: {', '.join(ranges)}."
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
    path = service_socket()
    return None if path is None else ServiceClock(uuid, path)
