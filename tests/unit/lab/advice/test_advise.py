"""`heshare.advise` and `heshare advise`: what they recommend, what they say would change it, and what they refuse."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.shared.errors import InputError


def test_small_batches_wait_for_the_host_and_share_well():
    advice = hs.advise("A100", "resnet50:1")
    assert advice.names == ("resnet50:1", "resnet50:1")
    assert advice.best.way.name == "mps"
    assert advice.best.speed.value > 1.5
    assert advice.recommendation.startswith("Sharing pays: MPS at 100, 100 %")


def test_a_network_that_fills_the_card_does_not_pay():
    advice = hs.advise("V100-SXM2", "resnet50:32", engine="tensorrt")
    assert advice.best.way.name == "alone"
    assert advice.recommendation.startswith("Sharing does not pay: one after the other")
    assert "MPS" in advice.recommendation


def test_the_change_that_is_named_changes_the_advice():
    advice = hs.advise("A100", "resnet50:1")
    sizes, way = re.search(r"batch sizes of (\d+), \d+ \((.+?)\)", advice.changes).groups()
    other = hs.advise("A100", f"resnet50:{sizes}")
    assert str(other.best).startswith(way)
    assert other.best.way.name != advice.best.way.name


def test_without_room_for_both_there_is_no_sharing_and_a_note_says_so():
    advice = hs.advise("T4", ["big=per_s:1,sm:50,mib:9000", "other=per_s:1,sm:50,mib:9000"])
    assert {each.way.name for each in advice.options} == {"alone"}
    assert "together they need 18000 MiB or more of 15109" in str(advice)
    assert advice.recommendation.startswith("Sharing does not pay: one after the other")


def test_mig_takes_instances_that_hold_the_workloads():
    advice = hs.advise("A100-40GB", ["big=per_s:1,sm:50,mib:25000", "small=per_s:1,sm:50,mib:3000"])
    assert not [each for each in advice.options if each.way.name == "mig"], "25000 MiB need all of the card"
    advice = hs.advise("A100-40GB", ["big=per_s:1,sm:50,mib:15000", "small=per_s:1,sm:50,mib:3000"])
    (shares,) = {each.way.shares for each in advice.options if each.way.name == "mig"}
    assert shares[0] in ("3g", "4g")


def test_measured_objects_texts_and_copies_are_the_same():
    one = hs.Measured("asr", 104.0, 6.0, 155.0)
    texts = hs.advise("H100", "2xasr=per_s:104,w:155,sm:6")
    assert hs.advise("H100", [one, one]).to_frame().equals(texts.to_frame())
    assert hs.advise("H100", one).to_frame().equals(texts.to_frame())
    assert any("it lacks a term" in note for note in texts.notes), "on a Hopper GPU"


@pytest.mark.parametrize(
    ("gpu", "workloads", "said"),
    [
        ("A100", [], "workloads such as"),
        ("A100", [3], "workloads such as"),
        ("A100", "8xresnet50:8", "found 8 workloads; expected at most 7"),
        ("A100", "resnet50:8@50", "workloads without shares"),
        ("A100", "resnet51:8", "resnet50"),
        ("A10000", "resnet50:8", "A100"),
        ("T4", "big=per_s:1,sm:5,mib:99000", "which needs 99000 MiB or more; expected at most the 15109 MiB of T4"),
        ("A100", ["a=per_s:1,sm:5", "a=per_s:2,sm:5"], "each name once"),
    ],
)
def test_wrong_uses_are_refused_with_a_sentence(gpu, workloads, said):
    with pytest.raises(InputError) as refused:
        hs.advise(gpu, workloads)
    assert said in str(refused.value)


def test_the_command_prints_the_table_the_json_and_the_exports():
    done = CliRunner().invoke(app, ["advise", "T4", "mobilenet:1"])
    advice = hs.advise("T4", "mobilenet:1")
    assert done.exit_code == 0
    assert f">{advice.best}" in done.stdout
    assert done.stdout.endswith(f"{advice}\n")
    document = json.loads(CliRunner().invoke(app, ["advise", "T4", "mobilenet:1", "--json"]).stdout)
    assert document["recommendation"] == advice.recommendation
    assert len(document["rows"]) == 2 * len(advice.options)
    assert sum(row["best"] for row in document["rows"]) == 2
    shown = CliRunner().invoke(app, ["advise", "T4", "mobilenet:1", "--export", "slurm"])
    assert shown.stdout == advice.export("slurm")
    wrong = CliRunner().invoke(app, ["advise", "T4", "mobilenet:1", "--export", "nomad"])
    assert wrong.exit_code == 2
    assert "expected one of mps, slurm, hami, dra" in wrong.stderr
