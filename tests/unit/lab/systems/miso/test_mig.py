"""MIG instances: which GPUs have those that are modelled."""

from __future__ import annotations

import pytest

from heshare.devices.device_model import co_run
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload


@pytest.mark.parametrize(("name", "slices"), [("A100", 7), ("H100-PCIe", 7), ("A30", 4), ("A10", 0), ("L40S", 0)])
def test_mig_is_refused_where_its_slices_are_not_modelled(name: str, slices: int):
    card = gpu(name)
    assert card.mig_slices == slices
    if slices == 7:
        return
    with pytest.raises(InputError, match=f"MIG of 7 slices; this one has {slices or 'none'}"):
        co_run(card, [Resident(Workload("resnet50", 8), sharing="mig-1g")])
