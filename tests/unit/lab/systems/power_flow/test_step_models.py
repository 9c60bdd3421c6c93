"""The fit of a step's time and energy: exact on measurements that have its form, never below zero on others."""

import numpy as np
import pytest

from heshare.lab.systems.power_flow.step_models import StepModel, fit_step

SPEEDS = np.array([0.5, 0.6, 0.75, 1.0])


ENERGY = (50.0, 20.0, 80.0)


def fitted(model):
    """Return the fit to the times and energies of a model."""
    time_s = model.time_s(1, SPEEDS)
    return fit_step(SPEEDS, time_s, model.energy_j(time_s, SPEEDS), float(model.time_s(2, SPEEDS[-1])))


@pytest.mark.parametrize("sharpness", [1.0, 2.0, 8.0])
def test_fit_step(sharpness):
    """The fit finds the model of its measurements."""
    model = StepModel(0.3, 0.2, 0.05, sharpness, *ENERGY)
    found = fitted(model)
    assert found.sharpness == sharpness
    assert found.time_s(8, 0.7) == pytest.approx(model.time_s(8, 0.7))
    assert found.energy_j(0.5, 0.9) == pytest.approx(model.energy_j(0.5, 0.9))


def test_no_negative_term():
    """The fit has no term below zero."""
    # Faster at lower clocks and on two GPUs without any exchange: the nearest terms are zero.
    found = fit_step(SPEEDS, [1.0, 1.1, 1.1, 1.2], np.ones(4), 0.9)
    assert found.compute_s == 0.0
    assert found.fixed_s == pytest.approx(1.1, rel=0.02)
    assert found.sync_s == 0.0
