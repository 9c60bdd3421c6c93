"""Errors of the forms for training: those that data/README.md states."""

from __future__ import annotations

import pandas as pd
import pytest

from heshare.lab.calibration import training_validation
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.time_slicing import time_slice_slowdown


def turn_errors() -> pd.DataFrame:
    """Return Gavel's pairs beside turns in time slices, two rows a pair: measured and modelled slowdown, error."""
    rows = []
    for pair, measured in training.measured_pairs():
        modelled = time_slice_slowdown([training.step(own).busy for own in pair])
        rows += [(slowdown, modelled) for slowdown in measured]
    table = pd.DataFrame(rows, columns=["measured", "modelled"])
    return table.assign(error=table["modelled"] / table["measured"] - 1)


def test_mig_instance_errors():
    errors = training_validation.mig_instance_errors()
    assert len(errors) == 145 - 32
    assert errors["error"].abs().mean() == pytest.approx(0.096, abs=0.005)
    by_slices = errors["error"].abs().groupby(errors["slices"]).mean()
    assert by_slices[4] == pytest.approx(0.06, abs=0.01)
    assert by_slices[1] == pytest.approx(0.16, abs=0.01)


def test_turns_alone_are_too_kind_to_pairs_of_trainings():
    errors = turn_errors()
    assert len(errors) == 2 * 330
    assert errors["error"].abs().mean() == pytest.approx(0.28, abs=0.005)
    assert errors["modelled"].mean() / errors["measured"].mean() == pytest.approx(0.63, abs=0.01)
