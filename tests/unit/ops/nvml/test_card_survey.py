"""Which cards a run may use: CUDA_VISIBLE_DEVICES, cards that cannot be used, processes of others."""

from __future__ import annotations

import os

import pytest
from support.job_rows import job, jobs_of

from heshare.ops.executor.host import Host
from heshare.ops.executor.local_gpus import select_gpus
from heshare.ops.nvml.binding import NvmlError
from heshare.ops.nvml.card_survey import SurveyedCard, choose, hidden, visible
from heshare.shared.errors import InputError

CARDS = tuple(SurveyedCard(index, f"GPU-{name}") for index, name in enumerate(("aa01", "aa02", "bb03")))


def indices(text):
    return [card.index for card in visible(CARDS, text)]


def test_visible_reads_indices_uuids_and_prefixes_in_order():
    assert indices(None) == [0, 1, 2]
    assert indices("2, 0") == [2, 0]
    assert indices("GPU-bb,GPU-aa01") == [2, 0]
    assert indices("") == indices("-1") == indices("NoDevFiles") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,3", "'3' in '0,3', which names no GPU here"),
        ("GPU-aa", "which names several GPUs"),
        ("0,GPU-aa01", "each GPU once"),
        ("MIG-aa01", "the MIG slice MIG-aa01; expected whole GPUs"),
        ("all", "'all' in 'all', which names no GPU"),
    ],
)
def test_visible_refuses_what_names_no_single_gpu(text, message):
    with pytest.raises(InputError, match=message):
        visible(CARDS, text)


def test_choose_takes_what_is_visible_and_refuses_what_is_hidden():
    assert choose(CARDS, "nvml", "1,2").uuids == ("GPU-aa02", "GPU-bb03")
    assert choose(CARDS, "nvml:2,nvml:GPU-aa02", "1,2").uuids == ("GPU-bb03", "GPU-aa02")
    assert hidden(CARDS, "1") == {"GPU-aa01", "GPU-bb03"}
    with pytest.raises(InputError, match="nvml:0, which CUDA_VISIBLE_DEVICES=1,2 hides"):
        choose(CARDS, "nvml:0", "1,2")
    with pytest.raises(InputError, match="no GPU in CUDA_VISIBLE_DEVICES="):
        choose(CARDS, "nvml", "")


def test_choose_leaves_out_a_bad_card_unless_it_is_named():
    bad = (CARDS[0], SurveyedCard(1, "", "it is lost"), CARDS[2])
    chosen = choose(bad, "nvml", None)
    assert chosen.uuids == ("GPU-aa01", "GPU-bb03")
    assert chosen.left_out == ("GPU 1 is left out: it is lost",)
    with pytest.raises(NvmlError, match="it is lost"):
        choose(bad, "nvml:1", None)
    with pytest.raises(NvmlError, match="There is no other GPU"):
        choose(bad[1:2], "nvml", None)


JOBS = jobs_of(job("a", "sleep", "0.3", count=2))


@pytest.mark.parametrize(("figure", "value", "why"), [("mig", 2, "MIG"), ("lost1", 1, "lost")])
def test_execute_leaves_a_bad_card_out_with_a_note(doubles, figure, value, why):
    doubles.fake.set(figure, value)
    result = doubles.run(JOBS, devices="nvml")
    assert result.complete
    assert set(result.jobs["gpu"]) == {0}
    assert len(result.gpus) == 1
    assert any("is left out" in note and why in note for note in result.notes)
    doubles.fake.set(figure, 0)


@pytest.mark.slow
def test_execute_keeps_to_cuda_visible_devices(doubles, monkeypatch):
    first, second = select_gpus("nvml", Host()).uuids
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    result = doubles.run(JOBS, devices="nvml")
    assert list(result.gpus["uuid"]) == [second]
    assert result.complete
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", first)
    assert select_gpus("nvml", Host()).uuids == (first,)
    with pytest.raises(InputError, match=f"nvml:{second}, which CUDA_VISIBLE_DEVICES={first} hides"):
        doubles.run(JOBS, into="other", devices=f"nvml:{second}")


def test_execute_tells_whose_processes_are_on_a_card(doubles):
    doubles.fake.set("process_pid", os.getpid())
    result = doubles.run(JOBS)
    assert any(f"processes of others run on it: {os.getpid()} (" in note for note in result.notes)
    assert any("300 MiB" in note for note in result.notes)
    doubles.fake.set("process_pid", 0)


def test_a_choice_is_all_cards_or_each_by_index_or_uuid():
    """And no other text."""
    assert choose(CARDS, "nvml", None).uuids == ("GPU-aa01", "GPU-aa02", "GPU-bb03")
    assert choose(CARDS, "nvml:1,nvml:GPU-aa01", None).uuids == ("GPU-aa02", "GPU-aa01")
    for text in ("", "nvml:", "cuda:0", "nvml:0,nvml:0", "nvml,nvml:0", "nvml:0,"):
        with pytest.raises(InputError, match="--devices"):
            choose(CARDS, text, None)
