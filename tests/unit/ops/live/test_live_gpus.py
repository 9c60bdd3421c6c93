"""The GPUs of a live comparison, where there are none, and the recording of their profiles."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from heshare.ops.executor.host import Host
from heshare.ops.live.live_gpus import LiveGpu, find_live_gpus, record_profiles
from heshare.ops.open_device import emulated
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import gpu


def test_no_gpu(monkeypatch):
    """With a driver but without a GPU the error says how to rehearse."""
    monkeypatch.setattr(Host, "survey", lambda host: ())
    with pytest.raises(DeviceError, match="make live STAND_IN=H100"):
        find_live_gpus("nvml", allow_clocks=False)


def test_records(tmp_path):
    """One GPU of each type is recorded; a recording with clocks neither continues nor replaces one without."""
    opened = []

    def open_emulated(live):
        opened.append(live.uuid)
        return nullcontext(emulated(live.gpu.name))

    gpus = [LiveGpu(f"GPU-{index}", gpu(name), False, {}) for index, name in enumerate(("T4", "A100", "T4"))]
    options = {"budget_s": 20.0, "seed": 0, "opener": open_emulated, "progress": False}
    without = record_profiles(gpus, tmp_path, **options)
    assert opened == ["GPU-1", "GPU-0"]
    assert [path.relative_to(tmp_path).as_posix() for path in without] == [
        "profiles/A100/profile.csv",
        "profiles/T4/profile.csv",
    ]
    before = [path.read_bytes() for path in without]
    with_clocks = record_profiles([replace(live, clocks=True) for live in gpus], tmp_path, **options)
    assert not set(with_clocks) & set(without)
    assert [path.read_bytes() for path in without] == before
