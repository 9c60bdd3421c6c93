"""The CSV files of one complete run, compressed in the checkout's `reference/`, and the comparison with a fresh run.

Where Python, the packages that compute the numbers and the platform are those of the reference, files must have equal
bytes. With others, forests and searches differ and single runs change a lot: then each claim must have the same verdict
and a value inside the reference's interval, and files must have the same columns.
"""

import csv
import gzip
import io
import itertools
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.paper.claims.verdicts import NOT_YET
from heshare.paper.notebooks import parameters
from heshare.paper.notebooks.run_notebooks import SECONDS
from heshare.shared import files
from heshare.shared.errors import InputError, require

ROUNDING = 1e-6
"""Relative difference between two numbers that counts as none under other versions."""
CLAIMS = "claims.csv"
RECORDED = "recorded-H100/x04a_changes"
"""The output of `make figures SOURCE=recorded:H100` that the reference holds beside a complete run."""
_WRITE = "Write the reference with `make reference`."


@dataclass(frozen=True, slots=True)
class Difference:
    """One value, or one line of columns, that differs from the reference.

    `row` is the line number (the header is row 1), 0 for the whole file. `column` is empty for a whole row.
    `relative` is the difference of the two numbers over the larger one; NaN for text.
    """

    file: str
    row: int
    column: str
    expected: str
    found: str
    relative: float = math.nan

    def __str__(self) -> str:
        place = self.file + f", row {self.row}" * bool(self.row) + f", column {self.column}" * bool(self.column)
        size = "" if math.isnan(self.relative) else f" (relative difference {self.relative:.1e})"
        return f"{place}: expected {self.expected or 'nothing'}, found {self.found or 'nothing'}{size}"


@dataclass(frozen=True, slots=True)
class ComparisonOfRuns:
    """Comparison of a run with the reference: the number of common files, and the differences.

    `not_made` are files of the reference that the run does not have. `versions` has the differences in versions and
    platform, such as `numpy 2.4.6 -> 2.5.0`; `moved`, with any of these, the number of values beyond `ROUNDING` in
    files whose values may move, by name.
    """

    compared: int
    differences: tuple[Difference, ...]
    not_made: tuple[str, ...]
    new: tuple[str, ...]
    versions: tuple[str, ...]
    moved: Mapping[str, int]

    @property
    def same(self) -> bool:
        return not (self.differences or self.new)


def folder() -> Path:
    return files.reference()


def read(name: str) -> str:
    """Return the text of a CSV file of the reference, such as `claims.csv`."""
    path = folder() / f"{name}.gz"
    if not path.is_file():
        raise InputError("no such file", "a file of the reference", _WRITE, file=path)
    return gzip.decompress(path.read_bytes()).decode("utf-8")


def table(name: str) -> pd.DataFrame:
    """Return a CSV file of the reference as a table."""
    return pd.read_csv(io.StringIO(read(name)))


def names() -> list[str]:
    return sorted(path.name.removesuffix(".gz") for path in folder().glob("*.csv.gz"))


def origin() -> dict[str, Any]:
    """Return `run.json`: versions, platform and processors of the run, and each notebook's seconds and size."""
    path = folder() / "run.json"
    if not path.is_file():
        raise InputError("no such file", "the reference's origin", _WRITE, file=path)
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def compare(run: Path) -> ComparisonOfRuns:
    """Return how the CSV files of a run's folder differ from the reference.

    Raises:
        InputError: there is no reference, or the folder has no CSV files.
    """
    found, kept = _tables(run), names()
    before = _decisive(origin())
    runs = [_decisive(_sidecar(run, name)) for name in found]
    changed = {(key, now.get(key)) for now in runs for key in {*before, *now} if before.get(key) != now.get(key)}
    versions = tuple(f"{key} {before.get(key)} -> {now}" for key, now in sorted(changed, key=str))
    both = [name for name in kept if name in found]
    differences: list[Difference] = []
    moved: dict[str, int] = {}

    for name in both:
        expected, here = read(name), _text(found[name])
        if name == CLAIMS:
            expected, here = _rows_that_were_made(expected, here)
        values = list(_differences(name, expected, here))
        if versions:
            moved[name] = sum(not one.relative <= ROUNDING for one in values)
            values = _claim_differences(expected, here) if name == CLAIMS else [one for one in values if one.row == 1]
        differences += values

    return ComparisonOfRuns(
        compared=len(both),
        differences=tuple(differences),
        not_made=tuple(name for name in kept if name not in found),
        new=tuple(sorted(set(found) - set(kept))),
        versions=versions,
        moved={name: count for name, count in moved.items() if count},
    )


def _rows_that_were_made(expected: str, found: str) -> tuple[str, str]:
    """Return two tables of claims without those claims whose notebook has not been run in the second."""
    old, new = (list(csv.DictReader(io.StringIO(text))) for text in (expected, found))
    made = {(row["id"], row["part"]) for row in new if row["verdict"] != NOT_YET}
    kept = [[row for row in rows if (row["id"], row["part"]) in made] for rows in (old, new)]
    if len(kept[1]) == len(new):
        return expected, found
    return _csv_text(kept[0]), _csv_text(kept[1])


def _csv_text(rows: Sequence[Mapping[str, str]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def update(run: Path) -> list[str]:
    """Make a run's CSV files the reference and return the names of those that changed; others are unchanged.

    `run` is the folder of a complete run of the profile `paper`. The seconds of a notebook are of its last run, or of
    the reference's.

    Raises:
        InputError: the folder has no CSV files or lacks an output, or one is without provenance or of another profile.
    """
    found = _tables(run)
    lacking = [name for name in declared_outputs() if f"{name}.csv" not in found]
    expected, action = "every output of every notebook", "Run `make all`."
    require(None, f"no {', '.join(lacking)}", not lacking, expected, action, file=run)
    origins = {name: _sidecar(run, name) for name in found}
    for name, sidecar in origins.items():
        require("profile", sidecar.get("profile"), sidecar.get("profile") == "paper", "paper", f"Make {name} again.")
    versions = [_decisive(sidecar) for sidecar in origins.values()]
    if any(one != versions[0] for one in versions):
        raise InputError("several", "one", "Make all figures again.", file=run, column="versions")
    changed = sorted({*names(), *found})
    changed = [name for name in changed if name not in found or name not in names() or read(name) != _text(found[name])]
    for name in changed:
        path = folder() / f"{name}.gz"
        if name in found:
            content = gzip.compress(found[name].read_bytes(), compresslevel=9, mtime=0)
            files.write_atomic(path, partial(Path.write_bytes, data=content))
        else:
            path.unlink()
    changed += _update_recorded(run)
    text = json.dumps(_origin(run, next(iter(origins.values())), _seconds()), indent=1, sort_keys=True)
    files.write_text(folder() / "run.json", text + "\n")
    return changed


def _update_recorded(run: Path) -> list[str]:
    # What the page of results says of a recorded card; it is no part of a complete run.
    made, path = run / f"{RECORDED}.csv", folder() / f"{RECORDED}.csv.gz"
    if not made.is_file():
        return []
    content = gzip.compress(made.read_bytes(), compresslevel=9, mtime=0)
    if path.is_file() and path.read_bytes() == content:
        return []
    path.parent.mkdir(exist_ok=True)
    files.write_atomic(path, partial(Path.write_bytes, data=content))
    return [f"{RECORDED}.csv"]


def declared_outputs() -> list[str]:
    """Return the names of the outputs of all notebooks, such as `fig06_comparison`."""
    books = [parameters.read(path) for path in parameters.find()]
    return [name for book in books for name in book.outputs]


def _tables(run: Path) -> dict[str, Path]:
    found = {path.name: path for path in sorted(run.glob("*.csv"))}
    if not found:
        raise InputError("no CSV files", "the results of a run", "Run `make figures`.", file=run)
    return found


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8")


def _sidecar(run: Path, name: str) -> dict[str, Any]:
    path = (run / name).with_suffix(".json")
    if not path.is_file():
        raise InputError("no such file", f"the provenance of {name}", "Run its notebook again.", file=path)
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _decisive(sidecar: Mapping[str, Any]) -> dict[str, str]:
    # What decides the bytes of an output. Python's `sum` of floats is another one from 3.12 on; its patch releases,
    # and heshare's version, decide nothing.
    versions = {name: version for name, version in sidecar["versions"].items() if name != "heshare"}
    minor = ".".join(versions["python"].split(".")[:2])
    return {**versions, "python": minor, "platform": sidecar["platform"]}


def _seconds() -> dict[str, float]:
    path = files.root() / "build" / "notebooks" / "paper" / SECONDS
    kept = {}
    if (folder() / "run.json").is_file():
        kept = {name: float(notebook["seconds"]) for name, notebook in origin()["notebooks"].items()}
    return kept | (json.loads(path.read_text("utf-8")) if path.is_file() else {})


def _origin(run: Path, sidecar: Mapping[str, Any], seconds: Mapping[str, float]) -> dict[str, Any]:
    size: dict[str, int] = defaultdict(int)
    for path in run.glob("*.json"):
        content = json.loads(path.read_text("utf-8"))
        if content.get("notebook"):
            outputs = [run / name for name in content["files"]]
            size[Path(content["notebook"]).stem] += sum(one.stat().st_size for one in outputs if one.is_file())
    notebooks = {name: {"kib": math.ceil(size[name] / 1024), "seconds": seconds.get(name)} for name in size}
    origin = {key: sidecar[key] for key in ("versions", "platform")}
    return {**origin, "processors": os.cpu_count(), "notebooks": notebooks}


def _differences(name: str, expected: str, found: str) -> Iterator[Difference]:
    # Of tables of different shape, the first row that differs.
    if expected == found:
        return
    old, new = (list(csv.reader(io.StringIO(text))) for text in (expected, found))
    if old == new:
        yield Difference(name, 0, "", "the same values in other bytes", "other quotes or line ends")
    aligned = len(old) == len(new) and old[:1] == new[:1]
    empty: list[str] = []
    for row, (before, after) in enumerate(itertools.zip_longest(old, new, fillvalue=empty), start=1):
        if not aligned and before != after:
            yield Difference(name, row, "", ",".join(before), ",".join(after))
            return
        for column, one, other in zip(old[0], before, after, strict=False):
            if one != other:
                yield Difference(name, row, column, one, other, _relative(one, other))


def _claim_differences(expected: str, found: str) -> list[Difference]:
    new = {(row["id"], row["part"]): row for row in csv.DictReader(io.StringIO(found))}
    differences = []
    for number, before in enumerate(csv.DictReader(io.StringIO(expected)), start=2):
        after = new.get((before["id"], before["part"]), dict.fromkeys(before, ""))
        if before["verdict"] != after["verdict"]:
            differences.append(Difference(CLAIMS, number, "verdict", before["verdict"], after["verdict"]))
        value, low, high = before["value"], before["low"], before["high"]
        if value and not _inside(after["value"], low or value, high or value):
            interval = f"{value} [{low}, {high}]"
            size = _relative(value, after["value"])
            differences.append(Difference(CLAIMS, number, "value", interval, after["value"], size))
    return differences


def _inside(value: str, low: str, high: str) -> bool:
    margin = ROUNDING * max(abs(float(low)), abs(float(high)))
    return bool(value) and float(low) - margin <= float(value) <= float(high) + margin


def _relative(expected: str, found: str) -> float:
    try:
        old, new = float(expected), float(found)
    except ValueError:
        return math.nan
    return abs(old - new) / max(abs(old), abs(new)) if old != new else 0.0


def largest(differences: Sequence[Difference], most: int) -> list[Difference]:
    """Return at most so many differences of each file, the largest relative ones first."""
    kept: list[Difference] = []
    for _, group in itertools.groupby(differences, key=lambda difference: difference.file):
        ranked = sorted(group, key=lambda one: math.inf if math.isnan(one.relative) else one.relative, reverse=True)
        kept += ranked[:most]
    return kept
