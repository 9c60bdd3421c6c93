"""The fit of the device model's forms to one GPU's own profiles."""

from __future__ import annotations

import pytest

from heshare.calibration import record_fit
from heshare.devices.emulated_device import EmulatedDevice
from heshare.gpu.recording.profile_device import record_within_budget
from heshare.world.catalogue import gpu


def test_fit_record_starts_again_where_the_first_fit_ends_far_from_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    h100, fit_from, errors = gpu("H100"), record_fit._fit_from, []
    settings = record_fit.observed_settings(record_within_budget(EmulatedDevice(h100), 300.0, progress=False))

    def fit(*arguments):  # type: ignore[no-untyped-def]
        constants = fit_from(*arguments)
        errors.append(record_fit._mean_error(h100, settings, constants))
        return constants

    monkeypatch.setattr(record_fit, "_fit_from", fit)
    last = record_fit._mean_error(h100, settings, record_fit.fit_record(h100, settings, 70.0))
    # Host time alone can explain a workload that was observed alone once: the first fit ends there.
    first, second = errors
    assert first > 2 * record_fit.GOOD_ERROR
    assert last == second < 0.75 * first
