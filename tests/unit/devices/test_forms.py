"""The device model's forms fitted to one GPU's own record."""

from __future__ import annotations

import pytest

from heshare.devices.calibration import forms
from heshare.devices.emulated import EmulatedDevice
from heshare.profiles.halves import settings
from heshare.profiles.record import record_for
from heshare.world.catalogue import gpu


def test_a_fit_that_ends_far_from_the_record_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    h100, once, misses = gpu("H100"), forms._fit, []
    seen = settings(record_for(EmulatedDevice(h100), 300.0, progress=False))

    def fit(*arguments):  # type: ignore[no-untyped-def]
        found = once(*arguments)
        misses.append(forms._miss(h100, seen, found))
        return found

    monkeypatch.setattr(forms, "_fit", fit)
    last = forms._miss(h100, seen, forms.fit(h100, seen, 70.0))
    # Seen alone once, a workload may be explained by its host part alone: that is where the first one ends.
    first, second = misses
    assert first > 2 * forms.GOOD
    assert last == second < 0.75 * first
