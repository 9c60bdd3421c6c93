"""Rows of the benchmark's list: a value with its spread, and its comparison with a target and with the last result."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from heshare.lab.sweeps.statistics import median_interval

NOISE = 0.1
"""A value of one repeat that is worse by less than this share of the last one is taken as the same."""
TIMES = ("s", "ms", "1/s")
"""Units of values that depend on the machine: they are compared with a last result of the same machine only."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """Which direction of a value is better, and the least good value that is accepted, or None."""

    better: Literal["lower", "higher"]
    target: float | None

    def met(self, value: float) -> bool:
        """Return whether a value is at least as good as the target; without a target it is."""
        return self.target is None or (value <= self.target if self.better == "lower" else value >= self.target)


@cache
def targets() -> Mapping[str, Target]:
    """Return the targets of `benchmarks/targets.csv` by the names of the rows."""
    with (Path(__file__).parent / "targets.csv").open(encoding="utf-8", newline="") as file:
        return {
            line["name"]: Target(
                "lower" if line["better"] == "lower" else "higher", float(line["target"]) if line["target"] else None
            )
            for line in csv.DictReader(file)
        }


def sample_row(name: str, values: Iterable[float], unit: str = "1") -> Row:
    """Return the median of a sample, with the sample."""
    sample = [float(value) for value in values]
    return {"name": name, "value": float(np.median(sample)), "unit": unit, "n": len(sample), "values": sample}


def single_row(name: str, value: float, unit: str = "1", n: int = 1) -> Row:
    """Return a value that has no sample; n is how many runs, tasks or jobs it is of."""
    return {"name": name, "value": float(value), "unit": unit, "n": n}


def peak_mib() -> float:
    """Return the largest memory of this program so far, MiB; `ru_maxrss` would count that of its parent before exec."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def with_spread(row: Row) -> Row:
    """Return a row with `low` and `high`: the 95 % bootstrap interval of the median of its sample, where it has one."""
    values = row.get("values", ())
    if len(values) < 2:
        return row
    found = median_interval(values)
    if not np.isclose(found.value, row["value"]):
        return row  # the value is another statistic than the median, such as the largest
    return {**row, "low": found.low, "high": found.high}


def worse(row: Row, last: Row | None) -> bool:
    """Return whether a value is worse than the last one by more than the spread of the two.

    Values with intervals are worse if the intervals do not overlap; others if they differ by more than `NOISE`.
    Times are compared only if both were taken on machines of the same description.
    """
    target = targets().get(row["name"])
    if last is None or target is None or (row["unit"] in TIMES and row.get("machine") != last.get("machine")):
        return False
    if "low" in row and "low" in last:
        return bool(row["low"] > last["high"] if target.better == "lower" else row["high"] < last["low"])
    sign = 1.0 if target.better == "lower" else -1.0
    return bool(sign * (row["value"] - last["value"]) > NOISE * abs(last["value"]))


def table(rows: Sequence[Row], last: Mapping[str, Row]) -> list[str]:
    """Return the rows as lines: name, value, interval, unit, n, target and whether it is met, the last value."""
    lines = [f"{'name':30s} {'value':>10s} {'95 % interval':>22s} {'unit':5s} {'n':>6s}  {'target':14s} last"]
    for row in rows:
        target, before = targets().get(row["name"]), last.get(row["name"])
        interval = f"[{row['low']:.4g}, {row['high']:.4g}]" if "low" in row else ""
        asked = ""
        if target is not None and target.target is not None:
            sign = "<=" if target.better == "lower" else ">="
            asked = f"{sign} {target.target:g}{'' if target.met(row['value']) else ' MISSED'}"
        then = "" if before is None else f"{before['value']:.4g}{' WORSE' if worse(row, before) else ''}"
        lines.append(
            f"{row['name']:30s} {row['value']:10.4g} {interval:>22s} {row['unit']:5s} {row['n']:6d}  {asked:14s} {then}"
        )
    return lines
