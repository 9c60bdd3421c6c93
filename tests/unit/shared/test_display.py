"""Texts and tables for people: units, digits, and the length of a table."""

from __future__ import annotations

import math

import pandas as pd

from heshare.shared import display, html_tables


def test_numbers() -> None:
    """Numbers have four digits, and energies the unit of their size."""
    values = 2434564.3, 0.0012345678, 12.0, math.nan
    assert [display.number(value) for value in values] == ["2,434,564", "0.001235", "12", "nan"]

    energies_j = 0.0, 12.3, 5.2e4, 7.204e6, 3e9
    assert [display.energy(value) for value in energies_j] == ["0 J", "12.3 J", "52 kJ", "7.2 MJ", "3 GJ"]
    assert display.energy_span(5.2e6, 7.2e6) == "5.2 to 7.2 MJ"


def test_in_units() -> None:
    """`in_units` changes names and energies only."""
    frame = pd.DataFrame({"energy_j": [2.5e6, 1e6], "sm_mhz": [900, 1410], "note_j": ["", "a"], 0: [1, 2]})
    shown = html_tables.in_units(frame)
    assert list(shown.columns) == ["Energy (MJ)", "SM (MHz)", "Note (J)", "0"]
    assert shown["Energy (MJ)"].tolist() == [2.5, 1.0]
    assert frame["energy_j"].tolist() == [2.5e6, 1e6], "the frame itself stays"


def test_html() -> None:
    """Tables of HTML show the ends of a long frame, and whole sentences."""
    text = html_tables.html_table("a <b>", pd.DataFrame({"task": range(100)}))
    assert "a &lt;b&gt;" in text
    assert text.count("<tr") == 2 + html_tables.ROWS
    assert "<td>99</td>" in text

    sentence = "a sentence of more than fifty characters, which pandas would cut at its end"
    assert sentence in html_tables.html_frame(pd.DataFrame({"contract": [sentence]}))
