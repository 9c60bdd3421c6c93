"""Basis of an estimate without rows of its network on its GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.recipes import GPU, described, registrations_end, write_rows

import heshare as hs
from heshare.devices.basis import basis_of
from heshare.devices.constants import default
from heshare.devices.iteration_time import iteration_of
from heshare.world import catalogue


def basis(gpu: str, resident: str, time_s: float = 0.0, **changes: float) -> str:
    """Return the basis of a resident whose iteration has other parts or another time."""
    card, asked = catalogue.gpu(gpu), catalogue.resident(resident)
    iteration = replace(iteration_of(default(), gpu, asked), **changes)  # type: ignore[arg-type]
    return basis_of(default(), card, asked, iteration, time_s or iteration.time_s(1.0, 1.0), 1.0)


def test_rows(tmp_path) -> None:
    """It names the network, GPU and arithmetic without rows; with rows it is empty."""
    assert hs.estimate("T4", "resnet50:8").tasks[0].basis == ""
    assert hs.estimate("T4", "gpt2:8").tasks[0].basis.startswith("no row of gpt2 on T4 in fp32")
    assert "language models" in hs.estimate("A100", "llama3_8b:8", precision="fp16").tasks[0].basis
    with registrations_end():
        catalogue.register_gpus(write_rows(tmp_path / "gpus.csv", "gpu", described(GPU)))
        assert "no row of any network on N4" in hs.estimate("N4", "resnet50:8").tasks[0].basis


@pytest.mark.parametrize(("host", "is_bound"), [(1.01, True), (0.99, False)])
def test_host(host: float, is_bound: bool) -> None:
    """It says where the host part is longer than the GPU part."""
    own = iteration_of(default(), "T4", catalogue.resident("gpt2:8"))
    assert ("bound by its host" in basis("T4", "gpt2:8", host_s=host * own.gpu_s(1.0, 1.0))) == is_bound


@pytest.mark.parametrize(("part", "shown"), [(0.49, ""), (0.6, "60 % of the peak rate"), (1.2, "120 % of the peak")])
def test_peak(part: float, shown: str) -> None:
    """It has the part of the peak rate where that is above half."""
    model, card = catalogue.models()["gpt2"], catalogue.gpu("T4")
    time_s = 8 * model.gflops / (part * 1e3 * card.fp32_tflops)
    found = basis("T4", "gpt2:8", time_s, host_s=0.0)
    assert shown in found
    assert ("peak rate" in found) == bool(shown)
    # Half of the SMs have half of the peak rate.
    assert f"{200 * part:.0f} % of the peak rate" in basis("T4", "gpt2:8@50", time_s, host_s=0.0)
