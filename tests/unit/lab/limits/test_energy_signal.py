"""Price and carbon signals: their values, exact integrals, files and messages."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.lab.limits.prices.energy_signal import DAY_S, EnergySignal, read_signal, start_time_s
from heshare.shared import files
from heshare.shared.errors import InputError

DAY = EnergySignal((0.0, 21_600.0, 64_800.0), (0.1, 0.3, -0.05), daily=True)


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_values_hold_until_the_next_and_repeat_daily() -> None:
    assert [DAY.at(hour * 3600) for hour in (0, 5.99, 6, 17, 18, 24, 30)] == [0.1, 0.1, 0.3, 0.3, -0.05, 0.1, 0.3]
    once = EnergySignal(DAY.time_s, DAY.value)
    assert once.at(5 * DAY_S) == -0.05
    assert DAY.starting(64_800.0).at(0.0) == -0.05
    assert DAY.starting(DAY_S + 21_600.0).start_s == 21_600.0


@given(st.floats(0, 3 * DAY_S), st.floats(0, 2 * DAY_S), st.booleans(), st.floats(0, DAY_S - 1))
def test_the_integral_is_that_of_the_steps(begin_s: float, length_s: float, daily: bool, start_s: float) -> None:
    signal = EnergySignal(DAY.time_s, DAY.value, daily=daily, start_s=start_s)
    end_s = begin_s + length_s
    cuts = [begin_s, *signal.steps(begin_s, end_s), end_s]
    pieces = [signal.at((one + two) / 2) * (two - one) for one, two in itertools.pairwise(cuts)]
    assert signal.integral(begin_s, end_s) == pytest.approx(sum(pieces), abs=1e-5)
    assert signal.amount(3.6e6, begin_s, end_s) == pytest.approx(sum(pieces), abs=1e-5)


def test_steps_are_those_of_every_day() -> None:
    assert DAY.starting(3600.0).steps(0.0, DAY_S) == [18_000.0, 61_200.0, DAY_S - 3600.0]
    assert EnergySignal((0.0, 10.0), (1.0, 2.0)).steps(0.0, 1e6) == [10.0]
    assert EnergySignal((0.0, 10.0), (1.0, 2.0)).steps(10.0, 1e6) == []
    assert DAY.steps(1e8 - 30_000.0, 1e8) == [at_s for at_s in DAY.steps(9e7, 1e8) if at_s > 1e8 - 30_000.0]


def test_the_shipped_day_is_read() -> None:
    price = read_signal(files.data("signals", "synthetic_day_price.csv"), start="18:00")
    assert price.daily
    assert price.unit == "price_per_kwh"
    assert price.start_s == 64_800.0
    assert np.mean(price.value) == pytest.approx(0.1158, abs=1e-4)


def test_a_file_longer_than_a_day_does_not_repeat(tmp_path: Path) -> None:
    long = read_signal(_write(tmp_path / "a.csv", "time_s,g_co2_per_kwh\n0,400\n90000,200\n"))
    assert not long.daily
    assert long.counts == "co2_g"
    assert long.at(1e6) == 200.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time_s,price\n0,1\n", "row 1.*found a header without a unit: time_s, price.*price_per_kwh and g_co2"),
        ("time_s,price_per_kwh,g_co2_per_kwh\n0,1,1\n", "found both units"),
        ("hour,price_per_kwh\n0,1\n", "column time_s: found a header without it"),
        ("time_s,price_per_kwh,zone\n0,1,DE\n", "column zone: found an unknown column"),
        ("time_s,price_per_kwh\n5,1\n", "row 2.*time_s.*found '5'.*expected 0 in the first row"),
        ("time_s,price_per_kwh\n0,1\n0,2\n", "row 3.*a time above 0 s"),
        ("time_s,price_per_kwh\n0,cheap\n", "row 2.*price_per_kwh.*'cheap'"),
        ("time_s,price_per_kwh\n0,1e9\n", "at most 1e"),
        ("time_s,price_per_kwh\n0,nan\n", "row 2"),
        ("time_s,price_per_kwh\n", "found a header without rows"),
        ("", "found an empty file"),
    ],
)
def test_a_bad_file_is_refused_with_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_signal(_write(tmp_path / "bad.csv", text))


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    long = _write(tmp_path / "long.csv", "time_s,price_per_kwh\n0,1\n90000,2\n")
    with pytest.raises(InputError, match="times below 86400 s, since it repeats every day"):
        read_signal(long, daily=True)
    for start in ("25:00", "6pm", -1.0, float("nan")):
        with pytest.raises(InputError, match="start"):
            start_time_s(start)
    for bad in ({"unit": "eur"}, {"value": (1.0,)}, {"time_s": (1.0, 2.0, 3.0)}, {"value": (1.0, float("nan"), 1.0)}):
        with pytest.raises(InputError):
            EnergySignal(**{"time_s": DAY.time_s, "value": DAY.value, **bad})  # type: ignore[arg-type]
