"""`heshare.advise` and `heshare advise`: what they recommend, what they say would change it, and what they refuse."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.shared.errors import InputError


def test_change():
    """The change that is named changes the advice."""
    advice = hs.advise("T4", "vgg19:1")
    sizes, way = re.search(r"batch sizes of (\d+), \d+ \((.+?)\)", advice.changes).groups()
    other = hs.advise("T4", f"vgg19:{sizes}")
    assert str(other.best).startswith(way)
    assert other.best.way.name != advice.best.way.name


def test_no_room():
    """Without room for both there is no sharing, and a note says so."""
    advice = hs.advise("T4", ["big=per_s:1,sm:50,mib:9000", "other=per_s:1,sm:50,mib:9000"])
    assert {each.way.name for each in advice.options} == {"alone"}
    assert "18000 MiB" in str(advice)
    assert advice.recommendation.startswith("Sharing does not pay")


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
    assert hs.advise("H100", one).to_frame().equals(texts.to_frame())


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
    """The command prints the table, the JSON and the exports."""
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
    assert "slurm" in wrong.stderr
