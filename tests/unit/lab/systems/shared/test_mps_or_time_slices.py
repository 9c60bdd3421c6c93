"""MPS against time slices: what was measured beside what the model says of stand-ins, and when an answer says so."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.lab.systems.shared.mps_or_time_slices import limit_note
from heshare.world import catalogue


def residents(text: str, engine: str = "eager"):
    return [catalogue.resident(one, precision="fp16", engine=engine) for one in text.split()]


@pytest.mark.parametrize(
    ("gpu", "text", "engine", "said"),
    [
        ("H100", "gpt2:8 gpt2:8", "eager", True),
        ("H100-PCIe", "gpt2:8@50 gpt2:8@50", "eager", True),
        ("V100", "resnet50:8@50 vgg19:8@50", "tensorrt", True),
        ("V100", "resnet50:8@50 vgg19:8@50", "eager", False),
        ("H100", "gpt2:8", "tensorrt", False),
        ("H100", "gpt2:8@time-slice gpt2:8@time-slice", "tensorrt", False),
        ("H100", "gpt2:8@mig-3g gpt2:8@mig-3g", "tensorrt", False),
    ],
)
def test_limit_note(gpu, text, engine, said):
    """The limit of the model is noted where it was measured."""
    assert bool(limit_note(gpu, residents(text, engine))) is said


def test_note_of_estimate():
    """`estimate` prints the note on standard error."""
    answer = CliRunner().invoke(app, ["estimate", "H200", "transformer:32", "bert_large:16", "--json"])
    assert answer.exit_code == 0
    assert answer.stdout.startswith("{")
    assert "measured" in answer.stderr
    assert "measured" not in CliRunner().invoke(app, ["estimate", "A100", "resnet50:8", "vgg19:8"]).stderr
