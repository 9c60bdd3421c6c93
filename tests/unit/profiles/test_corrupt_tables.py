"""Corrupted profile tables: a changed cell is refused with its row and column, or read as its own value."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heshare.profiles import manifest, store
from heshare.profiles.schema import COLUMNS, NAMES
from heshare.shared import files
from heshare.shared.errors import InputError


def _cells(text: str) -> list[str]:
    return text.split(",")


ALONE = _cells(
    "T4,emulated,resnet50,4,fp32,eager,100,1590,1500.0,,0.0125,0.0001,60.0,0.5,0.75,80.0,40.0,30.0,20.0,5,True"
)
SHARED = _cells(
    "V100,emulated,vgg19,8,fp32,eager,50,1380,1380.0,bert_large:4@20+resnet18:8@10,"
    "0.04,0.0004,200.0,1.5,8.0,90.0,50.0,30.0,25.0,5,False"
)


def _write(folder: Path, *rows: list[str]) -> Path:
    path = folder / "profile.csv"
    lines = [",".join(NAMES), *(",".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _read(path: Path) -> tuple[pd.DataFrame, InputError | None]:
    try:
        return store.read(path), None
    except InputError as error:
        return pd.DataFrame(), error


def _refusal(path: Path) -> InputError:
    _, error = _read(path)
    assert error is not None
    return error


# Each change must be refused, or leave the cell as it is.
CHANGES = {
    "negate": lambda text: text if float(text) == 0 else str(-float(text)),
    "thousandfold": lambda text: text if float(text) == 0 else str(1000 * float(text)),
    "empty": lambda text: "",
    "nan": lambda text: "nan",
    "unit": lambda text: text + " W",
    "word": lambda text: "?",
    "comma": lambda text: text + ",7",
    "underscore": lambda text: "1_0",
}
ANYTHING = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["1e999", "-0", "+4", "0x10", "1,000", " 4", "4 ", "4\n", "\u0664", "\uff11\uff16", "-nan", "1_0"]),
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(NAMES + tuple(ALONE) + tuple(SHARED)),
)
NUMBERS = ("time_s", "power_w", "energy_j", "idle_w", "batch_size", "mps_pct", "sm_mhz", "sm_mhz_reached", "repeats")


@settings(max_examples=150)
@given(row=st.integers(0, 1), column=st.sampled_from(NAMES), change=st.sampled_from(sorted(CHANGES)))
def test_any_corrupted_cell_is_refused(tmp_path: Path, row: int, column: str, change: str) -> None:
    rows = [list(ALONE), list(SHARED)]
    assume(column in NUMBERS or change not in ("negate", "thousandfold"))
    assume((column, change) != ("co_runners", "empty"))  # no co-runners is a setting like any other
    place = NAMES.index(column)
    corrupted = CHANGES[change](rows[row][place])
    unchanged = corrupted == rows[row][place]
    rows[row][place] = corrupted
    path = _write(tmp_path, *rows)
    if unchanged:
        assert len(store.read(path)) == 2
        return
    error = _refusal(path)
    assert error.row == row + 2
    if change != "comma":
        assert error.column in (column, "energy_j", "power_w", "sm_mhz_reached")


@settings(max_examples=250)
@given(row=st.integers(0, 1), column=st.sampled_from(NAMES), text=ANYTHING)
def test_any_text_in_any_cell_is_refused_or_read_as_its_value(tmp_path: Path, row: int, column: str, text: str) -> None:
    rows = [list(ALONE), list(SHARED)]
    rows[row][NAMES.index(column)] = text
    path = tmp_path / "profile.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([NAMES, *rows])
    table, error = _read(path)
    if error is not None:
        assert error.row is not None or "UTF-8" in error.expected
        assert error.row is None or error.row >= row + 2
        assert error.column or "cells" in error.found or error.row is None
        return
    kind = next(known.kind for known in COLUMNS if known.name == column)
    (value,) = table[column][table["gpu"] == rows[row][0]].tolist()
    assert type(value) is kind
    assert value == (text == "True" if kind is bool else kind(text))
    assert text.isascii()
    assert text == text.strip()


@settings(max_examples=60)
@given(row=st.integers(0, 1), columns=st.lists(st.sampled_from(NAMES), min_size=2, max_size=2, unique=True))
def test_swapped_cells_are_refused_or_similar(tmp_path: Path, row: int, columns: list[str]) -> None:
    rows = [list(ALONE), list(SHARED)]
    first, second = map(NAMES.index, columns)
    rows[row][first], rows[row][second] = rows[row][second], rows[row][first]
    harmless = {"sm_util_pct", "dram_util_pct", "l2_util_pct", "batch_size", "mps_pct", "repeats"}
    assume(not set(columns) <= harmless and rows[row][first] != rows[row][second])
    assume(set(columns) not in ({"power_std_w", "time_std_s"}, {"precision", "engine"}))
    path = _write(tmp_path, *rows)
    _, error = _read(path)
    if error is not None:
        assert error.row == row + 2
        assert error.column in NAMES
        return
    # Accepted swaps differ by less than two repeats may: only the manifest's checksum detects them.
    assert {"power_std_w", "time_std_s", *harmless} & set(columns) or set(columns) == {"sm_mhz", "sm_mhz_reached"}


@settings(max_examples=100)
@given(at=st.integers(0), byte=st.integers(0, 255))
def test_a_manifest_detects_any_changed_byte(tmp_path: Path, at: int, byte: int) -> None:
    path = _write(tmp_path, ALONE, SHARED)
    content = path.read_bytes()
    entry = {"table": path.name, "sha256": files.sha256(path)}
    path.with_name(manifest.NAME).write_text(json.dumps(entry), encoding="utf-8")
    at %= len(content)
    assume(content[at] != byte)
    path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
    error = _refusal(path)
    assert error.row is not None or "changed after it was recorded" in error.found or "no CSV text" in error.found
