"""`heshare clock-service`: sets SM clocks for runs of plain users, within limits."""

from pathlib import Path
from typing import Annotated

import typer


def clock_service(
    socket: Annotated[Path, typer.Option(help="Where to listen; systemd's socket is used instead if it gives one.")] = (
        Path("/run/heshare/clocks.sock")
    ),
    group: Annotated[
        str | None, typer.Option(help="The group that may connect; by default that of the service.", show_default=False)
    ] = None,
    mode: Annotated[str, typer.Option(help="The mode of the socket, octal.")] = "660",
    limits: Annotated[Path, typer.Option(help="The limits of the cards (TOML); root's, writable by nobody else.")] = (
        Path("/etc/heshare/clocks.toml")
    ),
    state: Annotated[Path, typer.Option(help="A folder of its own, for notes of clocks that are locked.")] = (
        Path("/var/lib/heshare-clocks")
    ),
) -> None:
    """Set SM clocks for runs that lack the right: a small service, run as root or with CAP_SYS_ADMIN.

    Runs ask it over a UNIX socket, and need no right of their own. A card's clock is given back when the run that has
    it ends, however that ends, and when this service does; after a kill at its next start.
    """
    from heshare.ops.clocks.clock_service import run_clock_service
    from heshare.shared.errors import require

    good = len(mode) <= 4 and set(mode) <= set("01234567") and int(mode or "0", 8) & 0o7117 == 0
    require("--mode", mode, good, "an octal mode without rights to execute and for others, such as 660")
    if not run_clock_service(socket, group=group, mode=int(mode, 8), limits=limits, state=state):
        raise typer.Exit(1)
