"""`heshare profile --check`: every kind of problem is found with its place, and a good profile passes."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.open_device import emulated
from heshare.ops.recording.profile_check import Finding, check_profile
from heshare.ops.recording.profile_device import profile
from heshare.prediction.features import is_reference
from heshare.profiles import manifest, store


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of an emulated A30."""
    out = tmp_path_factory.mktemp("profiles")
    return profile(emulated("A30"), out, samples=60, command="heshare profile", progress=False).parent


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it to change; what is changed is accepted in the manifest unless a test says otherwise."""
    for name in ("profile.csv", "manifest.json"):
        (tmp_path / name).write_bytes((recorded / name).read_bytes())
    return tmp_path


def edit(folder: Path, row: int, column: str, value: str) -> None:
    """Replace a cell; `row` as an editor counts lines."""
    path = folder / "profile.csv"
    lines = path.read_text("utf-8").splitlines()
    cells = lines[row - 1].split(",")
    cells[lines[0].split(",").index(column)] = value
    lines[row - 1] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    manifest.accept(path)


def quicken(folder: Path, row: int, times: int) -> int:
    """Make a row so many times faster; return its line."""
    table = store.read(folder)
    for column in ("time_s", "energy_j", "time_std_s"):
        edit(folder, row + 2, column, f"{table.loc[row, column] / times:.6g}")
    return row + 2


def errors(folder: Path) -> list[Finding]:
    return [finding for finding in check_profile(folder) if finding.level == "error"]


@pytest.mark.parametrize("name", ["emulated/T4", "emulated/V100", "emulated/A100", "measured"])
def test_shipped(checkout: Path, name: str) -> None:
    """Shipped profiles have no errors."""
    assert errors(checkout / "data" / "profiles" / name) == []


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("gpu", "A31", "'A31'"),
        ("time_s", "fast", "a finite number"),
        ("time_s", "0", "0"),
        ("power_w", "150000", "the limit of A30"),
        ("sm_mhz", "1441", "1441"),
        ("sm_util_pct", "nan", "a percentage from 0 to 100"),
        ("throttled", "no", "True or False"),
    ],
)
def test_bad_cell(folder: Path, column: str, value: str, text: str) -> None:
    """A bad cell is named by row and column."""
    edit(folder, 40, column, value)
    first = next(finding for finding in errors(folder) if finding.column == column)
    assert (first.row, first.file) == (40, str(folder / "profile.csv"))
    assert text in str(first)


def test_many_bad_cells(folder: Path) -> None:
    """All bad cells are listed; many of one kind are counted."""
    for row in range(10, 20):
        edit(folder, row, "mps_pct", "0")
    edit(folder, 30, "batch_size", "0")
    found = errors(folder)
    assert [finding.row for finding in found if finding.column == "mps_pct"] == [10, 11, 12, None]
    assert "7 more rows" in next(str(finding) for finding in found if finding.row is None)
    assert [finding.row for finding in found if finding.column == "batch_size"] == [30]


def test_faster_with_more_work(folder: Path) -> None:
    """A time that falls with more work is an error."""
    table = store.read(folder)
    alone = table[is_reference(table) & (table["workload"] == "vgg19")].sort_values("batch_size")
    row = quicken(folder, int(alone.index[-1]), 20)
    first = next(finding for finding in errors(folder) if finding.row == row)
    assert first.column == "time_s"
    assert "batch" in first.text


def test_faster_when_shared(folder: Path) -> None:
    """A shared run faster than the task alone is an error, unless the host sets its time."""
    table = store.read(folder)
    row = int(table.index[table["co_runners"] != ""][0])
    edited = quicken(folder, row, 50)
    assert any(f.row == edited and "alone" in f.text for f in errors(folder))
    same = table[is_reference(table) & (table["workload"] == table.loc[row, "workload"])]
    for reference in same.index:
        edit(folder, int(reference) + 2, "sm_util_pct", "9")
    assert errors(folder) == []
    assert any("host" in each.text for each in check_profile(folder))


def test_provenance(folder: Path) -> None:
    """Rows of another provenance, or changed after the manifest, are errors."""
    edit(folder, 5, "provenance", "measured")
    assert [(finding.row, finding.column) for finding in errors(folder)] == [(5, "provenance")]
    path = folder / "profile.csv"
    path.write_text(path.read_text("utf-8").replace(",False\n", ",True\n", 1), "utf-8")
    assert "changed" in str(errors(folder)[0])


def test_missing(folder: Path) -> None:
    """What is missing is noted; too few samples are an error."""
    table = store.read(folder)
    kept = table[is_reference(table) & (table["workload"] != "gpt2")]
    store.write(pd.DataFrame(kept), folder / "profile.csv")
    (folder / "manifest.json").unlink()
    found = check_profile(folder)
    assert [finding.level for finding in found] == sorted(finding.level for finding in found)
    texts = "\n".join(map(str, found))
    for text in ("0 samples", "gpt2:1, gpt2:2", "no manifest", "one clock", "co-runners"):
        assert text in texts


def test_exit_code(folder: Path) -> None:
    """`profile --check` exits with 0 or 2."""
    refused = CliRunner().invoke(app, ["profile", "--check", str(folder / "none")])
    assert refused.exit_code == 2
    assert "profile" in refused.stderr
    good = CliRunner().invoke(app, ["profile", "--check", str(folder)])
    assert good.exit_code == 0
    assert "A30 (emulated)" in good.stdout
    edit(folder, 7, "time_s", "-1")
    bad = CliRunner().invoke(app, ["profile", "--check", str(folder), "--json"])
    assert bad.exit_code == 2
    said = json.loads(bad.stdout)
    assert not said["usable"]
    assert (said["findings"][0]["row"], said["findings"][0]["column"]) == (7, "time_s")


@pytest.mark.parametrize("text", ["", "gpu,workload\nT4,resnet50\n", "{}"])
def test_no_profile(folder: Path, text: str) -> None:
    """A file that is no profile is one error."""
    (folder / "profile.csv").write_text(text, "utf-8")
    (folder / "manifest.json").unlink()
    assert len(errors(folder)) == 1
