"""Ways of sharing: the same work, accounts that add up, and the model's own answers."""

from __future__ import annotations

import pytest

import heshare as hs
from heshare.lab.advice.advice import Advice
from heshare.lab.advice.options import ALONE, MIG, MPS, SMALL, TITLES

SETS = [
    ("A100", ["resnet50:8", "vgg19:8"], {}),
    ("T4", "3xmobilenet:1", {}),
    ("V100-SXM2", ["resnet50:16", "vgg19:16"], {"engine": "tensorrt"}),
    ("H100", ["asr=per_s:104,w:155,sm:6", "bert_large:8"], {"precision": "fp16"}),
    ("A100", ["eaco_resnet50-train:32", "mobilenetv2:4"], {}),
]


@pytest.fixture(scope="module", params=SETS, ids=lambda each: each[0])
def advice(request: pytest.FixtureRequest) -> Advice:
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
    """Speed and energy are those of the same samples done one after the other at the best."""
    base = advice.base
    assert (base.way.name, base.speed.value, base.energy.value) == (ALONE, 1.0, 1.0)
    n = len(advice.workloads)
    # Seconds and joules of a sample in the base, from the rates over the time of all.
    alone_s = [1.0 / (n * rate) for rate in base.per_s]
    alone_j = [found.value for found in base.energy_j]
    for each in advice.options:
        pairs = list(zip(each.per_s, alone_s, alone_j, strict=True))
        if each.way.name != ALONE:
            assert each.speed.value == pytest.approx(sum(rate * time for rate, time, _ in pairs))
        assert each.energy.value == pytest.approx(each.power_w / sum(rate * joules for rate, _, joules in pairs))
        if each.way.workloads == base.way.workloads and base.sm_mhz is None:
            assert each.speed.high <= (1.0 if each.way.name == ALONE else n) * (1 + 1e-9)


def test_best_clock(advice):
    """A clock is only named if its work a second and a joule gain on the default clock of the same way."""
    own = {each.way: each.score for each in advice.options if each.sm_mhz is None}
    for each in advice.options:
        if each.sm_mhz is not None:
            assert each.sm_mhz in advice.gpu.clocks_mhz
            assert each.score > own[each.way] * (1.0 + 0.5 * SMALL)
    assert {each.way for each in advice.options} == set(own)


def test_recommended(advice):
    """Sharing is recommended if it is better than one after the other at its best, and only then."""
    most = max(each.score for each in advice.options if each.way.name != ALONE)
    if advice.best is advice.base:
        assert most <= (1.0 + SMALL) ** 2
    else:
        assert advice.best.way.name != ALONE
        assert 1.0 + SMALL < advice.best.score <= most


def test_estimate():
    """An option is what `estimate` returns for it."""
    advice = hs.advise("A100", ["resnet50:8", "vgg19:8"])
    for each in advice.options:
        sharings = {MPS: each.way.shares, MIG: tuple(f"mig-{share}" for share in each.way.shares)}
        if each.way.name == ALONE:
            continue
        marks = sharings.get(each.way.name, ("time-slice",) * 2)
        texts = [f"{one}@{mark}" for one, mark in zip(each.way.workloads, marks, strict=True)]
        answer = hs.estimate("A100", texts, each.sm_mhz)
        assert each.power_w == pytest.approx(answer.power_w)
        assert [found.value for found in each.time_s] == pytest.approx([task.time_s for task in answer.tasks])
