"""Exports of an option: Slurm's gres and shell commands."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

import heshare as hs
from heshare.lab.advice.advice import Advice
from heshare.lab.advice.exports import TARGETS, export, profile
from heshare.lab.advice.options import Option
from heshare.shared.errors import InputError
from heshare.world import catalogue

WORKLOADS = {"A100": ["resnet50:8", "vgg19:8"], "T4": "3xmobilenet:1", "H100": "2xasr=per_s:104,w:155,sm:6"}


@cache
def advised(gpu: str) -> Advice:
    return hs.advise(gpu, WORKLOADS[gpu])


def exported(gpu: str, target: str) -> list[tuple[Option, str]]:
    """Return every option of a GPU with its export."""
    advice = advised(gpu)
    names = list(map(str, advice.workloads))
    assert len(advice.options) >= 4
    return [(option, export(target, advice.gpu, option, names)) for option in advice.options]


@pytest.mark.parametrize("gpu", WORKLOADS)
def test_slurm(gpu):
    """Slurm is asked for no more than a GPU has, and for the shares of the option."""
    for option, text in exported(gpu, "slurm"):
        lines = text.splitlines()
        assert len(lines) == len(option.way.residents)
        matches = [re.match(r"#SBATCH --gres=(?:mps|shard):(\d+)", line) for line in lines]
        counts = [int(match[1]) for match in matches if match]
        assert sum(counts) <= 100
        assert len(counts) == (0 if option.way.name in ("alone", "mig") else len(lines))
        if option.way.name == "mps":
            for line, share, count in zip(lines, option.way.shares, counts, strict=True):
                assert f"PERCENTAGE={share}" in line or ("--gres=mps:" in line and str(count) == share)


@pytest.mark.parametrize("gpu", WORKLOADS)
def test_commands(gpu):
    """Commands are of a shell, have the shares of the option, and end what they start."""
    options = exported(gpu, "mps")
    script = "\n".join(text for _, text in options)
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    for option, text in options:
        assert text.count("PROGRAM-") == len(option.way.residents)
        assert ("nvidia-cuda-mps-control -d" in text) is ("echo quit | nvidia-cuda-mps-control" in text)
        assert ("nvidia-cuda-mps-control -d" in text) is (option.way.name == "mps")
        assert ("-lgc" in text) is ("-rgc" in text) is (option.sm_mhz is not None)
        if option.way.name == "mps":
            shares = re.findall(r"^CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=(\d+) PROGRAM", text, re.MULTILINE)
            assert tuple(shares) == option.way.shares


@pytest.mark.parametrize(
    ("gpu", "slices", "name"),
    [
        ("A100-40GB", 1, "1g.5gb"),
        ("A100", 3, "3g.40gb"),
        ("H100", 2, "2g.20gb"),
        ("H200", 1, "1g.18gb"),
        ("H200", 4, "4g.71gb"),
    ],
)
def test_instance_names(gpu, slices, name):
    """MIG instances have the names of NVIDIA."""
    assert profile(catalogue.gpu(gpu), slices) == name


def test_unknown_target():
    """Another target is refused."""
    with pytest.raises(InputError, match=f"expected one of {', '.join(TARGETS)}"):
        advised("T4").export("nomad")
