"""A table answers what its predictor answers, to the bit, and asks it for nothing twice."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.prediction import table
from heshare.prediction.forest import load_predictor
from heshare.prediction.table import TablePredictor
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

T4, A100 = gpu("T4"), gpu("A100")
TWO = [Workload("resnet50", 4), Workload("vgg19", 8)]


@pytest.mark.parametrize("kind", ["paper", "physics"])
def test_every_answer_is_the_predictors_to_the_bit(kind: str) -> None:
    built = TablePredictor.build(
        load_predictor(kind=kind), TWO * 2, [T4, A100], mps_pcts=(30, 70), clocks_mhz=(1050,), together=2
    )
    assert built.rows == 2 * (4 + 10)
    calls = built.calls
    sets = [(Resident(TWO[1], 70), Resident(TWO[0], 30)), (Resident(TWO[0], 70),), (Resident(TWO[1], 30),) * 2]
    for card in (T4, A100):
        found, fresh = built.co_run(sets, card, [1050] * 3), load_predictor(kind=kind).co_run(sets, card, [1050] * 3)
        assert np.array_equal(found.time_s, fresh.time_s, equal_nan=True)
        assert np.array_equal(found.power_w, fresh.power_w)
        one = built.on(card)
        ids = one.ids(sets[1])
        assert one.answers[1050, ids] == ([fresh.time_s[1, 0]], fresh.power_w[1])
    assert built.calls == calls


def test_what_it_does_not_hold_is_asked_once() -> None:
    built = TablePredictor.build(load_predictor(), TWO, [A100], mps_pcts=(50,), clocks_mhz=(1200,))
    three = (Resident(TWO[0], 20), Resident(TWO[1], 20), Resident(TWO[0], 60))
    first = built.co_run([three, ()], A100, [None, 900])
    calls = built.calls
    again = built.co_run([three[::-1]], A100, [1410])
    assert built.calls == calls
    assert again.time_s[0, ::-1].tolist() == first.time_s[0].tolist()
    fresh = load_predictor().co_run([three], A100, [None])
    assert first.time_s[0].tolist() == fresh.time_s[0].tolist()
    assert built.solo(TWO, A100).time_s.tolist() == load_predictor().solo(TWO, A100).time_s.tolist()


def test_bad_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="a clock of its grid"):
        TablePredictor(load_predictor()).co_run([(Resident(TWO[0], 50),)], A100, [1411])
    monkeypatch.setattr(table, "LARGEST", 5)
    with pytest.raises(InputError, match="Ask for fewer"):
        TablePredictor.build(load_predictor(), TWO, [A100])
