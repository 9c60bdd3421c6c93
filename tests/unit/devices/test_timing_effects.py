"""Constants of a network on a GPU: offsets from features, effects, what they are based on, and the whole catalogue."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from itertools import product

import pytest

from heshare.devices.constants import card_row, default, read
from heshare.devices.iteration_time import iteration_at
from heshare.devices.timing_effects import (
    COMPONENTS,
    PRIORS,
    PROGRAMS,
    Cell,
    Effects,
    Network,
    Timings,
    chip,
    offsets,
    terms,
)
from heshare.devices.uncertainty import CARD, CELL, NONE
from heshare.lab.calibration.observations import observations
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.workload import ENGINES

A100 = catalogue.gpu("A100")
NETWORK = Network("n", "cnn", "cnn", 8.0, 10.0, 50, 100.0)
CELL_OF = Cell("lab|program", A100, "eager", "fp16", NETWORK)


def time_parts(effects: Effects, cell: Cell) -> dict[str, float]:
    timing = effects.timing(cell)
    names = ("work_s", "memory_s", "fill_s", "latency_s", "host_s", "copy_s", "intensity")
    return {component: getattr(timing, name) for component, name in zip(COMPONENTS, names, strict=True)}


def test_offsets():
    """Without effects, constants follow from operations, layer outputs and kernels."""
    found = Effects().timing(CELL_OF)
    assert found.work_s == pytest.approx(8e9 / (0.5e12 * A100.fp16_tflops))
    assert found.memory_s == pytest.approx(2.4 * 2 * 10e6 / (1e9 * A100.mem_bw_gbs))
    assert found.fill_s == pytest.approx(100 * 4e-6 * 1500 / A100.max_mhz)
    assert found.latency_s == pytest.approx(100 * 2e-6)
    assert found.host_s == pytest.approx(100 * 50e-6)
    assert (found.copy_s, found.intensity, found.kernels, found.support) == (0.0, 1.0, 100.0, NONE)


def test_precisions():
    """Single precision moves twice the bytes."""
    moved = {name: offsets(replace(CELL_OF, precision=name))["memory"] for name in ("fp32", "tf32", "fp16", "int8")}
    assert moved["fp32"] == moved["tf32"] == pytest.approx(moved["fp16"] + math.log(2))
    assert moved["fp16"] == moved["int8"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_effect(component: str):
    """An effect multiplies its own component alone, for every cell with its key."""
    cell = replace(CELL_OF, program="PctoDL|eager")
    plain = time_parts(Effects(), cell)
    for name, factor in terms(cell):
        moved = time_parts(Effects({name: 0.3}), cell)
        expected = {**plain, name[0]: plain[name[0]] * math.exp(0.3 * factor)}
        assert moved == pytest.approx(expected, rel=1e-12)
    assert any(name[0] == component for name, _ in terms(cell))


def test_priors():
    """Every effect has a prior, and every prior an effect."""
    found = {(name[0], name[1]) for name, _ in terms(replace(CELL_OF, program="PctoDL|eager"))}
    assert found == {(component, effect) for component, effects in PRIORS.items() for effect in effects}


def test_effects_without_rows():
    """An effect without rows is 0: a GPU, a program or a network without any equals the mean of the others."""
    shared = {("work", "class", "tensor|cnn"): 0.2, ("memory", "class", "eager|cnn"): -0.1}
    own = {
        ("work", "gpu", "A100"): 0.5, ("fill", "gpu", "A100"): 0.3, ("work", "network", "n"): 0.4,
        ("work", "program", "lab|program|tensor"): 0.7,
    }  # fmt: skip
    known, mean = Effects(shared | own), Effects(shared)
    elsewhere = Cell("", replace(A100, name="Other"), "eager", "fp16", replace(NETWORK, name="other"))
    assert known.timing(elsewhere) == mean.timing(elsewhere)
    assert known.timing(CELL_OF) != mean.timing(CELL_OF)


def test_engine():
    """An engine of one graph has no host, and no copies."""
    found = Effects().timing(replace(CELL_OF, engine="tensorrt"))
    assert (found.host_s, found.copy_s) == (0.0, 0.0)
    copied = Effects().timing(replace(CELL_OF, program="PctoDL|eager"))
    assert copied.copy_s > 0.0
    assert iteration_at(copied, 8, 1.0).fixed_s == pytest.approx(copied.latency_s + 8 * copied.copy_s)


def test_hosted():
    """A program whose host does not count has a median host."""
    effects = Effects({("host", "program", "lab|program"): 0.5, ("host", "record", CELL_OF.record): 0.2})
    own, median = (effects.timing(replace(CELL_OF, hosted=hosted)).host_s for hosted in (True, False))
    assert median == Effects().timing(CELL_OF).host_s
    assert own == pytest.approx(median * math.exp(0.7))


def test_support():
    """Constants are based on rows of the network on the GPU, of other networks on it, or of other GPUs."""
    effects = Effects(rows={("A100", "eager", "fp16", "n"): 3, ("A100", "eager", "tf32", "m"): 1})
    assert effects.support(CELL_OF) == CELL
    assert effects.support(replace(CELL_OF, engine="tensorrt")) == CARD
    assert effects.support(replace(CELL_OF, precision="tf32")) == CARD
    assert effects.support(replace(CELL_OF, precision="fp32")) == NONE
    assert effects.support(replace(CELL_OF, gpu=catalogue.gpu("T4"))) == NONE


def test_chips():
    """GPUs of one chip share a key; the large chip with MIG is another one."""
    keys = [chip(catalogue.gpu(name)) for name in ("A100", "A100-40GB", "RTX-3080-Ti", "V100", "V100-SXM2")]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] == keys[4]


def test_programs():
    """Every program that an emulated GPU runs has rows with the engine and the network, at some number of tokens."""
    for (_, engine, network, _), program in PROGRAMS.items():
        rows = [row for row in observations() if (row.program, row.engine) == (program, engine)]
        names = {name for row in rows for task in row.tasks for name in (task.network.name, task.network.kind)}
        assert any(name.startswith(network) for name in names), program


@pytest.mark.parametrize("gpu", catalogue.gpus())
def test_catalogue(gpu: str):
    """Every network on every GPU has finite positive constants in both engines and every arithmetic."""
    known, card = default(), catalogue.gpu(gpu)
    networks = [name for name, model in catalogue.models().items() if model.language is None]
    for engine, network, precision in product(ENGINES, networks, ("fp32", "tf32", "fp16")):
        if precision == "tf32" and not card.has_tf32:
            continue
        timing = known.timing[gpu, engine, network, precision]
        assert all(math.isfinite(value) and value >= 0.0 for value in astuple(timing)[:8])
        least = min(timing.latency_s, timing.memory_s, timing.work_s, timing.fill_s, timing.intensity)
        assert least > 0.0
        assert (timing.host_s > 0.0) == (engine == "eager")
    row = card_row(known.power[gpu], known.contention[gpu], card)
    assert all(math.isfinite(value) and value >= 0.0 for value in row)
    power = known.power[gpu]
    assert 0.0 < power.parked_w <= power.idle_w < power.idle_w + power.dynamic_w
    assert power.knee_mhz < card.max_mhz
    assert 0.0 < power.v_min < 1.0


def test_larger_batches():
    """A larger batch never takes less time, nor a sample more, at any share."""
    known = default()
    for gpu, network, share in product(("T4", "A100", "H100"), ("mobilenet", "vgg19", "bert_large"), (0.1, 1.0)):
        precision = "tf32" if catalogue.gpu(gpu).has_tf32 else "fp32"
        timing = known.timing[gpu, "eager", network, precision]
        sizes = (1, 2, 4, 16, 64, 256)
        times_s = [iteration_at(timing, size, share).time_s(1.0, 1.0) for size in sizes]
        assert times_s == sorted(times_s)
        per_sample_s = [time_s / size for time_s, size in zip(times_s, sizes, strict=True)]
        assert per_sample_s == sorted(per_sample_s, reverse=True)


def test_unknown():
    """A GPU or network that is not known has no constants."""
    timing = default().timing
    assert timing.get(("A100", "eager", "no such network", "fp32")) is None
    assert timing.get(("no such GPU", "eager", "resnet50", "fp32")) is None
    with pytest.raises(KeyError):
        timing["A100", "eager", "no such network", "fp32"]


def test_changes():
    """A study changes constants, or gives its own, and the shipped ones stay."""
    shipped, key = default().timing, ("A100", "eager", "resnet50", "tf32")
    before = shipped[key]
    slower = shipped.with_change(lambda _, one: replace(one, work_s=2.0 * one.work_s))
    twice = slower.with_change(lambda _, one: replace(one, work_s=one.work_s + 1.0, host_s=0.0))
    assert slower[key].work_s == 2.0 * before.work_s
    assert (twice[key].work_s, twice[key].host_s) == (slower[key].work_s + 1.0, 0.0)

    other = ("A100", "eager", "no network of the catalogue", "tf32")
    given = Timings(Effects(), {}, {}).with_added({key: before}).with_added({other: before})
    assert given[key] is given[other] is before
    limited = default().with_power("A100", dynamic_w=100.0)
    assert (limited.power["A100"].dynamic_w, limited.power["T4"]) == (100.0, default().power["T4"])
    assert shipped[key] is before
    assert default().power["A100"].dynamic_w != 100.0


def test_read(tmp_path):
    """Constants come from a long table, and a value that is no number is refused."""
    path = tmp_path / "constants.csv"
    lines = ["kind,gpu,engine,workload,name,value", "effect,,work,gpu,T4,0.25", "rows,T4,eager,resnet50,fp32,3"]
    lines += ["power,T4,,,idle_w,9", "power,T4,,,dynamic_w,80", "power,T4,,,memory,0.7", "power,T4,,,knee_mhz,900"]
    lines += ["power,T4,,,v_min,0.8", "power,T4,,,memory_knee_mhz,0", "interval,time,cell,alone,total,0.3"]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read(path)
    assert found.timing.effects.values == {("work", "gpu", "T4"): 0.25}
    assert found.timing["T4", "eager", "resnet50", "fp32"].support == CELL
    assert (found.power["T4"].idle_w, found.spreads.of("time", CELL, "alone").total) == (9.0, 0.3)
    path.write_text("\n".join([*lines, "effect,,work,gpu,L4,much"]), encoding="utf-8")
    with pytest.raises(InputError, match="make calibrate"):
        read(path)
