"""Rows of all records in one form: every table appears, with labels, networks' features, and a held-out half."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from heshare.lab.calibration import observations as module
from heshare.lab.calibration.measurements import table
from heshare.lab.calibration.observations import (
    ALONE,
    FULL_LIMIT,
    H100_RECORD,
    IGNITER,
    LIMIT,
    UNEQUAL,
    Observation,
    network,
    networks,
    observations,
)
from heshare.profiles import store
from heshare.shared import files
from heshare.world import catalogue


def of(program: str) -> list[Observation]:
    return [row for row in observations() if row.program == program]


def known_rows(name: str) -> int:
    rows = table(name)
    return int((rows.workload.isin(list(networks())) & (rows.workload != "gpt2_decode")).sum())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: list(module._times()), lambda: known_rows("times")),
        (lambda: list(module._frameworks()), lambda: known_rows("frameworks")),
        (lambda: of("PctoDL|eager"), lambda: len(table("mps_grid"))),
        (lambda: [row for row in of(IGNITER) if row.kind == "pairs"], lambda: 2 * len(table("pairs"))),
        (lambda: [row for row in of(IGNITER) if row.power_w > 0], lambda: len(table("power"))),
        (lambda: of(UNEQUAL), lambda: len(table("unequal_pairs"))),
        (lambda: list(module._cards()), lambda: known_rows("cards")),
        (lambda: of("sitar-lab/NeuSight|PyTorch 2.1"), lambda: len(table("true_fp32"))),
        (lambda: list(module._saturated()), lambda: int((table("saturated_power").kind != "decode").sum())),
        (lambda: [row for row in observations() if row.kind == LIMIT], lambda: len(table("power_limits"))),
        (lambda: of(H100_RECORD), lambda: len(store.read(files.data("profiles", "measured", "H100", "profile.csv")))),
    ],
    ids=["times", "frameworks", "mps_grid", "pairs", "power", "unequal_pairs", "cards", "true_fp32",
         "saturated_power", "power_limits", "H100"],
)  # fmt: skip
def test_counts(found, expected):
    """Every row of a table with a known network appears once."""
    assert len(found()) == expected() > 0


def test_measured():
    """Every row has a time or a power that is positive, but the first of a pair of limits."""
    for row in observations():
        times = [value for value in (row.time_s, row.power_w) if not math.isnan(value)]
        assert all(value > 0.0 for value in times)
        assert times or row.kind == FULL_LIMIT
        assert all(0.0 < task.share <= 1.0 and task.batch_size >= 1 for task in row.tasks)
        assert (row.kind == ALONE) <= (len(row.tasks) == 1)


def test_limits():
    """A row under a limit follows the same one with the card's own limit, which is higher."""
    for before, row in zip(observations(), observations()[1:], strict=False):
        if row.kind == LIMIT:
            assert (before.kind, before.tasks, before.record) == (FULL_LIMIT, row.tasks, row.record)
            assert row.cap_w < before.cap_w
            assert math.isnan(before.time_s)


def test_precisions():
    """Each row has the arithmetic in which it ran, and TF32 is on cards that have it."""
    for row in observations():
        assert row.precision in ("fp32", "tf32", "fp16", "int8")
        assert row.precision != "tf32" or row.gpu.has_tf32


def test_true_fp32():
    """FP32 on a card with TF32 is of programs that turned TF32 off, or of TensorRT's own label."""
    found = {row.program for row in observations() if row.precision == "fp32" and row.gpu.has_tf32}
    assert found == {"sitar-lab/NeuSight|PyTorch 2.1"}


def test_one_program():
    """Rows of a record ran with one engine."""
    engines = defaultdict(set)
    for row in observations():
        engines[row.record].add(row.engine)
    assert all(len(found) == 1 for found in engines.values())


def setting(row: Observation) -> tuple:
    return tuple(sorted(map(str, row.tasks))), row.sm_mhz


def test_held_out():
    """Half of the H100's settings are held out, and never half of a set."""
    sides = defaultdict(set)
    for row in of(H100_RECORD):
        sides[setting(row)].add(row.held_out)
    assert all(len(found) == 1 for found in sides.values())
    held = sum(True in found for found in sides.values())
    assert abs(held - len(sides) / 2) <= 1
    assert not any(row.held_out for row in observations() if row.program != H100_RECORD)


def test_whole_profile():
    """All rows of a profile can be fitted, and the draw of the half does not change."""
    profile = store.read(files.data("profiles", "measured", "H100", "profile.csv"))
    assert not any(row.held_out for row in module.profile_rows(profile, "own|eager", all_of_them=True))
    again = [row.held_out for row in module.profile_rows(profile.sample(frac=1.0, random_state=3), "own|eager")]
    assert sum(again) == sum(row.held_out for row in of(H100_RECORD))


def test_networks():
    """Every network has finite positive features, under its own name, and larger ones have more operations."""
    used = {task.network for row in observations() for task in row.tasks}
    for found in (*networks().values(), *used):
        features = (found.gflops, found.activations_m, found.layers, found.kernels)
        assert all(math.isfinite(value) and value > 0.0 for value in features)
        assert found.kind in ("cnn", "transformer")
    assert all(network(name).name == name for name in networks())
    tokens = [networks()[f"bert_base_s{count}"].gflops for count in module._TOKENS]
    assert tokens == sorted(tokens)
    assert networks()["bert_large_s512"].gflops > 3 * networks()["bert_base_s512"].gflops


def test_operations():
    """BERT base with 128 tokens has the operations of its matrices: two for each parameter and token, and attention."""
    expected = 2 * 12 * (12 * 768**2) * 128 + 12 * 4 * 128**2 * 768
    assert networks()["bert_base_s128"].gflops == pytest.approx(expected / 1e9, rel=1e-9)


def test_trainings():
    """A training step computes three times a forward pass, in a group of its own."""
    for name in module._TRAINED:
        step, forward = networks()[f"{name}-train"], networks()["bert_base_s128" if name == "bert_base" else name]
        assert step.gflops == pytest.approx(3 * forward.gflops)
        assert step.group == f"{forward.kind}, training"
        assert forward.group == forward.kind


def test_catalogue_networks():
    """The features of a network of the catalogue are those of the catalogue."""
    for name, model in catalogue.models().items():
        if model.language is None and name != "bert_large":
            assert (networks()[name].gflops, networks()[name].layers) == (model.gflops, model.layers)


def test_instance():
    """A MIG instance has its part of the SMs and rates, and of the bandwidth."""
    whole, part = catalogue.gpu("A100"), module.mig_instance("A100", 4, 0.5)
    assert part.name != whole.name
    assert part.fp32_tflops == pytest.approx(whole.fp32_tflops * 4 / 7)
    assert part.mem_bw_gbs == pytest.approx(whole.mem_bw_gbs / 2)
    assert part.max_mhz == whole.max_mhz


def test_slower_host():
    """The slower host of a laboratory is a laboratory of its own."""
    laboratories = Counter(row.laboratory for row in observations())
    assert "ryujaehun, slower host" in laboratories
    assert np.sum(list(laboratories.values())) == len(observations())
