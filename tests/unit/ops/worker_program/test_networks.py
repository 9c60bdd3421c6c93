"""The networks of Table IV: built if PyTorch is installed, refused with the missing extra if it is not."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from heshare.ops.worker_program import networks
from heshare.ops.worker_program.inference_program import Inference
from heshare.shared.errors import DeviceError, InputError
from heshare.world import catalogue
from heshare.world.catalogue import models, paper_models
from heshare.world.workload import PRECISIONS

QUICK = ("resnet18", "densenet121", "mobilenet", "mobilenetv2", "transformer")
ALL = [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in networks.RECIPES]
SHAPES = {"bert_large": (2, 128, 1024), "gpt2": (2, 128, 50257), "transformer": (8, 37_000)}


def test_recipes() -> None:
    """There is a recipe for every model of Table IV."""
    assert set(networks.RECIPES) >= set(paper_models())


def test_unknown_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown model is refused before PyTorch is imported."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="resnet50"):
        networks.build("resnet51", 1)


@pytest.mark.parametrize("name", ["torch", "torchvision.models", "transformers"])
def test_missing_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library is named with the extra that installs it."""
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
def test_built(name: str) -> None:
    """A network has the parameters and operations of the catalogue."""
    torch, network = _built(name, 2)
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
    torch.backends.mha.set_fastpath_enabled(False)  # fused layers are not counted
    try:
        with torch.no_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
            output = network()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    # 65 million is the base Transformer's published size, rounded up from 63.1 with its 37,000 entries.
    rounding = 0.03 if name == "transformer" else 0.02
    params_m = sum(parameter.numel() for parameter in network.module.parameters()) / 1e6
    assert params_m == pytest.approx(models()[name].params_m, rel=rounding)
    assert counter.get_total_flops() / 2e9 == pytest.approx(models()[name].gflops, rel=0.04)
    assert tuple(output.shape) == SHAPES.get(name, (2, 1000))
    assert bool(output.isfinite().all())


def test_half_precision() -> None:
    """A network has finite outputs in half precision."""
    torch, network = _built("densenet121", 1, precision="fp16")
    with torch.inference_mode():
        output = network()
    assert output.dtype == torch.float16
    assert bool(output.isfinite().all())


def test_seed() -> None:
    """A network has the same outputs for the same seed."""
    torch, network = _built("mobilenet", 1)
    _, again = _built("mobilenet", 1)
    _, other = _built("mobilenet", 1, seed=1)
    with torch.inference_mode():
        assert torch.equal(network(), again())
        assert not torch.equal(network(), other())


class StandIn:
    """What `build` and `Inference` use of PyTorch, without a GPU: the settings of its back ends, and a module."""

    __version__ = "2.9"

    def __init__(self) -> None:
        # Convolutions and recurrent layers have settings of their own, which begin with TF32.
        operators = {name: SimpleNamespace(fp32_precision="tf32") for name in ("conv", "rnn")}
        cudnn = SimpleNamespace(fp32_precision="none", **operators)
        cuda = SimpleNamespace(matmul=SimpleNamespace(fp32_precision="none"))
        self.backends = SimpleNamespace(fp32_precision="none", cuda=cuda, cudnn=cudnn)
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            get_device_name=lambda: "a stand-in",
            empty_cache=lambda: None,
        )
        self.nn = SimpleNamespace(BatchNorm2d=int)
        self.device = self.no_grad = lambda *_: contextlib.nullcontext()
        self.halved = False

    def manual_seed(self, seed: int) -> None: ...

    def set_num_threads(self, count: int) -> None: ...

    def half(self) -> StandIn:
        self.halved = True
        return self

    def modules(self) -> list[object]:
        return []

    def requires_grad_(self, wanted: bool) -> StandIn:
        return self

    def eval(self) -> StandIn:
        return self

    def settings(self) -> list[str]:
        cudnn = self.backends.cudnn
        places = (self.backends, self.backends.cuda.matmul, cudnn, cudnn.conv, cudnn.rnn)
        return [place.fp32_precision for place in places]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    torch = StandIn()
    recipe = networks._Recipe(lambda: torch, lambda torch, size: ())
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(networks.RECIPES, "resnet18", recipe)
    return torch


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precision(precision: str, stand_in: StandIn) -> None:
    """Each back end computes as the emulated GPUs do in this precision: matrix products, convolutions, recurrences."""
    program = Inference("resnet18", 8, precision)
    kinds = ("transformer", "transformer", "cnn", "cnn", "cnn")
    in_tf32 = [catalogue.gpu("A100").arithmetic(precision, kind) == "tf32" for kind in kinds]
    assert stand_in.settings() == ["tf32" if each else "ieee" for each in in_tf32]
    assert stand_in.halved == (precision == "fp16")
    assert f"resnet18:8 {precision} on a stand-in" in program.title


@pytest.mark.slow
def test_precision_changes(stand_in: StandIn) -> None:
    """A process that is kept changes the precision with its task."""
    for precision, arithmetic in (("tf32", "tf32"), ("fp32", "ieee"), ("tf32", "tf32"), ("fp16", "ieee")):
        Inference("resnet18", 8, precision).close()
        assert set(stand_in.settings()) == {arithmetic}
