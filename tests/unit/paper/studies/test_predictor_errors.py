"""Errors of predictors for reading: both quantities together, an absolute and a relative error a cell."""

import pandas as pd

from heshare.paper.studies import predictor_errors


def errors(data: str, quantity: str, absolute: float, relative: float) -> pd.DataFrame:
    sizes = {"error": ["absolute", "relative"], "mean_pct": [absolute, relative]}
    return pd.DataFrame({"data": data, "split": "row", "technique": "RF", "quantity": quantity, **sizes})


def test_errors_without_power() -> None:
    """A record without power has the errors of its times."""
    every = pd.concat(
        [errors("emulated", "time", 9, 9), errors("emulated", "both", 1, 2.26), errors("published", "time", 3, 4)]
    )
    shown = predictor_errors.readable(predictor_errors.of_both(every))
    assert shown.to_dict("records") == [
        {"Technique": "RF", "Emulated, rows": "1.0 / 2.3", "Published, rows": "3.0 / 4.0"}
    ]
