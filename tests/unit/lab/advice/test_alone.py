"""A workload alone: its best inference batch size and clock, and where its time goes."""

from __future__ import annotations

import re

import pytest

import heshare as hs
from heshare.devices.constants import default
from heshare.lab.advice.alone import SIZES, reason, tuned
from heshare.lab.advice.options import SMALL, score
from heshare.world import catalogue

CASES = [("A100", "resnet50:8"), ("T4", "bert_large:8"), ("T4", "mobilenet:1"), ("H100", "vgg19:8")]


def score_of(gpu: str, name: str, size: int, sm_mhz: int | None) -> float:
    found = hs.estimate(gpu, f"{name}:{size}", sm_mhz)
    per_s = size / found.tasks[0].time_s
    return score(per_s, found.power_w / per_s)


@pytest.mark.parametrize(("gpu", "name"), CASES)
def test_best(gpu, name):
    """No inference batch size and no clock is better than the best by more than a small part."""
    workload = catalogue.resident(name).workload
    best, sm_mhz = tuned(catalogue.gpu(gpu), workload, default())
    own = score_of(gpu, best.model, best.batch_size, sm_mhz)
    clocks = (None, *catalogue.gpu(gpu).clocks_mhz[::7])
    others = [score_of(gpu, best.model, size, mhz) for size in SIZES[:6] for mhz in clocks]
    assert own * (1.0 + SMALL) ** 2 >= max(others)
    assert own >= score_of(gpu, best.model, workload.batch_size, None) * (1.0 - 1e-12)


def test_memory():
    """Inference batch sizes fit the memory of the card."""
    small, large = (tuned(catalogue.gpu(gpu), catalogue.resident("gpt2:1").workload, default())[0] for gpu in CARDS)
    assert catalogue.memory_mib(small) <= catalogue.gpu(CARDS[0]).memory_mib
    assert small.batch_size <= large.batch_size


CARDS = ("T4", "H100")


@pytest.mark.parametrize(("gpu", "name"), CASES)
def test_alone(gpu, name):
    """What is said of a workload alone is what the device model estimates."""
    (one,) = hs.advise(gpu, name).alone
    for option in (one.given, one.best):
        (workload,) = option.way.workloads
        found = hs.estimate(gpu, str(workload), option.sm_mhz)
        assert option.time_s[0].value == pytest.approx(found.tasks[0].time_s)
        assert option.power_w == pytest.approx(found.power_w)
        assert option.energy_j[0].value == pytest.approx(found.power_w * found.tasks[0].time_s / workload.batch_size)
    assert one.best.speed.value == pytest.approx(one.best.per_s[0] / one.given.per_s[0])


def test_power_limit():
    """The power limit that is named leaves the clock that is named."""
    (one,) = hs.advise("A100", "resnet50:8").alone
    limit_w = float(re.search(r"power limit of (\d+) W", str(one)).group(1))
    found = hs.estimate("A100", str(one.best.way.workloads[0]), power_cap_w=limit_w)
    assert found.sm_mhz == pytest.approx(one.best.sm_mhz, rel=0.01)


def test_reason():
    """A slow host is named, and the SMs are those of the estimate."""
    gpu, workload = catalogue.gpu("H100"), catalogue.resident("mobilenet:1").workload
    said = reason(gpu, workload, default())
    held = hs.estimate("H100", "mobilenet:1").tasks[0].sm_util_pct
    assert f"holds {held:.0f} % of the SMs" in said
    host = catalogue.resident("mobilenet:1", engine="tensorrt").workload
    assert "waits for its host" in said
    assert "waits for its host" not in reason(gpu, host, default())


def test_measured():
    """Of a measurement only what was measured is said."""
    (one,) = hs.advise("H100", "asr=per_s:104,w:155,sm:6,gpu:60").alone
    assert one.best is one.given
    assert one.given.per_s[0] == pytest.approx(104.0, rel=1e-3)
    assert one.given.energy_j[0].value == pytest.approx(155.0 / 104.0, rel=5e-3)
    assert "waits for its host 40 %" in str(one)
    (one,) = hs.advise("H100", "asr=per_s:104,sm:6").alone
    assert " J" not in str(one)
    assert "waits" not in str(one)
