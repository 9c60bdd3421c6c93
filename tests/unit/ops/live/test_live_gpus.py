"""The GPUs of a live comparison, where there are none."""

from __future__ import annotations

import pytest

from heshare.ops.executor.host import Host
from heshare.ops.live.live_gpus import find_live_gpus
from heshare.shared.errors import DeviceError


def test_no_gpu(monkeypatch):
    """With a driver but without a GPU the error says how to rehearse."""
    monkeypatch.setattr(Host, "survey", lambda host: ())
    with pytest.raises(DeviceError, match="make live STAND_IN=H100"):
        find_live_gpus("nvml", allow_clocks=False)
