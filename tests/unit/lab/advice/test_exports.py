"""Exports of an option: YAML that keeps to the schema and refers to what it defines, Slurm's gres, shell commands."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

import heshare as hs
from heshare.lab.advice.advice import Advice
from heshare.lab.advice.exports import TARGETS, export, profile
from heshare.shared.errors import InputError
from heshare.world import catalogue

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parent / "kubernetes_schemas.json").read_text("utf-8"))
)
WORKLOADS = {"A100": ["resnet50:8", "vgg19:8"], "T4": "3xmobilenet:1", "H100": "asr=per_s:104,w:155,sm:6"}
COUNTS = {"A100": 12, "T4": 8, "H100": 10}
OPTIONS = [(gpu, place) for gpu, count in COUNTS.items() for place in range(count)]


@cache
def advised(gpu: str) -> Advice:
    return hs.advise(gpu, WORKLOADS[gpu])


def exported(gpu: str, place: int, target: str) -> str:
    advice = advised(gpu)
    return export(target, advice.gpu, advice.options[place], advice.names, advice.needs_mib)


def test_every_option_is_exported_below():
    assert {gpu: len(advised(gpu).options) for gpu in COUNTS} == COUNTS


@pytest.mark.parametrize(("gpu", "place"), OPTIONS)
@pytest.mark.parametrize("target", ["hami", "dra"])
def test_yaml_keeps_to_the_schema_and_claims_what_it_defines(gpu, place, target):
    option, documents = advised(gpu).options[place], list(yaml.safe_load_all(exported(gpu, place, target)))
    for document in documents:
        SCHEMA.validate(document)
    pods = [each for each in documents if each["kind"] == "Pod"]
    assert len({pod["metadata"]["name"] for pod in pods}) == len(option.way.residents)
    if target == "dra":
        (claim,) = [each for each in documents if each["kind"] == "ResourceClaim"]
        requests = {each["name"] for each in claim["spec"]["devices"]["requests"]}
        for pod in pods:
            assert [each["resourceClaimName"] for each in pod["spec"]["resourceClaims"]] == [claim["metadata"]["name"]]
            (used,) = pod["spec"]["containers"][0]["resources"]["claims"]
            assert used["name"] == pod["spec"]["resourceClaims"][0]["name"]
            assert used.get("request", "gpu") in requests
        return
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods]
    assert sum(each.get("nvidia.com/gpumem", 0) for each in limits) <= advised(gpu).gpu.memory_mib
    if option.way.name != "alone":
        assert sum(each.get("nvidia.com/gpucores", 0) for each in limits) <= 100


def test_the_schema_refuses_another_field():
    (pod, *_) = yaml.safe_load_all(exported("A100", 4, "hami"))
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucore"] = 50
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(pod)


@pytest.mark.parametrize(("gpu", "place"), OPTIONS)
def test_slurm_asks_for_no_more_than_a_card_has(gpu, place):
    option, lines = advised(gpu).options[place], exported(gpu, place, "slurm").splitlines()
    assert len(lines) == len(option.way.residents)
    counts = [int(match[1]) for line in lines if (match := re.match(r"#SBATCH --gres=(?:mps|shard):(\d+)", line))]
    assert sum(counts) <= 100
    assert len(counts) == (0 if option.way.name in ("alone", "mig") else len(lines))
    if option.way.name == "mps":
        for line, share, count in zip(lines, option.way.shares, counts, strict=True):
            assert f"PERCENTAGE={share}" in line or ("--gres=mps:" in line and str(count) == share)


@pytest.mark.parametrize(("gpu", "place"), OPTIONS)
def test_commands_are_shell_and_end_what_they_start(gpu, place):
    option, text = advised(gpu).options[place], exported(gpu, place, "mps")
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    assert text.count("PROGRAM-") == len(option.way.residents)
    assert ("nvidia-cuda-mps-control -d" in text) is ("echo quit | nvidia-cuda-mps-control" in text)
    assert ("nvidia-cuda-mps-control -d" in text) is (option.way.name == "mps")
    assert ("-lgc" in text) is ("-rgc" in text) is (option.sm_mhz is not None)
    if option.way.name == "mps":
        shares = tuple(re.findall(r"^CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=(\d+) PROGRAM", text, re.MULTILINE))
        assert shares == option.way.shares


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
def test_instances_have_nvidias_names(gpu, slices, name):
    assert profile(catalogue.gpu(gpu), slices) == name


def test_another_target_is_refused():
    with pytest.raises(InputError, match=f"expected one of {', '.join(TARGETS)}"):
        advised("T4").export("nomad")
