"""Logs of `nvidia-smi --query-gpu=... --format=csv`: power, clock and utilisation of each GPU while it was busy."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from heshare.shared.errors import require
from heshare.shared.inputs.foreign_table import ForeignTable, columns_of, read_foreign

MOST_POWER = 1.5
"""A reading of power is plausible up to this multiple of the card's power limit; assumed."""
RECORD = "nvidia-smi --query-gpu=timestamp,index,power.draw,clocks.sm,utilization.gpu,power.limit --format=csv -lms 200"
_NAMES = {
    "power_w": (("power.draw.instant", "power.draw", "power.draw.average"), "W"),
    "sm_mhz": (("clocks.current.sm", "clocks.sm"), "MHz"),
    "gpu_pct": (("utilization.gpu",), "%"),
    "limit_w": (("power.max_limit", "enforced.power.limit", "power.limit"), "W"),
}
_CARDS = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id", "serial")


@dataclass(frozen=True, slots=True)
class MeterReading:
    """What a meter's log says of a GPU while it was busy; NaN for what it does not have.

    Attributes:
        gpu: the GPU, as the log names it; empty in a log of one GPU.
        power_w: mean board power, W.
        power_spread_w: standard deviation of the samples of power, W.
        sm_mhz: mean SM clock, MHz.
        gpu_pct: mean utilisation, %.
        samples: samples of the busy part: from the first to the last one with a utilisation above zero; in a log
            without utilisation, with a power above the middle of its extremes.
        notes: samples that are no readings.
    """

    gpu: str
    power_w: float
    power_spread_w: float
    sm_mhz: float
    gpu_pct: float
    samples: int
    notes: tuple[str, ...] = ()


def read_meter(path: str | Path) -> tuple[MeterReading, ...]:
    """Return the readings of each GPU of a log of nvidia-smi, with or without units in its cells.

    Cells such as `[N/A]` and `[Not Supported]` are no readings, nor are powers far above the card's limit, if the log
    has it.

    Raises:
        InputError: no such file, the log of another tool, cells that are no numbers, several GPUs that the log does not
            tell apart, or a GPU without a reading of power.
    """
    columns = columns_of(path)
    plain = {re.sub(r"\s*\[[^\]]*\]$", "", column): column for column in columns}
    named = {key: next((plain[name] for name in names if name in plain), "") for key, (names, _) in _NAMES.items()}
    expected = "a log of nvidia-smi with a column power.draw"
    found = "a header without it: " + ", ".join(columns)
    require("power.draw", found, bool(named["power_w"]), expected, f"Record one: {RECORD}", file=path, row=1)

    cards = [plain[name] for name in _CARDS if name in plain][:1]
    moment = [plain["timestamp"]] if "timestamp" in plain else []
    table = read_foreign(path, list(dict.fromkeys([*filter(None, named.values()), *cards, *moment])))
    table.require_rows("sample")
    several = bool(moment) and not cards and bool(table.cells.duplicated(moment).mean() > 0.25)
    action = f"Record with the column index or uuid: {RECORD}"
    require(None, "several samples of a moment", not several, "a column index or uuid", action, file=path)
    for key, column in named.items():
        _read_cells(table, key, column, _NAMES[key][1])
    groups = table.cells[cards[0]] if cards else pd.Series("", index=table.cells.index)
    return tuple(_reading(path, str(name), rows) for name, rows in table.parsed.groupby(groups))


def _read_cells(table: ForeignTable, key: str, column: str, unit: str) -> None:
    if not column:
        table.parsed = table.parsed.assign(**{key: np.nan})
        return
    text = table.cells[column].str.replace(rf"\s*{re.escape(unit)}$", "", regex=True)
    missing = text.str.fullmatch(r"\[.*\]|N/A|ERR!|")
    value = pd.to_numeric(text.mask(missing, "nan"), errors="coerce")
    bad = ~missing & ~(np.isfinite(value) & (value >= 0))
    action = "Record the log again, with a decimal point and no other units."
    table.refuse(bad, column, "no reading", f"a number of at least 0, in {unit}, or [N/A]", action)
    table.parsed = table.parsed.assign(**{key: value.astype(np.float64)})


def _reading(path: str | Path, gpu: str, rows: pd.DataFrame) -> MeterReading:
    notes = []
    above = rows["power_w"] > MOST_POWER * rows["limit_w"].max()
    if above.any():
        most_w = rows.loc[above, "power_w"].max()
        notes.append(f"{above.sum()} of {len(rows)} powers, up to {most_w:.0f} W, are far above the card's limit")
        rows = rows.assign(power_w=rows["power_w"].mask(above))
    name = f"GPU {gpu}" if gpu else "the log"
    known = bool(rows["power_w"].notna().any())
    expected = "plausible readings of power" if notes else "readings of power"
    what = f"none of {name}" + f" ({'; '.join(notes)})" * bool(notes)
    require("power.draw", what, known, expected, "Measure the board power with another meter.", file=path)

    power_w, gpu_pct = rows["power_w"], rows["gpu_pct"]
    middle_w = (power_w.min() + power_w.max()) / 2
    busy = gpu_pct > 0 if bool(gpu_pct.notna().any()) else power_w >= middle_w
    require(
        "utilization.gpu", f"0 % of {name} throughout", bool(busy.any()), "a busy GPU", "Log it under load.", file=path
    )
    part = rows.loc[busy.idxmax() : busy[::-1].idxmax()]
    means = part.mean()
    spread_w = float(part["power_w"].std(ddof=0))
    return MeterReading(
        gpu, float(means["power_w"]), spread_w, float(means["sm_mhz"]), float(means["gpu_pct"]), len(part), tuple(notes)
    )


def reading_of(path: str | Path, gpu: str | int | None = None) -> MeterReading:
    """Return the reading of one GPU of a log, which must be named if there are several; errors as `read_meter`."""
    readings = {each.gpu: each for each in read_meter(path)}
    listed = ", ".join(readings)
    if gpu is None:
        require(
            "log", f"{len(readings)} GPUs: {listed}", len(readings) == 1, "one GPU", "Name it: log:FILE#GPU.", file=path
        )
        return next(iter(readings.values()))
    good = str(gpu) in readings
    require("log", repr(gpu), good, f"one of its GPUs: {listed or 'it names none'}", "Name one of them.", file=path)
    return readings[str(gpu)]
