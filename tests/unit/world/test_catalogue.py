"""Catalogue: the data files are complete, with sources and units; names, memory, peak rates."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu, gpus, memory_mib, model, paper_models, resident
from heshare.world.workload import PRECISIONS, Workload


def test_sources(checkout: Path) -> None:
    """Data files have a source for every value."""
    for name in ("gpus.csv", "workloads.csv", "helios_percentiles.csv"):
        with (checkout / "data" / name).open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert rows
        assert all(row["source"].strip() for row in rows)


def test_models_and_gpus() -> None:
    """Models are those of Table IV, and GPUs include Table III."""
    assert set(paper_models()) == {
        *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
        *("densenet121", "densenet161", "densenet201", "vgg16", "vgg19"),
        *("mobilenet", "mobilenetv2", "bert_large", "transformer", "gpt2"),
    }
    assert {"T4", "V100", "V100-SXM2", "A100", "H100", "H200"} <= set(gpus())


def test_by_name() -> None:
    """A GPU or model is found by its name; for an unknown one the known names are listed."""
    assert gpu("v100-sxm2") is gpus()["V100-SXM2"]
    assert gpu("RTX 3090") is gpu("rtx3090") is gpus()["RTX-3090"]
    assert model("gpt2").name == "gpt2"
    with pytest.raises(InputError, match="expected one of T4"):
        gpu("P100")
    with pytest.raises(InputError, match="resnet152"):
        model("resnet51")
    with pytest.raises(InputError, match="alexnet"):
        resident("alexnet:16@50")


def test_memory() -> None:
    """Memory of every default workload fits the smallest GPU."""
    for name in paper_models():
        assert 0 < memory_mib(Workload(name, 4)) < memory_mib(Workload(name, 8)) < gpu("T4").memory_mib


def test_arithmetic():
    """The default precision computes convolutions in TF32 and matrix products in FP32; GPUs without TF32 have FP32."""
    found = {name: [gpu(name).arithmetic(one, kind) for one in PRECISIONS for kind in ("cnn", "transformer")]
             for name in ("V100", "A100")}  # fmt: skip
    assert found["V100"] == ["fp32"] * 6 + ["fp16"] * 2
    assert found["A100"] == ["tf32", "fp32"] + ["fp32"] * 2 + ["tf32"] * 2 + ["fp16"] * 2


def test_peak():
    """The peak rate of TF32 is half of that of FP16, or that of FP32 where this is higher."""
    assert [gpu(name).has_tf32 for name in ("T4", "V100", "A100", "L4", "H100")] == [False, False, True, True, True]
    assert gpu("V100").peak_tflops("fp32") == gpu("V100").fp32_tflops
    assert gpu("A100").peak_tflops("tf32") == gpu("A100").fp16_tflops / 2
    assert gpu("RTX-3080-Ti").peak_tflops("tf32") == gpu("RTX-3080-Ti").fp32_tflops
    assert gpu("A10").peak_tflops("fp16") == gpu("A10").fp16_tflops
