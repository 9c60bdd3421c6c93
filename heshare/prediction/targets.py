"""What is learned: time under sharing and the GPU's power, written so that a model can learn them well."""

from __future__ import annotations

import numpy as np

from heshare.errors import InputError
from heshare.prediction.features import ALONE, CLOCK, MPS, OCCUPIED_POWER, OCCUPIED_SM
from heshare.prediction.predictor import FloatArray

FORMS = ("load", "ratio", "literal")


class Targets:
    """Both outputs of the predictor as columns to learn, and back.

    Args:
        form: `literal`: time (s) and power (W) as they are. `ratio`: logarithms of time over the time alone and of
            power over the power before the task came. `load`: as `ratio`, with the time alone first multiplied by how
            far the tasks together ask for more SMs than there are, so that larger sets than those of the record are
            not taken for the largest recorded one.

    Raises:
        InputError: no such form.
    """

    def __init__(self, form: str = "load") -> None:
        if form not in FORMS:
            raise InputError(column="target", found=repr(form), expected=" or ".join(FORMS), action="Choose one form.")
        self.form = form

    def encode(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> FloatArray:
        """Columns to learn, shape (rows, 2), from features (rows, 14), times (s) and powers (W)."""
        if self.form == "literal":
            return np.column_stack([time_s, power_w])
        base_s, base_w = self._bases(features)
        return np.column_stack([np.log(time_s / base_s), np.log(power_w / base_w)])

    def decode(self, features: FloatArray, learned: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Times (s) and powers (W), each (rows,), from features (rows, 14) and learned columns (rows, 2)."""
        if self.form == "literal":
            return learned[:, 0], learned[:, 1]
        base_s, base_w = self._bases(features)
        return base_s * np.exp(learned[:, 0]), base_w * np.exp(learned[:, 1])

    def _bases(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.form == "ratio":
            return features[:, ALONE], features[:, OCCUPIED_POWER]
        own_pct = np.minimum(features[:, 0], features[:, MPS])
        load = np.maximum(1.0, (own_pct + features[:, OCCUPIED_SM]) / 100)
        return features[:, ALONE] * load, features[:, OCCUPIED_POWER]


__all__ = ["CLOCK", "FORMS", "Targets"]
