"""Hostile inputs by a seeded generator: files, notations and command lines that are damaged, extreme or made to harm.

A case is a folder's content and a command line (or the name of a function of `hostile_calls`). Numbers are either small
or beyond every bound, so that no case is merely a long computation. No case names a real GPU or writes to a device.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

FIFO, FOLDER, LOOP, DANGLING, ZERO = "fifo", "folder", "loop", "dangling", "zero"
"""What may be in the place of a file: a pipe, a folder, a link to itself, one to nothing, one to /dev/zero."""
ODD_FILES = (FIFO, FOLDER, LOOP, DANGLING, ZERO)

NUMBERS = (
    *(
        "0",
        "-1",
        "-0",
        "1e308",
        "-1e308",
        "1e999",
        "nan",
        "inf",
        "-inf",
        "9" * 20,
        "9" * 4400,
        "-" + "9" * 18,
        "1e-320",
    ),
    *(
        "0x10",
        "1_0",
        "\u0663",
        "\u00b2",
        "\u00bd",
        "+1",
        "--5",
        "1.5",
        "1e3000",
        "10000000000",
        ".",
        "1e",
        "0.0",
        "1,5",
    ),
)
TEXTS = (
    *(
        "",
        " ",
        "\t",
        "\0",
        "\u202e",
        "\ufeff",
        "\udcff",
        "\r\n",
        "'",
        '"',
        "`id`",
        "$(id)",
        ";",
        "%s%n",
        "~",
        "/",
        "..",
        "*",
    ),
    *(
        "null",
        "true",
        "{}",
        "[]",
        "*a",
        "&a",
        "!!python/object/apply:os.system [id]",
        "a" * 10_000,
        "[" * 5000,
        "(" * 300,
    ),
    *(
        "../../secret",
        "/dev/zero",
        "/proc/self/environ",
        "f",
        "f/x",
        "\x1b[31m",
        "=",
        "=1+1",
        "@",
        ":",
        "-",
        "--",
        "--help",
    ),
    *(
        "-" * 200,
        "x" * 300,
        "\u0430\u0301" * 50,
        "None",
        "lambda: 0",
        "__import__('os')",
        "1" + "0" * 30 + "xT4",
        ",",
        ",,",
    ),
)
TASKS = "id,workload,batch_size,iterations,arrival_s\n0,resnet50,8,1000,0\n1,vgg19,4,500,30\n2,bert_large,4,200.5,60\n"
WIDE_TASKS = (
    "id,workload,batch_size,iterations,arrival_s,precision,engine,phase,gpus,widths,priority,deadline_s,epochs\n"
    "0,resnet50,8,1000,0,fp32,eager,inference,1,,0,500,2\n1,vgg19,4,500,3,fp16,tensorrt,inference,1,1 2,1,,\n"
)
TRACE = (
    "job_id,submit_time,duration_s,gpu_num\n1,2020-09-01 00:00:52,300,1\n2,2020-09-01 00:01:00,900.5,1\n"
    "3,2020-09-01 00:05:00,90,0\n5,2020-09-01 00:05:00,4000,1\n6,2020-09-02 10:00:00,120,2\n"
)
JOBS = """\
jobs:
  - name: train
    command: [python, train.py, --seed, 7]
    like: resnet50:8
    iterations: 2000
    count: 2
    timeout_s: 7200
    retries: 2
    memory_mib: 900
    environment: {DATA: /data}
    arrival_s: 0
  - {name: serve, workload: bert_large:4, iterations: 500}
"""
GRID = "policies: [random, 'morak(cap=0.7,k=3)']\nclusters: [1xA100]\ntasks: [2]\nloads: [low]\nseeds: 1\nseed: 0\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
)
RUN = ("run", "--policy", "random", "--json", "-q")
NOTATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "--tasks": ((*RUN, "--cluster", "1xA100", "--tasks"), ("2", "3", "tasks.csv", "venus:2", "venus:3@0.5")),
    "--cluster": ((*RUN, "--tasks", "2", "--cluster"), ("1xA100", "2xT4,1xV100", "A100", "T4,A100")),
    "--policy": (
        ("run", "--json", "-q", "--tasks", "2", "--cluster", "2xA100", "--policy"),
        ("random", "sched-only", "morak(cap=0.7,k=3)", "pwr", "fifo", "miso", "gavel", "eaco"),
    ),
    "--budget": (
        ("profile", "--device", "emulated:T4", "--samples", "1", "--dry-run", "--json", "--budget"),
        ("90s", "2m", "60", "1.5m"),
    ),
    "--device": (
        ("profile", "--samples", "1", "--dry-run", "--json", "--device"),
        ("emulated:T4", "replay:p", "emulated:A100"),
    ),
    "--out": (
        (*RUN, "--tasks", "2", "--cluster", "1xA100", "--out"),
        ("out", "f", "f/x", "out/a/b", "pipe", "loop", "gone"),
    ),
    "--timeline": (
        (*RUN, "--tasks", "2", "--cluster", "1xA100", "--timeline"),
        ("out", "f/x", "out/t.json", "loop", "."),
    ),
    "--seed": ((*RUN, "--tasks", "2", "--cluster", "1xA100", "--seed"), ("0", "7", "123456789012")),
    "--repetition": ((*RUN, "--tasks", "2", "--cluster", "1xA100", "--repetition"), ("0", "7", "123456789012")),
    "estimate": (
        ("estimate", "--json", "A100"),
        ("resnet50:16@50", "vgg19:8", "resnet50:8@time-slice", "bert_large:4@mig-3g"),
    ),
    "estimate GPU": (("estimate", "--json", "resnet50:8"), ("T4", "V100", "V100-SXM2", "H100")),
    "--sm-mhz": (("estimate", "--json", "A100", "resnet50:8", "--sm-mhz"), ("1410", "1200", "210")),
    "--devices": (
        ("jobs", "run", "jobs.yaml", "--out", "out", "--devices"),
        ("nvml:0", "emulated", "nvml:GPU-1,nvml:GPU-2"),
    ),
    "--samples": (("profile", "--device", "emulated:T4", "--dry-run", "--json", "--samples"), ("1", "5", "20")),
    "--repeats": (
        ("profile", "--device", "emulated:T4", "--dry-run", "--samples", "1", "--json", "--repeats"),
        ("1", "5"),
    ),
    "--load": ((*RUN, "--tasks", "2", "--cluster", "1xA100", "--load"), ("low", "high", "mixed")),
    "--seeds": (
        ("compare", "-q", "--tasks", "2", "--cluster", "1xA100", "--policy", "random", "--json", "--seeds"),
        ("1", "2"),
    ),
    "--jobs": (
        (
            "compare",
            "-q",
            "--tasks",
            "2",
            "--cluster",
            "1xA100",
            "--policy",
            "random",
            "--seeds",
            "1",
            "--json",
            "--jobs",
        ),
        ("1",),
    ),
}
"""By notation: a command line that ends where it stands, and texts that are accepted there."""


@dataclass
class Case:
    """One input.

    Attributes:
        kind: its row in the table.
        words: the command line, or a function of `hostile_calls` and its arguments if the first word is `call`.
        files: what the folder has, by name: bytes, or one of `ODD_FILES`.
    """

    kind: str
    words: list[str]
    files: dict[str, bytes | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Valid:
    """Files that are accepted, from which damaged ones are made: the bytes, by name."""

    profile: bytes
    manifest: bytes
    plan: bytes
    journal: bytes
    cell: bytes
    cell_name: str


def make_case(seed: int, index: int, valid: Valid) -> Case:
    """Return a case: the same for the same seed and index, whatever came before."""
    rng = random.Random(f"{seed}-{index}")
    kinds = list(MAKERS)
    return MAKERS[kinds[index % len(kinds)]](rng, valid)


def _jobs(rng: random.Random, valid: Valid) -> Case:
    content = _damaged(rng, JOBS.encode(), yaml=True)
    words = ["run", "--tasks", "jobs.yaml", "--cluster", "2xA100", "--policy", "random", "--json", "-q"]
    return Case("jobs", words, {"jobs.yaml": content})


def _tasks(rng: random.Random, valid: Valid) -> Case:
    content = _damaged(rng, rng.choice((TASKS, WIDE_TASKS)).encode())
    return Case("tasks", [*RUN, "--cluster", "2xA100", "--tasks", "t.csv"], {"t.csv": content})


def _traces(rng: random.Random, valid: Valid) -> Case:
    source = rng.choice(("3", "venus:3", "venus:all", "venus:2@0.8"))
    words = [*RUN, "--cluster", "2xA100", "--tasks", source, "--trace", "t.csv", *rng.choice(([], ["--skip-bad"]))]
    return Case("traces", words, {"t.csv": _damaged(rng, TRACE.encode())})


def _profiles(rng: random.Random, valid: Valid) -> Case:
    return Case("profiles", ["profile", "--check", "p/profile.csv"], {"p/profile.csv": _damaged(rng, valid.profile)})


def _manifests(rng: random.Random, valid: Valid) -> Case:
    words = rng.choice((["profile", "--check", "p"], ["profile", "--accept", "p/profile.csv"]))
    return Case("manifests", words, {"p/profile.csv": valid.profile, "p/manifest.json": _damaged(rng, valid.manifest)})


def _journals(rng: random.Random, valid: Valid) -> Case:
    words = rng.choice((["jobs", "run", "--resume", "r"], ["jobs", "status", "r"], ["jobs", "status", "r", "--json"]))
    return Case("journals", words, {"r/journal.jsonl": _damaged(rng, valid.journal)})


def _plans(rng: random.Random, valid: Valid) -> Case:
    return Case("plans", ["run", "--json", "-q", "--plan", "plan.json"], {"plan.json": _damaged(rng, valid.plan)})


def _grids(rng: random.Random, valid: Valid) -> Case:
    words = ["compare", "-q", "--json", "--grid", "grid.yaml", "--cells", "cells"]
    if rng.random() < 0.25:
        name = valid.cell_name
        files: dict[str, bytes | str] = {
            "grid.yaml": GRID.encode(),
            f"cells/{name[:2]}/{name}.json": _damaged(rng, valid.cell),
        }
        return Case("grids", words, files)
    return Case("grids", words, {"grid.yaml": _damaged(rng, GRID.encode(), yaml=True)})


def _notebooks(rng: random.Random, valid: Valid) -> Case:
    value = _text(rng, rng.choice(("10", "1e-3", "true", "[1, 2]", "paper", "(1, 2)", "{'a': 1}")))
    if rng.random() < 0.4:
        return Case("notebooks", ["call", "find_notebook", _text(rng, rng.choice(("05", "12_sizes", "01", "x.ipynb")))])
    if rng.random() < 0.3:
        book = json.dumps(
            {"cells": [_cell("seed = 0\nsizes = [1, 2]", "parameters"), _cell("ctx = setup('a', outputs=[])")]}
        )
        return Case("notebooks", ["call", "read_notebook", "n.ipynb"], {"n.ipynb": _damaged(rng, book.encode())})
    return Case(
        "notebooks", ["call", "check_parameter", rng.choice(("seed", "tasks", "profile", "sed", "sizes")), value]
    )


def _cell(source: str, tag: str = "") -> dict[str, object]:
    return {"cell_type": "code", "source": [source], "metadata": {"tags": [tag] * bool(tag)}}


def _notations(rng: random.Random, valid: Valid) -> Case:
    name = rng.choice([*NOTATIONS, "--hosts"])
    if name == "--hosts":
        return Case(
            "notations", ["call", "check_hosts", _text(rng, rng.choice(("tls://h:8786", "dask://127.0.0.1:1")))]
        )
    words, accepted = NOTATIONS[name]
    text = _text(rng, rng.choice(accepted))
    if name == "--devices" and re.fullmatch(r"\s*nvml\s*(:\s*\d+\s*)?", text):
        text = "nvml:x"
    odd: dict[str, bytes | str] = {"pipe": FIFO, "loop": LOOP, "gone": DANGLING}
    files = {"tasks.csv": TASKS.encode(), "jobs.yaml": JOBS.encode(), "f": b"a file", **odd}
    many = [text] * (rng.choice((1, 1, 2, 100)) if name == "estimate" else 1)
    if name == "estimate GPU":
        return Case("notations", [*words[:-1], text, words[-1]], files)
    return Case("notations", [*words, *many], files)


def _command_lines(rng: random.Random, valid: Valid) -> Case:
    words, accepted = NOTATIONS[rng.choice(list(NOTATIONS))]
    line = [*words, rng.choice(accepted)]
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(1, len(line) + 1)
        new = rng.choice(
            (*TEXTS, *NUMBERS, "--seed", "--json", "--plan", "--resume", "--grid", "--improved", "--bound")
        )
        how = rng.randrange(3)
        if how == 0 and place < len(line):
            line[place] = new
        elif how == 1 and place < len(line):
            del line[place]
        else:
            line.insert(place, new)
    files: dict[str, bytes | str] = {"tasks.csv": TASKS.encode(), "jobs.yaml": JOBS.encode(), "f": b"a file"}
    return Case("command lines", [word for word in line if not re.fullmatch(r"nvml(:\d+)?", word)], files)


MAKERS: dict[str, Callable[[random.Random, Valid], Case]] = {
    "jobs": _jobs,
    "tasks": _tasks,
    "traces": _traces,
    "profiles": _profiles,
    "manifests": _manifests,
    "journals": _journals,
    "plans": _plans,
    "grids": _grids,
    "notebooks": _notebooks,
    "notations": _notations,
    "notations again": _notations,
    "command lines": _command_lines,
}
"""A maker for each turn of the generator; notations have two of them, since they are many."""


def _text(rng: random.Random, valid: str) -> str:
    """Return a text that is accepted, damaged, or something else."""
    how = rng.randrange(8)
    if how == 0:
        return valid
    if how <= 2:
        return rng.choice(TEXTS)
    if how == 3:
        return rng.choice(NUMBERS)
    if how <= 5 and re.search(r"\d+", valid):
        return re.sub(r"\d+", lambda _: rng.choice(NUMBERS), valid, count=rng.randint(1, 2))
    place = rng.randrange(len(valid) + 1)
    end = min(len(valid), place + rng.choice((0, 0, 1, 3)))
    return valid[:place] + rng.choice((*TEXTS, "")) + valid[end:]


def _damaged(rng: random.Random, content: bytes, *, yaml: bool = False) -> bytes | str:
    """Return a file's content, damaged in one to three ways, or what else is in its place."""
    how = rng.random()
    if how < 0.03:
        return content
    if how < 0.08:
        return rng.choice(ODD_FILES)
    if how < 0.14:
        nested = (b"[" * 100_000, b'{"a":' * 50_000, b"- " * 50_000, b"[" * 2000 + b"]" * 2000)
        empty = (b"", b"\n", b"\0" * 5_000_000, b"\xff\xfe", content.decode("utf-8", "replace").encode("utf-16"))
        return rng.choice((*nested, *empty, BOMB.encode(), rng.randbytes(500), content * 3))
    for _ in range(rng.randint(1, 3)):
        content = rng.choice((_cut, _doubled, _replaced, _numbered, _numbered, _numbered, _bytes))(rng, content)
    return content


def _span(rng: random.Random, content: bytes, longest: int = 60) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.randint(0, longest))


def _cut(rng: random.Random, content: bytes) -> bytes:
    start, end = _span(rng, content)
    return content[:start] + (content[end:] if rng.random() < 0.7 else b"")


def _doubled(rng: random.Random, content: bytes) -> bytes:
    start, end = _span(rng, content, 200)
    return content[:end] + content[start:]


def _replaced(rng: random.Random, content: bytes) -> bytes:
    """Replace a word by a text."""
    words = list(re.finditer(rb"[\w.:@+-]+", content)) or list(re.finditer(rb"", content))
    word = rng.choice(words)
    new = rng.choice(TEXTS).encode("utf-8", "surrogateescape")
    return content[: word.start()] + new + content[word.end() :]


def _numbered(rng: random.Random, content: bytes) -> bytes:
    """Replace a number by another."""
    numbers = list(re.finditer(rb"(?<![\w.])\d+(\.\d+)?", content))
    if not numbers:
        return _bytes(rng, content)
    place = rng.choice(numbers)
    return content[: place.start()] + rng.choice(NUMBERS).encode() + content[place.end() :]


def _bytes(rng: random.Random, content: bytes) -> bytes:
    start, end = _span(rng, content, 4)
    return content[:start] + rng.randbytes(rng.randint(1, 4)) + content[end:]
