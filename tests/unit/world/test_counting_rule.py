"""The counts of `docs/adding.md` reproduce the networks of `data/workloads.csv`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.recipes import WORKLOAD, described, registrations_end, write_rows

import heshare as hs
from heshare.world import catalogue

# Blocks, tokens, width, feed-forward width, layers with weights in a block; multiply-accumulates of embedding and head.
TRANSFORMERS = {
    "bert_large": (24, 128, 1024, 4096, 6, 0),
    "gpt2": (12, 128, 768, 3072, 4, 128 * 768 * 50257),
    "vit_b16": (12, 197, 768, 3072, 6, 196 * 768 * 768 + 768 * 1000),
}
VGG = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
"""3 x 3 convolutions before each halving of the image."""
MIB = 2.0**20


@pytest.fixture(autouse=True)
def example(tmp_path: Path) -> Iterator[None]:
    """The example of the page is in the catalogue."""
    with registrations_end():
        catalogue.register_models(write_rows(tmp_path / "models.csv", "workload", described(WORKLOAD)))
        yield


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name: str) -> None:
    """Layers, operations and outputs of BERT Large, GPT-2 and the page's ViT-B/16 follow from their shapes."""
    blocks, tokens, width, forward, in_block, more = TRANSFORMERS[name]
    model = catalogue.models()[name]
    products = blocks * tokens * (4 * width**2 + 2 * width * forward + 2 * tokens * width)
    assert model.layers == in_block * blocks + 2
    assert model.gflops == pytest.approx(2e-9 * (products + more), rel=2e-3)
    assert model.activations_m == pytest.approx(16e-6 * blocks * tokens * width, rel=2e-3)


@pytest.mark.parametrize("name", VGG)
def test_convolutions(name: str) -> None:
    """The same of two CNNs, whose layers are those of their names."""
    outputs, products, inside, pixels = 0, 0, 3, 224
    for outside, convolutions in zip((64, 128, 256, 512, 512), VGG[name], strict=True):
        for _ in range(convolutions):
            outputs += outside * pixels**2
            products += 9 * inside * outside * pixels**2
            inside = outside
        pixels //= 2
    dense = [(7 * 7 * 512, 4096), (4096, 4096), (4096, 1000)]
    model = catalogue.models()[name]
    assert model.layers == sum(VGG[name]) + len(dense) == int(name.removeprefix("vgg"))
    assert model.gflops == pytest.approx(2e-9 * (products + sum(a * b for a, b in dense)), rel=2e-3)
    assert model.activations_m == pytest.approx(1e-6 * (outputs + sum(b for _, b in dense)), rel=2e-3)


def test_layers_of_names() -> None:
    """ResNets and DenseNets have as many layers as their names say."""
    names = [name for name in catalogue.models() if name.startswith(("resnet", "densenet"))]
    assert len(names) == 8
    assert [catalogue.models()[name].layers for name in names] == [
        int("".join(filter(str.isdigit, name))) for name in names
    ]


def test_memory() -> None:
    """Memory of every network that is no language model: context and weights, and its outputs in FP32."""
    for model in catalogue.models().values():
        if model.language is None:
            assert model.memory_fixed_mib == pytest.approx(540 + 4e6 * model.params_m / MIB, abs=1)
            assert model.memory_per_sample_mib == pytest.approx(4e6 * model.activations_m / MIB, rel=3e-3)


@pytest.mark.parametrize("gpu", ["T4", "V100", "A100", "H100"])
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_example_below_peak(gpu: str, batch_size: int) -> None:
    """The page's network is below the peak rate of every card, and it says what is missing."""
    found = hs.estimate(gpu, f"vit_b16:{batch_size}")
    task, card = found.tasks[0], catalogue.gpus()[gpu]
    rate = 1e-3 * catalogue.models()["vit_b16"].gflops * batch_size / task.time_s
    assert rate < card.peak_tflops("fp32") * found.sm_mhz / card.max_mhz
    assert task.basis.startswith("no row of vit_b16 on any GPU")
