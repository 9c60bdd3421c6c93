"""Catalogue of the GPUs of `data/gpus.csv` (Table III) and the models of `data/workloads.csv` (Table IV), by name.

Both files have one value a row, with its unit, source and confidence.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from heshare.shared import files, plugins
from heshare.shared.errors import InputError, require, unknown
from heshare.shared.inputs.csv_table import Row, read_table
from heshare.world.gpu import Gpu
from heshare.world.language_model import DECODE, LARGEST_DECODE_M, PREFILL, SHAPE_KINDS, LanguageModel
from heshare.world.task import Task
from heshare.world.workload import DEFAULT_PRECISION, KINDS, Model, Resident, Workload, parse_resident

PAPER_GPUS = ("T4", "V100", "A100")
"""The GPUs of Table III, in its order: the paper's figures and the shipped profiles are of these."""
INFERENCE = "inference"
"""The phase of the workloads of Table IV."""

# Kind of each field: text, a whole number, or else a number in this unit.
_TEXT, _WHOLE = "text", "whole"
_GPU_FIELDS = {
    "title": _TEXT,
    "architecture": _TEXT,
    "sm_count": _WHOLE,
    "cuda_cores": _WHOLE,
    "memory_mib": "MiB",
    "mem_bw_gbs": "GB/s",
    "l2_mib": "MiB",
    "fp32_tflops": "TFLOP/s",
    "fp16_tflops": "TFLOP/s",
    "tdp_w": "W",
    "idle_w": "W",
    "clocks_mhz": "MHz",
    "mps_clients": _WHOLE,
    "mig_slices": _WHOLE,
}
_OPTIONAL = ("mig_slices",)
_BY_NAME = (
    "architecture",
    "sm_count",
    "cuda_cores",
    "mem_bw_gbs",
    "l2_mib",
    "fp32_tflops",
    "fp16_tflops",
    "idle_w",
)
"""Properties of a GPU from which constants follow, which are cached by its name."""
_MODEL_FIELDS = {
    "title": _TEXT,
    "description": _TEXT,
    "load": _TEXT,
    "kind": _TEXT,
    "layers": _WHOLE,
    "params_m": "1e6",
}
_SIZES = {
    "gflops": "GFLOP/sample",
    "activations_m": "1e6/sample",
    "memory_fixed_mib": "MiB",
    "memory_per_sample_mib": "MiB/sample",
}
"""Fields of a network that has no shape of a language model, from which they follow."""
_SHAPE = {"heads": _WHOLE, "kv_heads": _WHOLE, "head_dim": _WHOLE, "context": "tokens"}
_SHAPE_OPTIONS = {"active_params_m": "1e6", "embedding_m": "1e6", "state_mib": "MiB", "weight_bytes": "B"}
_SHAPE_OPTIONS |= dict.fromkeys(("full_layers", "window_layers", "window", "experts", "experts_used"), _WHOLE)
_CLOCKS = re.compile(r"^(\d+:\d+:[1-9]\d*|\d+( \d+)*)$")


def read_facts(
    path: str | Path, key: str, fields: dict[str, str], *, optional: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return {name: {field: value}} of a long table; rows of one name need not be together.

    The CSV file has the columns `key`, `field`, `value`, `unit` (and others, which are not read), `key` being that of
    names. `fields` has the kind of each field, `text`, `whole`, or the unit of a number, and `optional` those that a
    name may lack. Rows of other fields are skipped.

    Raises:
        InputError: a missing column, an empty or doubled value, a wrong unit, something that is not a number, or a
            name without one of the fields.
    """
    table: dict[str, dict[str, Any]] = {}
    for row in read_table(path, (key, "field", "value", "unit")):
        facts = table.setdefault(row.text(key), {})
        field = row.text("field")
        if field in facts:
            raise row.error("field", "doubled", f"each field once for {row.cells[key]}", "Remove one of the rows.")
        if field in fields:
            facts[field] = _value(row, field, fields[field])
    for name, facts in table.items():
        missing = [field for field in fields if field not in facts and field not in optional]
        found, expected = f"{name} without {', '.join(missing)}", "a row for each of " + ", ".join(fields)
        require("field", found, not missing, expected, "Add the rows, with unit and source.", file=path)
    return table


def _value(row: Row, field: str, kind: str) -> Any:
    if kind == _TEXT:
        return row.text("value")
    if kind == _WHOLE:
        return row.whole("value", least=1)
    if row.cells["unit"] != kind:
        raise row.error("unit", "wrong unit", kind, f"Convert the value to {kind}.")
    if field == "clocks_mhz":
        return _clocks(row)
    return row.number_of("value")


def _clocks(row: Row) -> tuple[int, ...]:
    text = row.text("value")
    if not _CLOCKS.match(text):
        raise row.error("value", "no clocks", "clocks such as 300:1590:15 or 300 315 330", "Correct the grid.")
    if ":" in text:
        first, last, step = (int(part) for part in text.split(":"))
        return tuple(range(first, last + 1, step))
    return tuple(int(part) for part in text.split())


@cache
def gpus() -> dict[str, Gpu]:
    """Return every GPU of `data/gpus.csv` by name, in the file's order, and those of plug-ins behind them."""
    plugins.load_others(plugins.DEVICE_MODELS)
    paths = [files.data("gpus.csv"), *_MORE["gpu"]]
    facts = _joined(paths, "gpu", lambda path: read_facts(path, "gpu", _GPU_FIELDS, optional=_OPTIONAL))
    return {name: Gpu(name=name, **fact) for name, fact in facts.items()}


@cache
def models() -> dict[str, Model]:
    """Return every model of `data/workloads.csv` (Table IV) by name, in the file's order, then those of plug-ins."""
    plugins.load_others(plugins.WORKLOADS)
    shipped, more = files.data("workloads.csv"), _MORE["workload"]
    facts = _joined([shipped, *more], "workload", _read_models)
    return {name: Model(name=name, **fact) for name, fact in facts.items()}


def _read_models(path: Path) -> dict[str, dict[str, Any]]:
    more = {**_SIZES, **_SHAPE, **_SHAPE_OPTIONS}
    facts = read_facts(path, "workload", {**_MODEL_FIELDS, **more}, optional=tuple(more))
    return {name: _described(path, name, fact) for name, fact in facts.items()}


def _described(path: Path, name: str, fact: dict[str, Any]) -> dict[str, Any]:
    # The fields of `Model`: those that the file gives, or those that follow from the shape of a language model.
    if fact["kind"] not in (*KINDS, PREFILL):
        found = f"{name} of the kind {fact['kind']}"
        raise InputError(found, " or ".join((*KINDS, PREFILL)), "Choose one.", file=path, column="kind")
    shaped = fact["kind"] == PREFILL or not _SHAPE.keys().isdisjoint(fact)
    missing = [field for field in (_SHAPE if shaped else _SIZES) if field not in fact]
    if missing or (shaped and fact["kind"] not in SHAPE_KINDS):
        found = f"{name} of the kind {fact['kind']} without {', '.join(missing) or 'tokens to decode or prompts'}"
        needed = f"{', '.join(_SHAPE)} of a language model (kind {' or '.join(SHAPE_KINDS)}), or {', '.join(_SIZES)}"
        raise InputError(found, needed, "Add the rows, with unit and source.", file=path, column="field")
    if not shaped:
        return {field: value for field, value in fact.items() if field in _MODEL_FIELDS or field in _SIZES}
    own = {field: fact.pop(field) for field in (*_SHAPE, *_SHAPE_OPTIONS, *_SIZES) if field in fact}
    shape = LanguageModel.of(fact, own)
    return {
        **fact,
        "language": shape,
        "gflops": 1e-9 * shape.operations(1),
        "activations_m": 1e-6 * shape.layers * shape.heads * shape.head_dim * shape.tokens(1),
        "memory_fixed_mib": shape.memory_mib(0, "fp16"),
        "memory_per_sample_mib": shape.memory_mib(1, "fp16") - shape.memory_mib(0, "fp16"),
    }


def paper_models() -> dict[str, Model]:
    """Return the models of Table IV by name: those of a load class. Others have the load `none`."""
    return {name: model for name, model in models().items() if model.load != "none"}


_MORE: dict[str, list[Path]] = {"gpu": [], "workload": []}


def register_gpus(path: str | Path) -> None:
    """Add the GPUs of a file in the form of `data/gpus.csv`, before anything reads the catalogue.

    A plug-in of `heshare.device_models` calls it when it is imported. The device model derives what was not measured.

    Raises:
        InputError: a bad file, or something has read the catalogue already.
    """
    _register("gpu", path, read_facts(path, "gpu", _GPU_FIELDS, optional=_OPTIONAL), late=gpus.cache_info().currsize)


def register_models(path: str | Path) -> None:
    """Add the networks of a file in the form of `data/workloads.csv`, before anything reads the catalogue.

    A plug-in of `heshare.workloads` calls it when it is imported. Their load is `none`: task sets by MISO's recipe are
    drawn from the networks of Table IV alone.

    Raises:
        InputError: a bad file, a network with a load class, or something has read the catalogue already.
    """
    facts = _read_models(Path(path))
    for name, fact in facts.items():
        if fact["load"] != "none":
            found, action = f"{name} with the load {fact['load']}", "Write none; give its tasks as a file or a list."
            raise InputError(found, "the load none", action, file=path, column="load")
    _register("workload", path, facts, late=models.cache_info().currsize)


def registered_files() -> list[Path]:
    """Return the files of plug-ins, whose hashes show whether results of their GPUs and networks are out of date."""
    gpus(), models()  # loads the plug-ins
    return [*_MORE["gpu"], *_MORE["workload"]]


def _register(key: str, path: str | Path, facts: dict[str, dict[str, Any]], *, late: int) -> None:
    if late:
        found, action = f"{', '.join(facts)} after the catalogue was read", "Call it first, or by an entry point."
        raise InputError(found, "entries from the start", action, file=path, column=key)
    _MORE[key].append(Path(path))


def _joined(
    paths: Sequence[Path], key: str, read: Callable[[Path], dict[str, dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    joined: dict[str, dict[str, Any]] = {}
    for path in paths:
        facts = read(path)
        for name in facts:
            if name in joined:
                raise InputError(f"{name} again", "one description a name", "Rename it.", file=path, column=key)
        joined |= facts
    return joined


def gpu(name: str) -> Gpu:
    """Return the GPU of that name, in upper or lower case, with or without hyphens and spaces, or an `InputError`."""
    if isinstance(name, str):
        card = gpus().get(name) or _gpus_by_letters().get(_letters(name))
        if card is not None:
            return card
    raise unknown(name, gpus(), "Choose one, or describe the GPU in data/gpus.csv.", column="gpu")


def check_card(card: Gpu) -> None:
    """Refuse a GPU for which the emulated devices and the trained predictors would take another card's constants.

    They know a card by its name. Of the object itself they use memory, clocks up to the same top clock, TDP, MPS
    clients and MIG slices.

    Raises:
        InputError: a name that is not in the catalogue, or other properties than the catalogue has for it.
    """
    known = gpus().get(card.name)
    changed = [name for name in _BY_NAME if known is not None and getattr(card, name) != getattr(known, name)]
    if known is not None and card.max_mhz != known.max_mhz:
        changed.append("top clock")  # the laws' clocks are relative to it
    if known is None or changed:
        found = f"a GPU {card.name!r} with another {', '.join(changed)}" if changed else f"a GPU {card.name!r}"
        action = "Write its rows to a CSV file as in data/gpus.csv, under a name of its own, and call register_gpus."
        raise InputError(found, "a GPU as the catalogue describes it (hs.gpus())", action, column="cluster")


@cache
def _gpus_by_letters() -> dict[str, Gpu]:
    return {_letters(name): card for name, card in reversed(gpus().items())}


def _letters(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def model(name: str) -> Model:
    """Return the model of that name; an `InputError` lists the known ones."""
    try:
        return models()[name]
    except KeyError:
        action = "Choose one, or describe the workload in data/workloads.csv."
        raise unknown(name, models(), action, column="workload") from None


@cache
def kind(model_name: str) -> str:
    """Return the kind of a network, one of `KINDS`; `cnn` for one that is not in the catalogue."""
    return models()[model_name].kind if model_name in models() else "cnn"


@cache
def shape(model_name: str) -> LanguageModel | None:
    """Return the shape of a language model; None for other networks, and for one that is not in the catalogue.

    Raises:
        InputError: a decoder without a shape that is too large for the law of other networks.
    """
    facts = models().get(model_name)
    if facts is None or facts.language is not None:
        return None if facts is None else facts.language
    good = not (facts.kind == DECODE and facts.params_m > LARGEST_DECODE_M)
    found = f"{model_name}, which decodes with {facts.params_m:g} million parameters, without {', '.join(_SHAPE)}"
    expected = f"these for more than {LARGEST_DECODE_M:g} million: the law of smaller decoders reads no parameters"
    require(
        "workload", found, good, expected, "Add the rows to its description (docs/adding.md, Add a language model)."
    )
    return None


def load_class(model_name: str) -> str:
    """Return the load class of a network (Section V-B), `low`, `medium` or `high`; `none` for one without."""
    return models()[model_name].load if model_name in models() else "none"


def resident(text: str, /, *, precision: str = DEFAULT_PRECISION, engine: str = "eager") -> Resident:
    """Return the resident of a text such as `resnet50:16@50`; an `InputError` for another form or an unknown model."""
    parsed = parse_resident(text, precision=precision, engine=engine)
    memory_mib(parsed.workload)  # raises for an unknown model
    return parsed


@cache
def memory_mib(workload: Workload) -> float:
    """Return the device memory that a process running this workload needs, mem_i of Section III-C, MiB."""
    if workload.phase == INFERENCE:
        facts = model(workload.model)
        if facts.language is not None:
            return facts.language.memory_mib(workload.batch_size, workload.precision)
        return facts.memory_fixed_mib + facts.memory_per_sample_mib * workload.batch_size
    return _phase(workload).memory_mib(workload)


def parallel_speed(task: Task, gpus: int, /) -> float:
    """Return the throughput of a task on `gpus` GPUs over that on `task.gpus` GPUs."""
    efficiency, own_efficiency = (
        1.0 if task.workload.phase == INFERENCE else _phase(task.workload).efficiency(task.workload, width)
        for width in (gpus, task.gpus)
    )
    return gpus * efficiency / (task.gpus * own_efficiency)


@dataclass(frozen=True)
class Phase:
    """Memory and scaling of the workloads of a phase other than inference, such as training.

    Attributes:
        memory_mib: device memory of a process that runs a workload, MiB; raises `InputError` for an unknown one.
        efficiency: throughput per GPU of a workload on so many GPUs over that on one, in (0, 1].
    """

    memory_mib: Callable[[Workload], float]
    efficiency: Callable[[Workload, int], float]


_PHASES: dict[str, Phase] = {}


def register_phase(name: str, phase: Phase) -> None:
    """Register the memory and scaling of a phase other than inference."""
    _PHASES[name] = phase


def _phase(workload: Workload) -> Phase:
    if workload.phase not in _PHASES:
        plugins.load(plugins.WORKLOADS, workload.phase)
    if workload.phase not in _PHASES:
        found, expected = f"{workload}, a workload of the phase {workload.phase}", "a workload of the phase "
        action = "Install the plug-in that registers the phase."
        raise InputError(found, expected + " or ".join((INFERENCE, *_PHASES)), action, column="workload")
    return _PHASES[workload.phase]
