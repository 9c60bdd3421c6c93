"""The models of Table IV: built for real where PyTorch is there, refused clearly where it is not."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from heshare.errors import DeviceError, InputError
from heshare.gpu.workers import networks
from heshare.world.catalogue import models

QUICK = ("resnet18", "densenet121", "mobilenet", "mobilenetv2", "transformer")
ALL = [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in networks.RECIPES]
SHAPES = {"bert_large": (2, 128, 1024), "gpt2": (2, 128, 50257), "transformer": (8, 37_000)}


def test_every_model_of_table_iv_has_a_constructor() -> None:
    assert set(networks.RECIPES) == set(models())


def test_an_unknown_model_is_refused_before_pytorch_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="resnet50"):
        networks.build("resnet51", 1)


@pytest.mark.parametrize("name", ["torch", "torchvision.models", "transformers"])
def test_a_missing_library_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, name.partition(".")[0], None)
    with pytest.raises(DeviceError, match=r"pip install 'heshare\[live\]'") as caught:
        networks.library(name)
    assert name.partition(".")[0] in str(caught.value)


def _built(name: str, batch_size: int, **how: Any) -> tuple[Any, networks.Network]:
    torch = pytest.importorskip("torch", reason="needs the extra `live`")
    pytest.importorskip("torchvision", reason="needs the extra `live`")
    pytest.importorskip("transformers", reason="needs the extra `live`")
    return torch, networks.build(name, batch_size, device="cpu", **how)


@pytest.mark.parametrize("name", ALL)
def test_a_network_has_the_size_and_the_work_of_the_catalogue(name: str) -> None:
    torch, network = _built(name, 2)
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
    torch.backends.mha.set_fastpath_enabled(False)  # fused layers are not counted
    try:
        with torch.no_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
            answer = network()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    # 65 million is the base Transformer's published size, rounded up from 63.1 with its 37,000 entries.
    rounding = 0.03 if name == "transformer" else 0.02
    params_m = sum(parameter.numel() for parameter in network.module.parameters()) / 1e6
    assert params_m == pytest.approx(models()[name].params_m, rel=rounding)
    assert counter.get_total_flops() / 2e9 == pytest.approx(models()[name].gflops, rel=0.04)
    assert tuple(answer.shape) == SHAPES.get(name, (2, 1000))
    assert bool(answer.isfinite().all())


def test_half_precision_stays_finite() -> None:
    torch, network = _built("densenet121", 1, precision="fp16")
    with torch.inference_mode():
        answer = network()
    assert answer.dtype == torch.float16
    assert bool(answer.isfinite().all())


def test_the_same_seed_gives_the_same_answer() -> None:
    torch, network = _built("mobilenet", 1)
    _, again = _built("mobilenet", 1)
    _, other = _built("mobilenet", 1, seed=1)
    with torch.inference_mode():
        assert torch.equal(network(), again())
        assert not torch.equal(network(), other())


def test_tf32_is_left_to_the_card() -> None:
    torch, _ = _built("mobilenet", 1)
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cudnn.fp32_precision == "tf32"
