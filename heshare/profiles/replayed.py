"""A recorded table as a device: `replay:PATH` on the command line."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path

import pandas as pd

from heshare.devices.replay import Recorded, ReplayDevice
from heshare.errors import InputError
from heshare.profiles import store
from heshare.profiles.columns import parse_co_runners
from heshare.profiles.visit import UTILISATIONS
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.workload import Resident, Workload


def open_replay(path: str | Path) -> ReplayDevice:
    """The device that a table recorded.

    Raises:
        InputError: the table is bad, or holds more than one GPU or provenance.
    """
    return replay(store.read(path), source=str(path))


def replay(table: pd.DataFrame, *, source: str = "a table") -> ReplayDevice:
    """The device that answers what a table of the profile schema holds.

    Args:
        table: rows of one GPU and one provenance.
        source: where the table is, for messages.

    Raises:
        InputError: the table holds more than one GPU or provenance.
    """
    kinds = sorted(set(zip(table["gpu"], table["provenance"], strict=True)))
    if len(kinds) != 1:
        raise InputError(
            file=source,
            column="gpu",
            found=", ".join(f"{gpu} ({provenance})" for gpu, provenance in kinds) or "no rows",
            expected="one GPU, emulated or measured",
            action="Name the table of one GPU, such as replay:data/profiles/emulated/T4/profile.csv.",
        )
    name, provenance = kinds[0]
    idle_w = float(table["idle_w"].mean())
    record = [_recorded(row) for row in table.to_dict("records")]
    return ReplayDevice(find_gpu(name), record, idle_w=idle_w, provenance=provenance, source=source)


def _recorded(row: Mapping[Hashable, object]) -> Recorded:
    precision, engine = str(row["precision"]), str(row["engine"])
    workload = Workload(str(row["workload"]), int(str(row["batch_size"])), precision, engine)
    sm_pct, dram_pct, l2_pct = (float(str(row[name])) for name in UTILISATIONS)
    return Recorded(
        task=Resident(workload, int(str(row["mps_pct"]))),
        co_runners=parse_co_runners(str(row["co_runners"]), precision=precision, engine=engine),
        sm_mhz=int(str(row["sm_mhz"])),
        time_s=float(str(row["time_s"])),
        power_w=float(str(row["power_w"])),
        sm_mhz_reached=float(str(row["sm_mhz_reached"])),
        utils_pct=(sm_pct, dram_pct, l2_pct),
    )
