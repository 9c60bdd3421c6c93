"""`make calibrate`: fit the emulated device to the measured figures, say how well, write the constants."""

from __future__ import annotations

import csv
import io
import sys
from functools import cache

import pandas as pd

from heshare import files
from heshare.devices.calibration.checks import errors, points
from heshare.devices.calibration.fit import COLUMNS, Calibration, calibrate, lines


@cache
def _calibrated() -> Calibration:
    return calibrate()


def constants_csv() -> str:
    """The text of `data/calibration/constants.csv`, fitted anew."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(lines(_calibrated()))
    return text.getvalue()


def calibration_report() -> tuple[pd.DataFrame, pd.DataFrame]:
    """(errors, points) on measurements left out of the fit.

    Returns:
        errors: one row a test: test, n, mape_pct, p90_pct, target_mape_pct, target_p90_pct.
        points: one row a left-out measurement: test, gpu, item, setting, unit, measured, modelled, error_pct.
    """
    left_out = points(_calibrated())
    return errors(left_out), left_out


def main() -> None:
    """Fit, print the errors on points left out, and rewrite constants.csv and errors.csv."""
    folder = files.data("calibration")
    found, _ = calibration_report()
    files.write_text(folder / "constants.csv", constants_csv())
    files.write_text(folder / "errors.csv", found.to_csv(index=False, float_format="%.2f", lineterminator="\n"))
    sys.stdout.write(found.to_string(index=False, float_format="%.2f", na_rep="") + "\n")


if __name__ == "__main__":
    main()
