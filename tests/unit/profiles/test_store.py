"""Profile tables as CSV files, and the errors for bad ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare.profiles import store
from heshare.profiles.schema import NAMES, parse_co_runners
from heshare.shared.errors import InputError


def _cells(text: str) -> list[str]:
    return text.split(",")


ALONE = _cells(
    "T4,emulated,resnet50,4,mixed,eager,100,1590,1500.0,,0.0125,0.0001,60.0,0.5,0.75,80.0,40.0,30.0,20.0,5,True"
)
SHARED = _cells(
    "V100,emulated,vgg19,8,mixed,eager,50,1380,1380.0,bert_large:4@20+resnet18:8@10,"
    "0.04,0.0004,200.0,1.5,8.0,90.0,50.0,30.0,25.0,5,False"
)


def _write(folder: Path, *rows: list[str], header: list[str] | None = None) -> Path:
    path = folder / "profile.csv"
    lines = [",".join(header or NAMES), *(",".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _with(row: list[str], column: str, text: str) -> list[str]:
    return [text if name == column else cell for name, cell in zip(NAMES, row, strict=True)]


def _refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        store.read(path)
    return caught.value


def test_exact_floats(tmp_path: Path) -> None:
    """Each column is read as its type; writing sorts rows and keeps floats exact."""
    table = store.read(_write(tmp_path, SHARED, _with(ALONE, "time_s", repr(0.1 + 0.2 - 0.2875))))
    assert sorted(table["throttled"].tolist()) == [False, True]
    assert set(table["co_runners"]) == {"", "bert_large:4@20+resnet18:8@10"}

    once = store.write(table, tmp_path / "once" / "profile.csv")
    again = store.write(table.iloc[::-1], tmp_path / "again" / "profile.csv")
    assert once.read_bytes() == again.read_bytes()
    pd.testing.assert_frame_equal(store.read(once), table, check_exact=True)


def test_folder(tmp_path: Path) -> None:
    """Reading a folder gives all its profiles."""
    for name, row in (("b", ALONE), ("a", SHARED)):
        (tmp_path / name).mkdir()
        _write(tmp_path / name, row)
    assert store.read(tmp_path)["gpu"].tolist() == ["T4", "V100"]


def test_not_written(tmp_path: Path) -> None:
    """A table of other values or types, or with empty cells, is not written."""
    table = store.read(_write(tmp_path, ALONE, SHARED))
    for broken in (
        table.assign(time_s=-1.0),
        table.assign(batch_size="four"),
        table.assign(time_s=[0.0125, np.nan]),
        table.assign(gpu=["T4", None]),
        table.drop(columns="gpu"),
        table[table.columns[::-1]],
    ):
        with pytest.raises(InputError):
            store.write(broken, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


CELLS = [
    ("time_s", "-0.0125", "-0.0125"),
    ("time_s", "12.5 ms", "'12.5 ms'"),
    ("time_s", "", "an empty cell"),
    ("power_w", "60000", "60000"),
    ("gpu", "T5", "'T5'"),
    ("provenance", "guessed", "'guessed'"),
    ("batch_size", "0", "0"),
    ("batch_size", "1_0", "'1_0'"),
    ("batch_size", "\u0664", "'\u0664'"),
    ("time_s", "0x10", "'0x10'"),
    ("mps_pct", "101", "101"),
    ("sm_mhz", "1583", "1583 MHz"),
    ("sm_mhz_reached", "1700", "1700"),
    ("co_runners", "vgg19:8@50+bert_large:4@20", "'vgg19:8@50+bert_large:4@20'"),
    ("sm_util_pct", "101", "101"),
    ("repeats", "0", "0"),
    ("time_std_s", "0.2", "0.2"),
    ("throttled", "yes", "'yes'"),
]


@pytest.mark.parametrize(("column", "text", "found"), CELLS)
def test_bad_cell(tmp_path: Path, column: str, text: str, found: str) -> None:
    """A bad cell is reported with row and column."""
    path = _write(tmp_path, SHARED, _with(ALONE, column, text))
    error = _refusal(path)
    assert (error.file, error.row, error.column) == (str(path), 3, column)
    assert error.found.startswith(found)


def test_unit(tmp_path: Path) -> None:
    """A time in milliseconds contradicts its energy."""
    error = _refusal(_write(tmp_path, _with(ALONE, "time_s", "12.5")))
    assert (error.row, error.column) == (2, "energy_j")
    assert "unit" in error.action


def test_several_bad_cells(tmp_path: Path) -> None:
    """The first of several bad cells is reported; a repeated row is refused."""
    error = _refusal(_write(tmp_path, SHARED, _with(ALONE, "mps_pct", "120"), _with(ALONE, "gpu", "T9")))
    assert (error.row, error.column) == (3, "mps_pct")
    assert "1 more" in error.action
    repeated = _refusal(_write(tmp_path, ALONE, SHARED, _with(ALONE, "time_s", "0.0126")))
    assert repeated.row == 4
    assert "a second time" in repeated.found


@pytest.mark.parametrize(
    ("header", "column", "told"),
    [
        ([*NAMES, "note"], "note", ""),
        (["time_ms" if name == "time_s" else name for name in NAMES], "time_ms", "to s."),
        (["workloads" if name == "workload" else name for name in NAMES], "workloads", "Rename"),
        (["x" if name == "provenance" else name for name in NAMES], "provenance", "Add"),
        ([*NAMES[1:], NAMES[0]], None, "another order"),
        ([*NAMES, "gpu"], "gpu", "twice"),
    ],
    ids=["added", "unit", "renamed", "missing", "order", "twice"],
)
def test_headers(tmp_path: Path, header: list[str], column: str | None, told: str) -> None:
    """Headers with other columns are refused."""
    error = _refusal(_write(tmp_path, [*ALONE, "1"][: len(header)], header=header))
    assert column in (None, error.column)
    assert told in error.found + error.action


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "no profile.csv"),
        (b"", "an empty file"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "bytes that are not UTF-8"),
        (b"just a sentence\n", "the line"),
        ((",".join(NAMES) + "\n").encode(), "no rows"),
        ((",".join(NAMES) + "\n" + ",".join(ALONE[:-1]) + "\n").encode(), "20 cells"),
    ],
)
def test_no_profile(tmp_path: Path, content: bytes | None, found: str) -> None:
    """Missing files and files that are no profile are refused."""
    if content is None:
        assert _refusal(tmp_path / "none.csv").found == "no such file"
    else:
        (tmp_path / "profile.csv").write_bytes(content)
    assert _refusal(tmp_path).found.startswith(found)


def test_co_runners() -> None:
    """Co-runners have one spelling."""
    assert parse_co_runners("") == ()
    assert [str(task) for task in parse_co_runners("bert_large:4@20+vgg19:8@50")] == ["bert_large:4@20", "vgg19:8@50"]
    with pytest.raises(InputError, match="in full and sorted"):
        parse_co_runners("vgg19:8")


def test_committed_profiles(checkout: Path) -> None:
    """The committed profiles satisfy the schema."""
    table = store.read(checkout / "data" / "profiles" / "emulated")
    assert set(table["provenance"]) == {"emulated"}
    assert set(table["gpu"]) >= set(store.read_shipped()["gpu"]) == {"T4", "V100", "A100"}
    assert np.isfinite(table.select_dtypes("number").to_numpy()).all()
