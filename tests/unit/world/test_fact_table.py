"""Long tables: values by field, and errors of wrong rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.shared.errors import InputError
from heshare.world.fact_table import CLOCKS, TEXT, WHOLE, Field, read_facts

FIELDS = {
    "title": Field(TEXT),
    "layers": Field(WHOLE, 1, 1000),
    "clocks_mhz": Field(CLOCKS, 5, 5000),
    "tdp_w": Field("W", 5, 3000),
    "kind": Field(TEXT, names=("cnn", "decode")),
}
ROWS = [
    "T4,title,NVIDIA T4,,x",
    "T4,layers,18,,x",
    "T4,clocks_mhz,300:1590:15,MHz,x",
    "T4,tdp_w,70,W,x",
    "T4,kind,cnn,,x",
]


def facts(tmp_path: Path, *rows: str):
    path = tmp_path / "facts.csv"
    path.write_text("\n".join(("gpu,field,value,unit,source", *rows)), encoding="utf-8")
    return read_facts(path, "gpu", FIELDS)


def test_facts(tmp_path: Path) -> None:
    """Values of facts are converted by their kind; a missing one is named."""
    assert facts(tmp_path, *ROWS, "T4,note,passed over,,x") == {
        "T4": {
            "title": "NVIDIA T4",
            "layers": 18,
            "clocks_mhz": tuple(range(300, 1591, 15)),
            "tdp_w": 70.0,
            "kind": "cnn",
        }
    }
    assert facts(tmp_path, *ROWS[:2], "T4,clocks_mhz,5 7 9,MHz,x", *ROWS[3:])["T4"]["clocks_mhz"] == (5, 7, 9)
    with pytest.raises(InputError, match="T4 without tdp_w"):
        facts(tmp_path, *ROWS[:3], ROWS[4])


def test_required_fields(tmp_path: Path) -> None:
    """The message about a missing field lists those that are required."""
    path = tmp_path / "facts.csv"
    path.write_text("gpu,field,value,unit\nT4,title,NVIDIA T4,\n")
    fields = {"title": Field(TEXT), "sm_count": Field(WHOLE), "mig_slices": Field(WHOLE)}
    with pytest.raises(InputError) as error:
        read_facts(path, "gpu", fields, optional=["mig_slices"])
    assert error.value.expected == "a row for each of title, sm_count"


@pytest.mark.parametrize(
    ("index", "row", "column"),
    [
        (0, "T4,title,,,x", "value"),
        (1, "T4,layers,18.5,,x", "value"),
        (1, "T4,title,again,,x", "field"),
        (2, "T4,clocks_mhz,300:1590:0,MHz,x", "value"),
        (3, "T4,tdp_w,70,kW,x", "unit"),
        (3, "T4,tdp_w,-70,W,x", "value"),
        (1, "T4,layers,0,,x", "value"),
        (1, "T4,layers,1001,,x", "value"),
        (2, "T4,clocks_mhz,1590:300:15,MHz,x", "value"),
        (2, "T4,clocks_mhz,300 300,MHz,x", "value"),
        (2, "T4,clocks_mhz,0:2:1,MHz,x", "value"),
        (2, "T4,clocks_mhz,300000 1590000,MHz,x", "value"),
        (3, "T4,tdp_w,0.07,W,x", "value"),
        (3, "T4,tdp_w,70000,W,x", "value"),
        (4, "T4,kind,conv,,x", "value"),
    ],
)
def test_wrong_value(tmp_path: Path, index: int, row: str, column: str) -> None:
    """A wrong value is named by row and column, and says of what it is."""
    with pytest.raises(InputError, match=f"{row.split(',')[1]} of T4|each field once for T4") as caught:
        facts(tmp_path, *ROWS[:index], row, *ROWS[index + 1 :])
    assert (caught.value.row, caught.value.column) == (index + 2, column)
