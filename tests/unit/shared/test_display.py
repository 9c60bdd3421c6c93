"""Texts and tables for people: units, digits, and the length of a table."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from heshare.shared import display, html_tables


@pytest.mark.parametrize(
    ("value", "text"), [(2434564.3, "2,434,564"), (0.0012345678, "0.001235"), (12.0, "12"), (math.nan, "nan")]
)
def test_number_has_four_digits(value: float, text: str) -> None:
    assert display.number(value) == text


def test_energies() -> None:
    """Energies have the unit of their size."""
    assert [display.energy(value) for value in (0.0, 12.3, 5.2e4, 7.204e6, 3e9)] == [
        "0 J",
        "12.3 J",
        "52 kJ",
        "7.2 MJ",
        "3 GJ",
    ]
    assert display.energy_span(5.2e6, 7.2e6) == "5.2 to 7.2 MJ"


def test_in_units() -> None:
    """`in_units` changes names and energies only."""
    frame = pd.DataFrame({"energy_j": [2.5e6, 1e6], "sm_mhz": [900, 1410], "note_j": ["", "a"], 0: [1, 2]})
    shown = html_tables.in_units(frame)
    assert list(shown.columns) == ["Energy (MJ)", "SM (MHz)", "Note (J)", "0"]
    assert shown["Energy (MJ)"].tolist() == [2.5, 1.0]
    assert frame["energy_j"].tolist() == [2.5e6, 1e6], "the frame itself stays"


def test_html_table() -> None:
    """An HTML table shows the ends of a long frame."""
    text = html_tables.html_table("a <b>", pd.DataFrame({"task": range(100)}))
    assert "a &lt;b&gt;" in text
    assert text.count("<tr") == 2 + html_tables.ROWS
    assert "<td>...</td>" in text
    assert "<td>99</td>" in text


def test_html_frame() -> None:
    """An HTML frame does not cut sentences."""
    sentence = "a sentence of more than fifty characters, which pandas would cut at its end"
    assert sentence in html_tables.html_frame(pd.DataFrame({"contract": [sentence]}))
