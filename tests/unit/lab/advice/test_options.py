"""Ways of sharing: the same work, accounts that add up, and the model's own answers."""

from __future__ import annotations

import pytest

import heshare as hs
from heshare.lab.advice.options import ALONE, MIG, MPS, TITLES

SETS = [
    ("A100", ["resnet50:8", "vgg19:8"], {}),
    ("T4", "3xmobilenet:1", {}),
    ("V100-SXM2", ["resnet50:16", "vgg19:16"], {"engine": "tensorrt"}),
    ("H100", ["asr=per_s:104,w:155,sm:6", "bert_large:8"], {"precision": "fp16"}),
    ("A100", ["eaco_resnet50-train:32", "mobilenetv2:4"], {}),
]


@pytest.fixture(scope="module", params=SETS, ids=lambda each: each[0])
def advice(request: pytest.FixtureRequest) -> hs.Advice:  # type: ignore[name-defined]
    gpu, workloads, more = request.param
    return hs.advise(gpu, workloads, **more)


def test_ways(advice):
    """Every way of sharing is there, and intervals hold their value."""
    expected = {*TITLES} - ({MIG} if not advice.gpu.mig_slices else set())
    assert {each.way.name for each in advice.options} == expected
    for each in advice.options:
        for found in (each.speed, each.energy, *each.time_s, *each.energy_j):
            assert 0.0 < found.low <= found.value <= found.high


def test_energy_and_power(advice):
    """The energy of all iterations of a second is the power."""
    for each in advice.options:
        joules = sum(rate * found.value for rate, found in zip(each.per_s, each.energy_j, strict=True))
        assert joules == pytest.approx(each.power_w, rel=1e-9)


def test_same_work(advice):
    """Speed and energy are those of the same work done one after the other."""
    base = advice.options[0]
    assert (base.way.name, base.speed.value, base.energy.value) == (ALONE, 1.0, 1.0)
    for each in advice.options:
        # What it does in a second, done one after the other at the default clock.
        alone_s = sum(rate * found.value for rate, found in zip(each.per_s, base.time_s, strict=True))
        alone_j = sum(rate * found.value for rate, found in zip(each.per_s, base.energy_j, strict=True))
        assert each.speed.value == pytest.approx(alone_s)
        assert each.energy.value == pytest.approx(each.power_w / alone_j)
        assert each.speed.high <= (1.0 if each.way.name == ALONE else len(advice.workloads))


def test_least_energy_clock(advice):
    """The clock with the least energy takes no more than the default one."""
    for own, clocked in zip(advice.options[::2], advice.options[1::2], strict=True):
        assert own.way == clocked.way
        assert own.sm_mhz is None
        assert clocked.sm_mhz in advice.gpu.clocks_mhz
        assert clocked.energy.value <= own.energy.value * (1 + 1e-9)


def test_estimate():
    """An option is what `estimate` returns for it."""
    advice = hs.advise("A100", ["resnet50:8", "vgg19:8"])
    for each in advice.options:
        sharings = {MPS: each.way.shares, MIG: tuple(f"mig-{share}" for share in each.way.shares)}
        if each.way.name == ALONE:
            continue
        marks = sharings.get(each.way.name, ("time-slice",) * 2)
        texts = [f"{name}@{mark}" for name, mark in zip(advice.names, marks, strict=True)]
        answer = hs.estimate("A100", texts, each.sm_mhz)
        assert each.power_w == pytest.approx(answer.power_w)
        assert [found.value for found in each.time_s] == pytest.approx([task.time_s for task in answer.tasks])
