"""GPUs and networks without measurements: scaled by their features, with wider intervals, through one path."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from heshare.devices.constants import SpeedLaw, default, read
from heshare.devices.derived_constants import complete, nearest_by, speed_ratio
from heshare.devices.device_model import co_run
from heshare.shared import files
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

A100 = catalogue.gpu("A100")


def _card(name: str = "Made-Up", **changes: object):
    return replace(A100, name=name, title=name, **changes)


def _completed(*cards, models=()):
    fitted = read(files.data("calibration", "constants.csv"))
    gpus = {**catalogue.gpus(), **{card.name: card for card in cards}}
    return complete(fitted, gpus, {**catalogue.paper_models(), **{model.name: model for model in models}})


def _time_s(constants, card, workload: Workload) -> float:
    return co_run(card, [Resident(workload)], constants=constants).tasks[0].time_s


def test_complete():
    """Every GPU and network of the catalogue has constants in both engines."""
    constants = default()
    for gpu in catalogue.gpus():
        for engine in ("eager", "tensorrt"):
            for model in catalogue.paper_models():
                timing = constants.timing[gpu, engine, model]
                assert timing.work_per_sample_s > 0
        assert constants.power[gpu].dynamic_w > 0
        assert gpu in constants.contention
    assert {gpu for gpu, _, _ in constants.timing} == set(catalogue.gpus())
    assert ("A100", "eager", "no_such_network") not in constants.timing
    assert ("no such GPU", "eager", "resnet50") not in constants.timing


def test_card_without_records():
    """A card without records is never anchored and less certain than one with."""
    constants = _completed(_card(fp16_tflops=150.0, mem_bw_gbs=1000.0))
    unknown, known = (constants.timing[gpu, "eager", "resnet50"] for gpu in ("Made-Up", "A100-PCIe"))
    assert not unknown.anchored
    assert not known.anchored
    assert unknown.transfer >= constants.laws.speed["cnn", "fp32"].uncertainty
    assert constants.timing["A100", "eager", "resnet50"].transfer < known.transfer < unknown.transfer


@pytest.mark.parametrize("engine", ["eager", "tensorrt"])
@pytest.mark.parametrize("model", ["resnet50", "vgg19", "bert_large"])
def test_ratio_of_cards(model: str, engine: str):
    """The ratio of full cards is that of the law under their own limits."""
    card = _card(fp16_tflops=150.0, mem_bw_gbs=1000.0, tdp_w=250.0, idle_w=40.0)
    constants = _completed(card)
    ratio, _ = speed_ratio(constants, card, A100, catalogue.kind(model), "fp32")
    workload = Workload(model, 64, engine=engine)
    slower = _time_s(constants, card, workload) / _time_s(constants, A100, workload)
    assert slower == pytest.approx(1 / ratio, rel=0.05)  # latency stays


def test_faster_card():
    """More rate and bandwidth never slow a card down."""
    cards = [_card(f"Card-{size}", fp16_tflops=100.0 * size, mem_bw_gbs=700.0 * size, tdp_w=1e4) for size in (1, 2, 4)]
    constants = _completed(*cards)
    for batch_size in (1, 8, 64):
        times = [_time_s(constants, card, Workload("resnet50", batch_size)) for card in cards]
        assert times == sorted(times, reverse=True)


def test_nearest():
    """The nearest card is the measured one itself, then one of its generation."""
    law = SpeedLaw(0.3, 0.6, 0.2)
    measured = [catalogue.gpu(name) for name in ("T4", "V100", "A100")]
    assert nearest_by(law, catalogue.gpu("V100"), measured) == "V100"
    assert nearest_by(law, catalogue.gpu("L4"), measured) == "A100"
    assert nearest_by(law, replace(catalogue.gpu("T4"), name="Older", mem_bw_gbs=300.0), measured) == "T4"


def test_network_between():
    """A network without measurements lies between its neighbours."""
    between = replace(catalogue.model("resnet101"), name="resnet120", gflops=19.0, activations_m=19.0, layers=125)
    constants = _completed(models=[between])
    for gpu in ("T4", "V100", "A100", "L4"):
        card = catalogue.gpu(gpu)
        low, own, high = (
            _time_s(constants, card, Workload(name, 32)) for name in ("resnet50", "resnet120", "resnet152")
        )
        assert 0.7 * low < own < 1.5 * high
        timing = constants.timing[gpu, "eager", "resnet120"]
        assert timing.transfer >= constants.laws.workload.uncertainty


def test_offset():
    """The ratio of speeds uses the offset of a card that a record speaks of."""
    constants = default()
    l4 = catalogue.gpu("L4")
    ratio, known = speed_ratio(constants, l4, A100, "transformer", "fp16")
    law = constants.laws.speed["transformer", "fp16"]
    by_law = exp(law.log_speed(l4, "fp16") - law.log_speed(A100, "fp16"))
    offsets = [constants.laws.cards[gpu, "transformer", "fp16"].offset for gpu in ("L4", "A100")]
    assert ratio == pytest.approx(by_law * exp(offsets[0] - offsets[1]))
    assert known < law.uncertainty
