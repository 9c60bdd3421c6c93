"""Reading `jobs.yaml`: what an operator wants done, checked line by line before anything is started."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heshare.errors import InputError
from heshare.world.catalogue import memory_mib, models, resident
from heshare.world.document import Node, compose, short
from heshare.world.workload import PRECISIONS, Workload

FIELDS = (
    "name", "command", "workload", "like", "iterations", "expected_time_s", "precision", "count", "timeout_s",
    "retries", "memory_mib", "directory", "environment", "arrival_s",
)  # fmt: skip
LOADS = ("low", "medium", "high")
MOST_JOBS = 100_000
_MOST_BATCH = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_OURS = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_", "HESHARE_")


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One entry of `jobs.yaml`.

    Attributes:
        name: unique in the file.
        command: the argument list, never given to a shell; empty for a workload of Table IV.
        workload: what it runs, or for a command what the plan takes it for (`like`).
        iterations: of that workload; None if `expected_time_s` says how much there is to do.
        expected_time_s: time alone on an A100 at its top clock, s, or None.
        count: how many copies to run.
        timeout_s: how long one attempt may take, s; None for as long as it likes.
        retries: further attempts after one that failed by its own fault.
        memory_mib: device memory that must be free before it starts, MiB.
        directory: where a command runs.
        environment: what is added to a command's environment, as (name, value).
        arrival_s: when it may start, s after the run's start.
        row: the line of the file where it begins.
    """

    name: str
    command: tuple[str, ...]
    workload: Workload
    iterations: float | None
    expected_time_s: float | None
    count: int
    timeout_s: float | None
    retries: int
    memory_mib: float
    directory: Path
    environment: tuple[tuple[str, str], ...]
    arrival_s: float
    row: int


def read_jobs(path: str | Path) -> tuple[JobSpec, ...]:
    """Read a file of jobs.

    Args:
        path: a YAML file with the one key `jobs`, a list; each entry has a `name` and either a `command` (with `like`)
            or a `workload`, and `iterations` or `expected_time_s`.

    Raises:
        InputError: whatever is wrong with it; nothing is started.
    """
    path = Path(path)
    top = Node(path, compose(path), "the file")
    fields = top.mapping(("jobs",), "the one key `jobs`")
    if "jobs" not in fields:
        top.refuse("no key `jobs`", "the one key `jobs`, a list", "Put the jobs under `jobs:`.")
    specs: list[JobSpec] = []
    names: dict[str, int] = {}
    for node in fields["jobs"].items():
        spec = _spec(node)
        if spec.name in names:
            action = "Give each entry a name of its own; copies of one are its `count`."
            node.refuse(f"the name {spec.name!r} again (first on row {names[spec.name]})", "one entry a name", action)
        names[spec.name] = spec.row
        specs.append(spec)
    if sum(spec.count for spec in specs) > MOST_JOBS:
        found = f"{sum(spec.count for spec in specs)} jobs"
        fields["jobs"].refuse(found, f"at most {MOST_JOBS}", "Lower the counts, or run several files.")
    return tuple(specs)


def _spec(node: Node) -> JobSpec:
    fields = node.mapping(FIELDS, "an entry with name, command or workload, iterations, ...")
    name = _named(node, fields)
    command, workload = _what(node, fields)
    amount = [one for one in ("iterations", "expected_time_s") if one in fields]
    if len(amount) != 1:
        action = "Say how much there is to do: `iterations` of the workload, or seconds alone on an A100."
        node.refuse(" and ".join(amount) or f"no amount of work for {name!r}", "iterations or expected_time_s", action)

    def maybe(field: str, read: Callable[[Node], Any], otherwise: Any) -> Any:
        return read(fields[field]) if field in fields else otherwise

    need_mib = memory_mib(workload)
    return JobSpec(
        name=name,
        command=command,
        workload=workload,
        iterations=maybe("iterations", lambda one: one.number(above=True), None),
        expected_time_s=maybe("expected_time_s", lambda one: one.number(above=True, most=1e9), None),
        count=maybe("count", lambda one: one.whole(least=1, most=MOST_JOBS), 1),
        timeout_s=maybe("timeout_s", lambda one: one.number(above=True, most=1e9), None),
        retries=maybe("retries", lambda one: one.whole(least=0, most=1000), 0),
        memory_mib=maybe("memory_mib", lambda one: _memory(one, workload, need_mib), need_mib),
        directory=maybe("directory", lambda one: _directory(one, bool(command)), node.file.absolute().parent),
        environment=maybe("environment", lambda one: _environment(one, bool(command)), ()),
        arrival_s=maybe("arrival_s", lambda one: one.number(most=1e9), 0.0),
        row=node.row,
    )


def _named(node: Node, fields: dict[str, Node]) -> str:
    expected = "1 to 64 letters, digits, dots, dashes and underscores"
    if "name" not in fields:
        node.refuse("an entry without a name", f"a name of {expected}", "Name it: results and outputs go by the name.")
    name = fields["name"].text(expected)
    if not _NAME.fullmatch(name):
        fields["name"].refuse(short(name), expected, "Choose another name.")
    return name


def _what(node: Node, fields: dict[str, Node]) -> tuple[tuple[str, ...], Workload]:
    """The command, if it is one, and the workload that is planned for."""
    if ("command" in fields) == ("workload" in fields):
        found = "both a command and a workload" if "command" in fields else "neither a command nor a workload"
        node.refuse(found, "one of the two", "Give `command` (an argument list) or `workload` (such as resnet50:8).")
    precision = fields["precision"].one_of(PRECISIONS) if "precision" in fields else PRECISIONS[0]
    if "workload" in fields:
        if "like" in fields:
            fields["like"].refuse("`like` beside a workload", "it only beside a command", "Remove it.")
        return (), _workload(fields["workload"], precision)
    if "like" not in fields:
        action = "Say what it resembles, such as `like: resnet50:8`, or its load, such as `like: medium`: without that "
        node.refuse("a command without `like`", "what to plan it as", action + "no time and no power can be predicted.")
    arguments = tuple(one.text("an argument") for one in fields["command"].items())
    if not arguments[0].strip():
        fields["command"].refuse("a command without a program", "a program and its arguments", "Name the program.")
    return arguments, _workload(fields["like"], precision, loads=True)


def _workload(node: Node, precision: str, *, loads: bool = False) -> Workload:
    text = node.text("a workload such as resnet50:8")
    if loads and text in LOADS:
        ranked = sorted((one for one in models().values() if one.load == text), key=lambda one: (one.gflops, one.name))
        return Workload(ranked[len(ranked) // 2].name, 8, precision)
    expected = "a model of Table IV and an inference batch size, such as resnet50:8"
    digits = text.rpartition(":")[2]
    if "@" in text or (digits.isdecimal() and (len(digits) > 7 or int(digits) > _MOST_BATCH)):
        node.refuse(short(text), expected, "Shares are the policy's to choose; correct the workload.")
    try:
        return resident(text, precision=precision).workload
    except InputError as error:
        node.refuse(short(text), error.expected, error.action)


def _memory(node: Node, workload: Workload, need_mib: float) -> float:
    """The memory to ask for; what is planned for must not need less, or the plan would not hold."""
    asked_mib = node.number(above=True, most=1e9)
    if asked_mib > need_mib:
        known = models()[workload.model]
        batch = math.ceil((asked_mib - known.memory_fixed_mib) / known.memory_per_sample_mib)
        action = f"Plan it as something as large, such as {workload.model}:{batch}, or leave memory_mib out."
        node.refuse(f"{asked_mib:g} MiB for a job planned as {workload}", f"at most its {need_mib:.0f} MiB", action)
    return asked_mib


def _directory(node: Node, is_command: bool) -> Path:
    if not is_command:
        node.refuse("a directory for a workload", "one only for a command", "Remove it.")
    path = node.file.absolute().parent / node.text("a folder")
    try:
        there = path.is_dir()
    except OSError:
        there = False
    if not there:
        node.refuse(short(path.name), "a folder that exists", "Make it, or correct the path.")
    return path


def _environment(node: Node, is_command: bool) -> tuple[tuple[str, str], ...]:
    if not is_command:
        node.refuse("an environment for a workload", "one only for a command", "Remove it.")
    found = []
    for name, value in node.mapping(None, "variables as `NAME: value`").items():
        if not _VARIABLE.fullmatch(name) or name.startswith(_OURS):
            expected = "a variable's name, and none that " + ", ".join(_OURS) + "... begin: those are the executor's"
            node.refuse(short(name), expected, "Rename or remove it.")
        found.append((name, value.text("a text")))
    return tuple(found)
