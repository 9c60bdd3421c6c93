"""The fits find what made the measurements, and stay above zero where the form is wrong."""

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.policies.allocation.fitted import BoardPower, StepTime, fit_power, fit_time

SPEEDS = np.array([0.5, 0.75, 1.0])


def test_the_forms_by_hand():
    assert StepTime(1.0, 2.0, 4.0).at(2, 0.5) == pytest.approx(1.0 + 4.0 + 2.0)
    assert StepTime(1.0, 2.0, 4.0).at([[1], [4]], [0.5, 1.0]).tolist() == [[5.0, 3.0], [8.0, 6.0]]
    assert BoardPower(50.0, 20.0, 80.0).at([0.5, 1.0]).tolist() == [70.0, 150.0]


def test_a_pre_run_finds_the_times_that_made_it():
    truth = StepTime(0.1, 0.3, 0.05)
    gpus, speed = np.repeat([1, 2], 3), np.tile(SPEEDS, 2)
    found = fit_time(gpus, speed, truth.at(gpus, speed))
    assert found.at(8, 0.6) == pytest.approx(truth.at(8, 0.6))


def test_a_pre_run_finds_the_power_that_made_it():
    truth = BoardPower(50.0, 20.0, 80.0)
    assert fit_power(SPEEDS, truth.at(SPEEDS)).at(0.9) == pytest.approx(truth.at(0.9))


def test_no_term_falls_below_zero():
    # Faster at the lower clock: the nearest the form comes to it is not to care.
    found = fit_time(np.ones(3), SPEEDS, [1.0, 1.1, 1.2])
    assert found.compute_s == 0.0
    assert found.fixed_s == pytest.approx(1.1, rel=0.02)


def test_a_measurement_is_needed_at_every_point():
    with pytest.raises(InputError, match="one measurement a point"):
        fit_power(SPEEDS, [1.0, 2.0])
    with pytest.raises(InputError, match="at least one"):
        fit_time([], [], [])
