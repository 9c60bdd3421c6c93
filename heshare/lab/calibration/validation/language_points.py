"""Left-out points of language models: each model predicted by the law that was fitted to the others."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from heshare.devices.language_models import FITTED_ON
from heshare.lab.calibration import language_fit
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.validation.points import LeftOutPoint, points

NAMES = {
    "time": "H100 decode step, a language model left out",
    "step": "H100 mean step with prompts, a language model left out",
    "power": "H100 serving power, a language model left out",
    "joules": "H100 energy of a token, a language model left out",
}
"""Test by quantity of a row (`language_fit.QUANTITIES`)."""
TARGETS = {
    NAMES["time"]: (15.0, 30.0),
    NAMES["step"]: (15.0, 30.0),
    NAMES["power"]: (12.0, 25.0),
    NAMES["joules"]: (15.0, 30.0),
}
"""Test: largest acceptable (mean, 90th percentile) of the absolute error, %."""


def left_out_models(quantity: str, calibration: Calibration) -> Iterator[LeftOutPoint]:
    power, rows = calibration.fitted.power[FITTED_ON], language_fit.server_rows()
    for model, law in language_fit.left_out_laws(power).items():
        spreads = {"power": law.power_spread, "joules": math.hypot(law.time_spread, law.power_spread)}
        own = rows.of(model)
        values = rows.measured[quantity][own], language_fit.predicted(law, power, rows)[quantity][own]
        settings, unit = np.array(rows.settings)[own].tolist(), language_fit.QUANTITIES[quantity]
        about = NAMES[quantity], FITTED_ON, model, settings, unit
        yield from points(*about, *values, spreads.get(quantity, law.time_spread), "decode", "fp16", "eager")


TESTS = tuple(partial(left_out_models, quantity) for quantity in NAMES)
"""The tests, in the order of `errors.csv`."""
