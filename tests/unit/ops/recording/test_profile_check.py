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
def test_shipped_and_recorded_profiles_have_no_errors(checkout: Path, name: str) -> None:
    assert errors(checkout / "data" / "profiles" / name) == []


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("gpu", "A31", "found 'A31'; expected one of T4"),
        ("time_s", "fast", "a finite number"),
        ("time_s", "0", "above 0 and at most 3600"),
        ("power_w", "150000", "the limit of A30"),
        ("sm_mhz", "1441", "a clock of the grid of A30"),
        ("sm_util_pct", "nan", "a percentage from 0 to 100"),
        ("throttled", "no", "True or False"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(folder: Path, column: str, value: str, text: str) -> None:
    edit(folder, 40, column, value)
    first = next(finding for finding in errors(folder) if finding.column == column)
    assert (first.row, first.file) == (40, str(folder / "profile.csv"))
    assert text in str(first)


def test_all_bad_cells_are_listed_and_many_of_one_kind_are_counted(folder: Path) -> None:
    for row in range(10, 20):
        edit(folder, row, "mps_pct", "0")
    edit(folder, 30, "batch_size", "0")
    found = errors(folder)
    assert [finding.row for finding in found if finding.column == "mps_pct"] == [10, 11, 12, None]
    assert "7 more rows" in next(str(finding) for finding in found if finding.row is None)
    assert [finding.row for finding in found if finding.column == "batch_size"] == [30]


def test_times_that_fall_with_more_work_are_errors(folder: Path) -> None:
    table = store.read(folder)
    alone = table[is_reference(table) & (table["workload"] == "vgg19")].sort_values("batch_size")
    row = quicken(folder, int(alone.index[-1]), 20)
    first = next(finding for finding in errors(folder) if finding.row == row)
    assert first.column == "time_s"
    assert "with a smaller batch; expected no less" in first.text


def test_a_shared_run_faster_than_the_task_alone_is_an_error_unless_the_host_sets_its_time(folder: Path) -> None:
    table = store.read(folder)
    row = int(table.index[table["co_runners"] != ""][0])
    edited = quicken(folder, row, 50)
    assert any(f.row == edited and "the whole GPU alone at the top clock" in f.text for f in errors(folder))
    same = table[is_reference(table) & (table["workload"] == table.loc[row, "workload"])]
    for reference in same.index:
        edit(folder, int(reference) + 2, "sm_util_pct", "9")
    assert errors(folder) == []
    assert any("faster than alone: the host sets their time" in each.text for each in check_profile(folder))


def test_rows_of_another_provenance_or_that_are_not_the_manifest_s_are_errors(folder: Path) -> None:
    edit(folder, 5, "provenance", "measured")
    assert [(finding.row, finding.column) for finding in errors(folder)] == [(5, "provenance")]
    path = folder / "profile.csv"
    path.write_text(path.read_text("utf-8").replace(",False\n", ",True\n", 1), "utf-8")
    assert "changed after it was recorded" in str(errors(folder)[0])


def test_what_is_missing_is_noted_and_too_few_samples_are_an_error(folder: Path) -> None:
    table = store.read(folder)
    kept = table[is_reference(table) & (table["workload"] != "gpt2")]
    store.write(pd.DataFrame(kept), folder / "profile.csv")
    (folder / "manifest.json").unlink()
    found = check_profile(folder)
    assert [finding.level for finding in found] == sorted(finding.level for finding in found)
    texts = "\n".join(map(str, found))
    assert "found 0 samples" in texts
    assert "6 of 90 workloads not recorded alone: gpt2:1, gpt2:2" in texts
    assert "no manifest" in texts
    assert "one clock only" in texts
    assert "no row with co-runners" in texts


def test_profile_check_exits_with_0_or_2(folder: Path) -> None:
    refused = CliRunner().invoke(app, ["profile", "--check", str(folder / "none")])
    assert refused.exit_code == 2
    assert "a folder with a profile" in refused.stderr
    good = CliRunner().invoke(app, ["profile", "--check", str(folder)])
    assert good.exit_code == 0
    assert good.stdout.splitlines()[-1].endswith("rows of A30 (emulated)")
    edit(folder, 7, "time_s", "-1")
    bad = CliRunner().invoke(app, ["profile", "--check", str(folder), "--json"])
    assert bad.exit_code == 2
    said = json.loads(bad.stdout)
    assert not said["usable"]
    assert (said["findings"][0]["row"], said["findings"][0]["column"]) == (7, "time_s")


@pytest.mark.parametrize("text", ["", "gpu,workload\nT4,resnet50\n", "{}"])
def test_a_file_that_is_no_profile_is_one_error(folder: Path, text: str) -> None:
    (folder / "profile.csv").write_text(text, "utf-8")
    (folder / "manifest.json").unlink()
    assert len(errors(folder)) == 1
