"""Public records that are left out whole: tables and kept fits without them, and what is predicted in their place."""

from __future__ import annotations

import pandas as pd
import pytest

from heshare.lab.calibration import contention_fit, laws_fit, measurements
from heshare.lab.calibration.measurements import rows_of, table, without
from heshare.lab.calibration.validation.laboratories import errors_by_laboratory
from heshare.shared import files

IGNITER, LAMBDA = "icloud-ecnu/igniter", "lambdal/deeplearning-benchmark"
PUBLISHED = ("times", "cards", "frameworks", "power", "pairs", "mig", "clocks", "kernel_clocks", "saturated_power")


def test_record_left_out():
    """A record that is left out has no row, and the others have all of theirs."""
    whole = {name: len(table(name)) for name in PUBLISHED}
    with without(IGNITER):
        for name in PUBLISHED:
            assert not table(name).source.str.contains("igniter").any()
            assert len(table(name)) == whole[name] - len(rows_of(IGNITER, name))
        assert len(contention_fit.pair_rows()) == 0
        assert table("kernels").source.str.contains("igniter").any()
    assert {name: len(table(name)) for name in PUBLISHED} == whole


@pytest.mark.slow
def test_fits_restored():
    """Fits are made anew without a record, and restored after an error."""
    known, spread = laws_fit.comparisons(), laws_fit.speed_spread()

    def fail() -> None:
        with without(LAMBDA):
            assert not laws_fit.comparisons().record.str.startswith("Lambda").any()
            assert laws_fit.speed_spread() != spread
            raise RuntimeError("made up")

    with pytest.raises(RuntimeError, match="made up"):
        fail()
    pd.testing.assert_frame_equal(laws_fit.comparisons(), known)
    assert laws_fit.speed_spread() == spread
    assert measurements._left_out == []


def rows_left(record: str) -> pd.DataFrame:
    cards = table("cards")
    return cards[cards.source.str.startswith(record)]


def test_nested_records():
    """Records that are left out inside each other come back one by one."""
    with without(IGNITER):
        with without(LAMBDA):
            assert not len(rows_left(LAMBDA))
        assert len(rows_left(LAMBDA)) == len(rows_of(LAMBDA, "cards"))
        assert len(table("pairs")) == 0


@pytest.mark.nightly
def test_laboratories_file():
    """A new fit gives the committed table of laboratories."""
    from heshare.lab.calibration import calibrate

    errors = errors_by_laboratory(calibrate._calibrated())
    committed = pd.read_csv(files.data("calibration", "laboratories.csv"))
    keys = ["record", "quantity", "n"]
    pd.testing.assert_frame_equal(committed[keys], errors[keys])
    assert committed.mape_pct.tolist() == pytest.approx(errors.mape_pct.tolist(), rel=0.02)
