"""Catalogue: the data files are complete, with sources and units; errors of wrong rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu, gpus, memory_mib, model, paper_models, read_facts, resident
from heshare.world.workload import PRECISIONS, Workload

FIELDS = {"title": "text", "layers": "whole", "clocks_mhz": "MHz", "tdp_w": "W"}
ROWS = [
    "T4,title,NVIDIA T4,,x",
    "T4,layers,18,,x",
    "T4,clocks_mhz,300:1590:15,MHz,x",
    "T4,tdp_w,70,W,x",
]


def facts(tmp_path: Path, *rows: str):
    path = tmp_path / "facts.csv"
    path.write_text("\n".join(("gpu,field,value,unit,source", *rows)), encoding="utf-8")
    return read_facts(path, "gpu", FIELDS)


def test_facts(tmp_path: Path) -> None:
    """Values of facts are converted by their kind; a missing one is named."""
    assert facts(tmp_path, *ROWS, "T4,note,passed over,,x") == {
        "T4": {"title": "NVIDIA T4", "layers": 18, "clocks_mhz": tuple(range(300, 1591, 15)), "tdp_w": 70.0}
    }
    assert facts(tmp_path, *ROWS[:2], "T4,clocks_mhz,5 7 9,MHz,x", ROWS[3])["T4"]["clocks_mhz"] == (5, 7, 9)
    with pytest.raises(InputError, match="T4 without tdp_w"):
        facts(tmp_path, *ROWS[:3])


@pytest.mark.parametrize(
    ("index", "row", "column"),
    [
        (0, "T4,title,,,x", "value"),
        (1, "T4,layers,18.5,,x", "value"),
        (1, "T4,title,again,,x", "field"),
        (2, "T4,clocks_mhz,300:1590:0,MHz,x", "value"),
        (3, "T4,tdp_w,70,kW,x", "unit"),
        (3, "T4,tdp_w,-70,W,x", "value"),
    ],
)
def test_wrong_value(tmp_path: Path, index: int, row: str, column: str) -> None:
    """A wrong value is named by row and column."""
    with pytest.raises(InputError) as caught:
        facts(tmp_path, *ROWS[:index], row, *ROWS[index + 1 :])
    assert (caught.value.row, caught.value.column) == (index + 2, column)


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
    assert found["A100"] == ["fp32"] * 2 + ["tf32"] * 2 + ["tf32", "fp32"] + ["fp16"] * 2


def test_peak():
    """The peak rate of TF32 is half of that of FP16, or that of FP32 where this is higher."""
    assert [gpu(name).has_tf32 for name in ("T4", "V100", "A100", "L4", "H100")] == [False, False, True, True, True]
    assert gpu("V100").peak_tflops("fp32") == gpu("V100").fp32_tflops
    assert gpu("A100").peak_tflops("tf32") == gpu("A100").fp16_tflops / 2
    assert gpu("RTX-3080-Ti").peak_tflops("tf32") == gpu("RTX-3080-Ti").fp32_tflops
    assert gpu("A10").peak_tflops("fp16") == gpu("A10").fp16_tflops
