"""Which cards a run may use: CUDA_VISIBLE_DEVICES, cards that cannot be used, processes of others."""

from __future__ import annotations

import os

import pytest
from support.job_rows import job, jobs_of

from heshare.ops.nvml.binding import NvmlError
from heshare.ops.nvml.card_survey import SurveyedCard, choose, hidden, visible
from heshare.shared.errors import InputError

CARDS = tuple(SurveyedCard(index, f"GPU-{name}") for index, name in enumerate(("aa01", "aa02", "bb03")))


def indices(text):
    return [card.index for card in visible(CARDS, text)]


def test_visible():
    """CUDA_VISIBLE_DEVICES has indices, UUIDs and prefixes, in order."""
    assert indices(None) == [0, 1, 2]
    assert indices("2, 0") == [2, 0]
    assert indices("GPU-bb,GPU-aa01") == [2, 0]
    assert indices("") == indices("-1") == indices("NoDevFiles") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,3", "'3'"),
        ("GPU-aa", "several"),
        ("0,GPU-aa01", "each GPU once"),
        ("MIG-aa01", "MIG"),
        ("all", "'all'"),
    ],
)
def test_visible_refused(text, message):
    """What names no single GPU is refused."""
    with pytest.raises(InputError, match=message):
        visible(CARDS, text)


def test_choose():
    """A choice is all visible cards, or each by index or UUID, and no other text; hidden ones are refused."""
    assert choose(CARDS, "nvml", None).uuids == ("GPU-aa01", "GPU-aa02", "GPU-bb03")
    assert choose(CARDS, "nvml:1,nvml:GPU-aa01", None).uuids == ("GPU-aa02", "GPU-aa01")
    assert choose(CARDS, "nvml", "1,2").uuids == ("GPU-aa02", "GPU-bb03")
    assert choose(CARDS, "nvml:2,nvml:GPU-aa02", "1,2").uuids == ("GPU-bb03", "GPU-aa02")
    assert hidden(CARDS, "1") == {"GPU-aa01", "GPU-bb03"}
    with pytest.raises(InputError, match="nvml:0"):
        choose(CARDS, "nvml:0", "1,2")
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES"):
        choose(CARDS, "nvml", "")
    for text in ("", "nvml:", "cuda:0", "nvml:0,nvml:0", "nvml,nvml:0", "nvml:0,"):
        with pytest.raises(InputError, match="--devices"):
            choose(CARDS, text, None)


def test_bad_card():
    """A card that cannot be used is left out, unless it is named."""
    bad = (CARDS[0], SurveyedCard(1, "", "it is lost"), CARDS[2])
    chosen = choose(bad, "nvml", None)
    assert chosen.uuids == ("GPU-aa01", "GPU-bb03")
    assert chosen.left_out == ("GPU 1 is left out: it is lost",)
    with pytest.raises(NvmlError, match="it is lost"):
        choose(bad, "nvml:1", None)
    with pytest.raises(NvmlError, match="no other GPU"):
        choose(bad[1:2], "nvml", None)


JOBS = jobs_of(job("a", "sleep", "0.3", count=2))


@pytest.mark.parametrize(("figure", "why"), [("mig", "MIG"), ("lost", "lost")])
def test_left_out(doubles, figure, why):
    """A run leaves a card that cannot be used out, and notes processes of others, on the one that it uses."""
    doubles.fake.set(figure, 1, card=1)
    doubles.fake.set("process_pid", os.getpid())
    result = doubles.run(JOBS, devices="nvml")
    assert result.complete
    assert set(result.jobs["gpu"]) == {0}
    assert len(result.gpus) == 1
    assert any("is left out" in note and why in note for note in result.notes)
    assert any(f"processes of others run on it: {os.getpid()}" in note for note in result.notes)
    doubles.fake.set(figure, 0)
    doubles.fake.set("process_pid", 0)
