"""Check of a recorded profile, `heshare profile --check`, which reports all problems, not only the first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from heshare.lab.systems.fikit import kernel_table
from heshare.prediction.features import is_reference
from heshare.prediction.load import LEAST_SAMPLES, covered_rows
from heshare.profiles import design, manifest, store
from heshare.profiles.missing_utilisation import without_fill_warning
from heshare.profiles.schema import UTILISATIONS, broken_cells
from heshare.shared.errors import InputError
from heshare.shared.inputs.csv_table import Row
from heshare.world.catalogue import gpu as find_gpu

ROWS_SHOWN = 3
"""Most rows that are listed for one rule; the others are counted."""
SLACK = 1.25
"""Tolerance for a larger batch, a lower clock or a shared GPU that is measured as faster; repeat noise of real GPUs is
a few per cent."""
HOST_BOUND_PCT = 10.0
"""SM activity of a workload alone, %, below which the host determines its time, which then varies and can be shorter on
a busy host. On an H100 a decoding Transformer took 5.1 to 5.5 ms alone and 3.6 ms with co-runners."""
ERROR = "error"
"""Level of a finding with which a profile must not be used; the other is `note`."""
LEAST_REPEATS = 2
"""Least number of visits to a workload alone for an estimate of its noise."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the check.

    The `level` is `error`, with which the profile must not be used, or `note`. `row` is the line in the file, None for
    the whole file; `column` may be None too.
    """

    level: str
    file: str
    row: int | None
    column: str | None
    text: str

    def __str__(self) -> str:
        place = [self.file, *([f"row {self.row}"] if self.row else []), *([self.column] if self.column else [])]
        return f"{self.level}: {', '.join(place)}: {self.text}"


def check_profile(path: str | Path) -> list[Finding]:
    """Return the problems of the profiles in a folder, or of one table, errors first in each table.

    Checked are schema, units and ranges of every cell, times that must not decrease (with a larger batch, a lower
    clock, co-runners), the checksum and the values of the manifest, the kernel traces, and missing measurements.

    Raises:
        InputError: there is no table.
    """
    path = Path(path)
    tables = sorted(path.rglob("profile.csv")) if path.is_dir() else [path]
    if not tables or not all(table.is_file() for table in tables):
        raise InputError("no profile.csv", "a folder with a profile", "Record one with heshare profile.", file=path)
    return [finding for table in tables for finding in _check_table(table)]


def _check_table(path: Path) -> list[Finding]:
    table, found = _read(path)
    found += _manifest_errors(path, table)
    if table is not None and not any(finding.level == ERROR and finding.row for finding in found):
        found += [*_shortened(list(_falling_times(path, table))), *_missing(path, table)]
    return sorted(found, key=lambda finding: finding.level)


def _read(path: Path) -> tuple[pd.DataFrame | None, list[Finding]]:
    found: list[Finding] = []
    rows, numbers = [], []
    try:
        for row in store.read_profile_rows(path):
            try:
                rows.append(store.parse_row(row))
                numbers.append(cast(Row, row).line)
            except InputError as error:
                found.append(_of(error, path))
    except InputError as error:
        return None, [_of(error, path)]
    if not rows:
        return None, _shortened(found) or [Finding(ERROR, str(path), 2, None, "no rows. Record the profile again.")]
    table = store.make_table(rows)
    found += [_of(error, path, numbers[row]) for row, error in broken_cells(table)]
    return table, _shortened(found)


def _of(error: InputError, path: Path, row: int | None = None) -> Finding:
    text = f"found {error.found}; expected {error.expected}. {error.action}"
    return Finding(ERROR, str(path), row or error.row, error.column, text)


def _shortened(found: Sequence[Finding]) -> list[Finding]:
    shown: list[Finding] = []
    by_column: dict[str | None, list[Finding]] = {}
    for finding in found:
        by_column.setdefault(finding.column, []).append(finding)
    for column, findings in by_column.items():
        shown += findings[:ROWS_SHOWN]
        more = len(findings) - ROWS_SHOWN
        if more > 0:
            text = f"{more} more rows with such a cell"
            shown.append(Finding(findings[0].level, findings[0].file, None, column, text))
    return shown


def _manifest_errors(path: Path, table: pd.DataFrame | None) -> list[Finding]:
    kernels = path.with_name(kernel_table.NAME)
    found = []
    try:
        manifest.verify(path)
        if kernels.is_file():
            kernel_table.read(kernels)
    except InputError as error:
        found.append(_of(error, Path(error.file or path)))

    file = path.with_name(manifest.NAME)
    if not file.is_file():
        text = "no manifest: how the table was recorded, and whether it was changed since, is unknown."
        return [*found, Finding("note", str(file), None, None, text)]
    if found or table is None:
        return found

    content = manifest.read(file)
    said = {"gpu": content.get("gpu"), "provenance": content.get("provenance")}
    for column, value in said.items():
        for other in sorted(set(table[column]) - {value}):
            text = f"found {other}, where {manifest.NAME} says {value}. Keep the tables of two recordings apart."
            row = 2 + table[column].tolist().index(other)
            found.append(Finding(ERROR, str(path), row, column, text))
    return found


def _falling_times(path: Path, table: pd.DataFrame) -> Iterator[Finding]:
    """Yield rows with a shorter time than the same workload with a higher clock, a smaller batch or without sharing."""
    alone = table[table["co_runners"] == ""]
    task = ["gpu", "provenance", "workload", "precision", "engine"]
    lines = (
        ("batch_size", [*task, "mps_pct", "sm_mhz"], "a smaller batch", False),
        ("sm_mhz", [*task, "mps_pct", "batch_size"], "a higher clock", True),
        ("mps_pct", [*task, "sm_mhz", "batch_size"], "a larger share", True),
    )

    for column, keys, other, descending in lines:
        ordered = alone.sort_values(column, ascending=not descending)
        for _, part in ordered.groupby(keys):
            longest = part["time_s"].cummax().shift(fill_value=0.0)
            for row in part.index[part["time_s"] * SLACK < longest]:
                yield _too_short(path, table, int(row), float(longest[row]), other)

    reference = table[is_reference(table)].set_index([*task, "batch_size"])
    by_task = table.set_index([*task, "batch_size"]).index
    known = np.asarray(by_task.map(reference["time_s"].to_dict()), dtype=float)
    sm_pct = np.asarray(by_task.map(reference["sm_util_pct"].to_dict()), dtype=float)

    shorter = table["time_s"].to_numpy() * SLACK < known
    host_bound = sm_pct < HOST_BOUND_PCT
    for row in np.flatnonzero(shorter & ~host_bound).tolist():
        yield _too_short(path, table, int(row), float(known[row]), "the whole GPU alone at the top clock")

    if (shorter & host_bound).any():
        rows = table[shorter & host_bound]
        names = ", ".join(sorted(set(rows["workload"])))
        text = f"{len(rows)} rows of {names} are faster than alone: the host sets their time, and it varies."
        yield Finding("note", str(path), None, None, text)


def _too_short(path: Path, table: pd.DataFrame, row: int, other_s: float, other: str) -> Finding:
    text = (
        f"found {table['time_s'].iloc[row]:g} s, less than the {other_s:g} s with {other}; expected no less. "
        "Record this setting again on an idle GPU."
    )
    return Finding(ERROR, str(path), 2 + row, "time_s", text)


def _missing(path: Path, table: pd.DataFrame) -> Iterator[Finding]:
    for name, rows in table.groupby("gpu"):
        yield from (Finding(level, str(path), None, None, text) for level, text in _missing_of(str(name), rows))


def _missing_of(name: str, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    reference = is_reference(rows)
    with without_fill_warning():  # a finding below reports the same
        samples = int((covered_rows(rows) & ~reference).sum())
    if samples < LEAST_SAMPLES:
        yield (
            ERROR,
            f"found {samples} samples whose tasks were all recorded alone too; expected {LEAST_SAMPLES} or more, "
            "without which no predictor is trained. Record for longer: a larger --budget goes on.",
        )

    recorded = set(zip(rows["workload"][reference], rows["batch_size"][reference], strict=True))
    wanted = [point.target.workload for point in design.references(find_gpu(name))]
    missing = [f"{each.model}:{each.batch_size}" for each in wanted if (each.model, each.batch_size) not in recorded]
    if missing:
        yield "note", f"{len(missing)} of {len(wanted)} workloads not recorded alone: {_some(missing)}."

    if len(set(rows["sm_mhz"])) == 1:
        yield (
            "note",
            "one clock only: energy at other clocks is not learned. Record with --clocks, if the machine allows.",
        )
    if not (rows["co_runners"] != "").any():
        yield "note", "no row with co-runners: times under sharing are not learned."

    for column in UTILISATIONS:
        if count := int(rows[column].isna().sum()):
            yield "note", f"{column} was not measured in {count} rows: the device model's values stand in."

    if count := int((reference & (rows["repeats"] < LEAST_REPEATS)).sum()):
        yield "note", f"{count} workloads alone were visited once: their repeat noise is not known."
    if count := int(rows["throttled"].sum()):
        yield "note", f"{count} of {len(rows)} rows were held below their clock by a limit."


def _some(names: Sequence[str], shown: int = 6) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def summary(path: str | Path, found: Iterable[Finding]) -> str:
    """Return one line: the rows of the profiles by GPU and provenance, and how many errors and notes there are."""
    levels = [finding.level for finding in found]
    text = f"{path}: {levels.count(ERROR)} errors, {levels.count('note')} notes"
    if ERROR in levels:
        return text
    table = store.read(path)
    counts = Counter(zip(table["gpu"], table["provenance"], strict=True))
    held = ", ".join(f"{rows} rows of {gpu} ({provenance})" for (gpu, provenance), rows in counts.items())
    return f"{text}; {held}"
