"""The tables of measurements: each is described, and its rows say in which precision they ran."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from heshare.lab.calibration import measurements
from heshare.lab.systems.fikit import kernel_table
from heshare.ops.recording import recordings
from heshare.profiles.schema import in_main_precision
from heshare.shared import files
from heshare.world import catalogue

FOLDER = files.data("calibration")
LABELLED = [path for path in sorted(FOLDER.glob("*.csv")) if "precision" in pd.read_csv(path, nrows=0)]
BY_RECORD = [path for path in LABELLED if "source" in pd.read_csv(path, nrows=0)]


def test_described():
    """Every table is in the list of `data/README.md`."""
    listed = [line for line in files.data("README.md").read_text("utf-8").splitlines() if line.startswith("| `")]
    for path in FOLDER.glob("*.csv"):
        assert any(f"`{path.name}`" in line.split("|")[1] for line in listed), path.name


@pytest.mark.parametrize("path", BY_RECORD, ids=lambda path: path.stem)
def test_labels(path: Path):
    """TF32 is on cards that have it, and there FP32 is of a record that turned TF32 off."""
    for row in pd.read_csv(path).itertuples():
        has_tf32 = catalogue.gpu(row.gpu.replace(" 40 GB", "-40GB").replace(" 32 GB", "")).has_tf32
        labels = {"tf32", "mixed", "fp16"} if has_tf32 else {"fp32", "fp16"}
        assert row.precision in labels | ({"fp32"} if path.stem == "true_fp32" else set())


@pytest.mark.parametrize(
    ("precisions", "kept"),
    [
        (["tf32", "tf32", "fp32", "fp16"], ["tf32", "tf32"]),
        (["fp32", "tf32", "fp16", "fp16"], ["fp32"]),
        (["fp16"], []),
    ],
)
def test_main_precision(precisions: list[str], kept: list[str]):
    """The precision of most rows is kept, and FP16 never is."""
    assert list(in_main_precision(pd.DataFrame({"precision": precisions})).precision) == kept


def test_recorded_h100():
    """The record of the H100 says that it ran in TF32, and so do its kernels."""
    record = recordings.read("H100")
    assert set(record.table.precision) == {"tf32"}
    assert {row.precision for row in kernel_table.read(record.path.with_name(kernel_table.NAME))} == {"tf32"}


def test_unequal_pairs():
    """Each row of a pair has one alone at its share and batch size; a larger partner slows it down more."""
    rows = measurements.table("unequal_pairs")
    alone = rows[rows.kind == "alone"].groupby(["workload", "batch_size", "mps_pct"]).p95_s.median()
    pairs = rows[rows.kind == "pair"]
    assert (pairs.mps_pct + pairs.partner_mps_pct == 100).all()
    keys = zip(pairs.workload, pairs.batch_size, pairs.mps_pct, strict=True)
    slowdown = pairs.p95_s / [alone[key] for key in keys]
    medians = slowdown.groupby(pairs.mps_pct).median()
    assert list(medians.index) == [10, 30, 50, 70, 90]
    assert list(medians) == pytest.approx([1.49, 1.29, 1.22, 1.12, 1.0], abs=0.01)
