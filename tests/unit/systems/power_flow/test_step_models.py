"""The fits find what made the measurements, and stay above zero where the form is wrong."""

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.systems.power_flow.step_models import StepEnergy, StepTime, fit_energy, fit_time

SPEEDS = np.array([0.5, 0.6, 0.75, 1.0])


def test_the_forms_by_hand():
    assert StepTime(1.0, 2.0, 4.0).at(2, 0.5) == pytest.approx(1.0 + 4.0 + 2.0)
    assert StepTime(1.0, 2.0, 4.0).at([[1], [4]], [0.5, 1.0]).tolist() == [[5.0, 3.0], [8.0, 6.0]]
    assert StepTime(3.0, 2.0, 0.0, 2.0).at(1, 0.5) == pytest.approx(5.0), "the hypotenuse of 3 and 4"
    assert StepEnergy(50.0, 20.0, 80.0).at([2.0, 1.0], [0.5, 1.0]).tolist() == [140.0, 150.0]


@pytest.mark.parametrize("sharpness", [1.0, 2.0, 8.0])
def test_a_pre_run_finds_the_times_that_made_it(sharpness):
    truth = StepTime(0.3, 0.2, 0.05, sharpness)
    gpus, speed = np.repeat([1, 2], 4), np.tile(SPEEDS, 2)
    found = fit_time(gpus, speed, truth.at(gpus, speed))
    assert found.sharpness == sharpness
    assert found.at(8, 0.7) == pytest.approx(truth.at(8, 0.7))


def test_a_pre_run_finds_the_energy_that_made_it():
    time_s, truth = StepTime(0.1, 0.3, 0.0).at(1, SPEEDS), StepEnergy(50.0, 20.0, 80.0)
    found = fit_energy(time_s, SPEEDS, truth.at(time_s, SPEEDS))
    assert found.at(0.5, 0.9) == pytest.approx(truth.at(0.5, 0.9))


def test_no_term_falls_below_zero():
    # Faster at the lower clock: the nearest the form comes to it is not to care.
    found = fit_time(np.ones(4), SPEEDS, [1.0, 1.1, 1.1, 1.2])
    assert found.compute_s == 0.0
    assert found.fixed_s == pytest.approx(1.1, rel=0.02)
    # Two GPUs faster than one: no exchange, and not a negative one.
    assert fit_time([1, 2], [1.0, 1.0], [1.0, 0.9]).sync_s == 0.0


def test_measurements_that_say_too_little_are_refused():
    with pytest.raises(InputError, match="all of its numbers"):
        fit_energy([1.0, 1.0], SPEEDS[:2], [1.0])
    with pytest.raises(InputError, match="at least one"):
        fit_energy([], [], [])
    with pytest.raises(InputError, match="one on one GPU"):
        fit_time([2], [1.0], [1.0])
