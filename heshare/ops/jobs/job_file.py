"""Reader of `jobs.yaml`, the file of jobs, with checks that name the row and the field."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from heshare.shared.errors import InputError
from heshare.shared.inputs.bounds import MOST_BATCH
from heshare.shared.yaml_nodes import YamlNode, read_nodes, short
from heshare.world.catalogue import memory_mib, models, resident
from heshare.world.workload import PRECISIONS, Workload

LOADS = ("low", "medium", "high")
MOST_JOBS = 100_000
OUTPUT_MIB = 1024
"""Default limit of an attempt's output, MiB (chosen so that no ordinary log reaches it)."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_", "HESHARE_")
_NAME = "1 to 64 letters, digits, dots, dashes and underscores"
_EXPECTED = {
    "name": _NAME,
    "precision": f"one of {', '.join(PRECISIONS)}",
    "command": "a list with at least one item",
    "environment": "variables as `NAME: value`",
}
_TYPES = {"float | null": "a number", "float": "a number", "int": "a whole number"}
_TIME_S = Meta(gt=0, le=1e9)


class _Entry(msgspec.Struct, kw_only=True):
    """An entry of the file; `_job_spec` checks conditions on several fields."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]
    command: tuple[str, ...] = ()
    workload: str = ""
    like: str = ""
    iterations: Annotated[float, Meta(gt=0, le=1e15)] | None = None
    expected_time_s: Annotated[float, _TIME_S] | None = None
    precision: Literal["fp32", "tf32", "mixed", "fp16"] = "mixed"
    count: Annotated[int, Meta(ge=1, le=MOST_JOBS)] = 1
    timeout_s: Annotated[float, _TIME_S] | None = None
    retries: Annotated[int, Meta(ge=0, le=1000)] = 0
    memory_mib: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    directory: str = "."
    environment: dict[str, str] = {}
    arrival_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    output_mib: Annotated[int, Meta(ge=1, le=1_000_000)] = OUTPUT_MIB
    gpus: Annotated[int, Meta(ge=1, le=1024)] = 1


FIELDS = _Entry.__struct_fields__
_NUMBERS = {each.name for each in msgspec.structs.fields(_Entry) if isinstance(each.default, int | float | None)}


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One entry of `jobs.yaml`.

    Attributes:
        name: unique in the file.
        command: the argument list, run without a shell; empty for a workload of Table IV.
        workload: the workload to run, or the one as which a command is planned (`like`).
        iterations: of that workload; None if `expected_time_s` is given.
        expected_time_s: time alone on an A100 at its top clock, s, or None.
        timeout_s: time limit of one attempt, s; None for no limit.
        retries: further attempts after one that failed by its own fault.
        memory_mib: device memory that must be free before it starts, MiB.
        environment: variables added to a command's environment, as (name, value).
        arrival_s: earliest start, s after the run's start.
        row: the line of the file where it begins.
        output_mib: limit of an attempt's output, MiB; an attempt that writes more is ended and has failed.
        gpus: number of GPUs that it needs at the same time; only emulated GPUs run jobs on several.
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
    output_mib: int = OUTPUT_MIB
    gpus: int = 1


def read_jobs(path: str | Path) -> tuple[JobSpec, ...]:
    """Read `jobs.yaml` and return its entries, checked.

    The file is YAML with the one key `jobs`, a list; each entry has a `name` and either a `command` (with `like`) or a
    `workload`, and `iterations` or `expected_time_s`.

    Raises:
        InputError: the file is bad; the message names row and field.
    """
    top = read_nodes(
        Path(path),
        "a file of jobs in YAML",
        "Correct the file (the page docs/operations.md shows one); copies are `count`.",
    )
    fields = top.mapping(("jobs",), "the one key `jobs`")
    if "jobs" not in fields:
        top.refuse("no key `jobs`", "the one key `jobs`, a list", "Put the jobs under `jobs:`.")
    specs: dict[str, JobSpec] = {}
    for node in fields["jobs"].items():
        spec = _job_spec(node)
        if spec.name in specs:
            found = f"the name {spec.name!r} again (first on row {specs[spec.name].row})"
            node.refuse(found, "one entry a name", "Give each entry another name; copies of one are its `count`.")
        specs[spec.name] = spec
    count = sum(spec.count for spec in specs.values())
    if count > MOST_JOBS:
        fields["jobs"].refuse(f"{count} jobs", f"at most {MOST_JOBS}", "Lower the counts, or run several files.")
    return tuple(specs.values())


def _job_spec(node: YamlNode) -> JobSpec:
    fields = node.mapping(FIELDS, "an entry with name, command or workload, iterations, ...")
    entry = _entry(node, fields)

    amounts = [field for field in ("iterations", "expected_time_s") if field in fields]
    workload = _planned_workload(node, fields, entry)
    if len(amounts) != 1:
        found = " and ".join(amounts) or f"no amount of work for {entry.name!r}"
        action = "Give the amount of work: `iterations` of the workload, or seconds alone on an A100."
        node.refuse(found, "iterations or expected_time_s", action)

    return JobSpec(
        name=entry.name,
        command=entry.command,
        workload=workload,
        iterations=entry.iterations,
        expected_time_s=entry.expected_time_s,
        count=entry.count,
        timeout_s=entry.timeout_s,
        retries=entry.retries,
        memory_mib=_memory_mib(fields, entry.memory_mib, workload),
        directory=_directory(fields["directory"]) if "directory" in fields else node.file.absolute().parent,
        environment=_environment(fields, entry.environment),
        arrival_s=entry.arrival_s,
        row=node.row,
        output_mib=entry.output_mib,
        gpus=entry.gpus,
    )


def _entry(node: YamlNode, fields: dict[str, YamlNode]) -> _Entry:
    if "name" not in fields:
        node.refuse("an entry without a name", f"a name of {_NAME}", "Name it: results and outputs go by the name.")
    try:
        values = {name: field.number() if name in _NUMBERS else field.plain() for name, field in fields.items()}
        return msgspec.convert(values, _Entry, strict=False)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$.")
        name = re.split(r"[^a-z_]", place)[0]
        value = fields[name].plain()
        found = short(value) if isinstance(value, str) else fields[name].described()
        # Such as "Expected `int` >= 1", or "Number out of range".
        _, kind, bounds = said.partition(", got ")[0].split("`") if "`" in said else ("", "float", " in range")
        fields[name].refuse(found, _EXPECTED.get(name, f"{_TYPES.get(kind, 'a text')}{bounds}"), "Correct the value.")


def _planned_workload(node: YamlNode, fields: dict[str, YamlNode], entry: _Entry) -> Workload:
    if ("command" in fields) == ("workload" in fields):
        found = "both a command and a workload" if "command" in fields else "neither a command nor a workload"
        node.refuse(found, "one of the two", "Give `command` (an argument list) or `workload` (such as resnet50:8).")
    if "workload" in fields:
        for field in ("like", "directory", "environment", "output_mib", "gpus"):
            if field in fields:
                fields[field].refuse(f"`{field}` with a workload", "it only with a command", "Remove it.")
        return _workload(fields["workload"], entry.workload, entry.precision)
    if "like" not in fields:
        action = "Name a similar workload, such as `like: resnet50:8`, or its load, such as `like: medium`: without it "
        node.refuse("a command without `like`", "what to plan it as", action + "no time and no power can be predicted.")
    if not entry.command[0].strip():
        fields["command"].refuse("a command without a program", "a program and its arguments", "Name the program.")
    return _workload(fields["like"], entry.like, entry.precision, loads=True)


def _workload(node: YamlNode, text: str, precision: str, *, loads: bool = False) -> Workload:
    if loads and text in LOADS:
        return load_workload(text, precision)
    expected = "a model of Table IV and an inference batch size, such as resnet50:8"
    digits = text.rpartition(":")[2]
    # `int` of a very long text takes long, so the length is checked first.
    if "@" in text or (digits.isdecimal() and (len(digits) > 7 or int(digits) > MOST_BATCH)):
        node.refuse(short(text), expected, "Shares are the policy's to choose; correct the workload.")
    try:
        return resident(text, precision=precision).workload
    except InputError as error:
        node.refuse(short(text), error.expected, error.action)


def load_workload(load: str, precision: str) -> Workload:
    """Return the workload that represents a load class: its model of median work, at inference batch size 8."""
    ranked = sorted(
        (model for model in models().values() if model.load == load), key=lambda model: (model.gflops, model.name)
    )
    return Workload(ranked[len(ranked) // 2].name, 8, precision)


def _memory_mib(fields: dict[str, YamlNode], requested_mib: float | None, workload: Workload) -> float:
    # The planned workload must not need less memory than the job, or the plan would be infeasible.
    need_mib = memory_mib(workload)
    if requested_mib is None:
        return need_mib
    if requested_mib > need_mib:
        model = models()[workload.model]
        batch = math.ceil((requested_mib - model.memory_fixed_mib) / model.memory_per_sample_mib)
        action = f"Plan it as something as large, such as {workload.model}:{batch}, or leave memory_mib out."
        found = f"{requested_mib:g} MiB for a job planned as {workload}"
        fields["memory_mib"].refuse(found, f"at most its {need_mib:.0f} MiB", action)
    return requested_mib


def _directory(node: YamlNode) -> Path:
    path = node.file.absolute().parent / node.text("a folder")
    try:
        exists = path.is_dir()
    except OSError:  # a name that is too long for the file system
        exists = False
    if not exists:
        node.refuse(short(path.name), "a folder that exists", "Make it, or correct the path.")
    return path


def _environment(fields: dict[str, YamlNode], environment: dict[str, str]) -> tuple[tuple[str, str], ...]:
    for name in environment:
        if not _VARIABLE.fullmatch(name) or name.startswith(_RESERVED):
            reserved = ", ".join(_RESERVED)
            expected = f"a variable's name, and none that {reserved}... begin: those are the executor's"
            fields["environment"].refuse(short(name), expected, "Rename or remove it.")
    return tuple(environment.items())
