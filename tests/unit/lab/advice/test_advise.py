"""`heshare.advise` and `heshare advise`: what they recommend, what they say would change it, and what they refuse."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.shared.errors import InputError
from heshare.world import catalogue


def test_one():
    """One workload means one: alone, without a way of sharing; copies are asked for."""
    advice = hs.advise("T4", "vgg19:1")
    assert {each.way.name for each in advice.options} == {"alone"}
    assert "2xvgg19:1" in advice.recommendation
    assert {each.way.name for each in hs.advise("T4", "2xvgg19:1").options} > {"alone"}


def test_no_room():
    """Without room for both there is no sharing, and a note says so."""
    advice = hs.advise("T4", ["big=per_s:1,sm:50,mib:9000", "other=per_s:1,sm:50,mib:9000"])
    assert {each.way.name for each in advice.options} == {"alone"}
    assert "18000 MiB" in str(advice)
    assert advice.recommendation.startswith("Sharing does not pay")


def test_smaller_sizes():
    """Where the best inference batch sizes leave no room for copies, sharing is tried at the largest ones that fit."""
    advice = hs.advise("H100", "2xllama3_8b:8", precision="fp16")
    (alone,) = advice.alone
    shared = {each.way.workloads[0].batch_size for each in advice.options if each.way.name == "mps"}
    (best,) = alone.best.way.workloads
    assert 2 * catalogue.memory_mib(best) > advice.gpu.memory_mib
    assert 8 < max(shared) < best.batch_size


@pytest.mark.slow
def test_mig():
    """MIG takes instances that hold the workloads."""
    advice = hs.advise("A100-40GB", ["big=per_s:1,sm:50,mib:25000", "small=per_s:1,sm:50,mib:3000"])
    assert not [each for each in advice.options if each.way.name == "mig"], "25000 MiB need all of the card"
    advice = hs.advise("A100-40GB", ["big=per_s:1,sm:50,mib:15000", "small=per_s:1,sm:50,mib:3000"])
    (shares,) = {each.way.shares for each in advice.options if each.way.name == "mig"}
    assert shares[0] in ("3g", "4g")


def test_forms():
    """Measured objects, texts and copies are the same."""
    one = hs.Measured("asr", 104.0, 6.0, 155.0)
    texts = hs.advise("H100", "2xasr=per_s:104,w:155,sm:6")
    assert hs.advise("H100", [one, one]).to_frame().equals(texts.to_frame())


@pytest.mark.parametrize(
    ("gpu", "workloads", "said"),
    [
        ("A100", [], "workloads such as"),
        ("A100", [3], "workloads such as"),
        ("A100", "8xresnet50:8", "found 8 workloads"),
        ("A100", "resnet50:8@50", "without shares"),
        ("A100", "resnet51:8", "resnet50"),
        ("A10000", "resnet50:8", "A100"),
        ("T4", "big=per_s:1,sm:5,mib:99000", "15109 MiB"),
        ("A100", ["a=per_s:1,sm:5", "a=per_s:2,sm:5"], "each name once"),
    ],
)
def test_wrong_uses(gpu, workloads, said):
    """Wrong uses are refused with what was found."""
    with pytest.raises(InputError) as refused:
        hs.advise(gpu, workloads)
    assert said in str(refused.value)


@pytest.mark.slow
def test_command():
    """The command prints the sentences, the table, the JSON and the exports."""
    words = ["advise", "T4", "2xmobilenet:1"]
    done = CliRunner().invoke(app, words)
    advice = hs.advise("T4", "2xmobilenet:1")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{advice}\n")
    assert f">{advice.best}" in done.stdout
    assert len(done.stdout.splitlines()) <= 16
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert document["recommendation"] == advice.recommendation
    assert len(document["rows"]) == 2 * len(advice.options)
    assert sum(row["best"] for row in document["rows"]) == 2
    assert CliRunner().invoke(app, [*words, "--export", "slurm"]).stdout == advice.export("slurm")
    wrong = CliRunner().invoke(app, [*words, "--export", "nomad"])
    assert wrong.exit_code == 2
    assert "slurm" in wrong.stderr
