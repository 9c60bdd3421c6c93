"""Catalogue of the GPUs of `data/gpus.csv` (Table III) and the models of `data/workloads.csv` (Table IV), by name.

Both files have one value a row, with its unit, source and confidence.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from heshare.shared import files, plugins
from heshare.shared.errors import InputError, require, unknown
from heshare.world.fact_table import CLOCKS, TEXT, WHOLE, Field, read_facts
from heshare.world.gpu import ARCHITECTURES, Gpu
from heshare.world.language_model import DECODE, LARGEST_DECODE_M, PREFILL, SHAPE_KINDS, LanguageModel
from heshare.world.task import Task
from heshare.world.workload import DEFAULT_PRECISION, KINDS, LOADS, Model, Resident, Workload, parse_resident

PAPER_GPUS = ("T4", "V100", "A100")
"""The GPUs of Table III, in its order: the paper's figures and the shipped profiles are of these."""
INFERENCE = "inference"
"""The phase of the workloads of Table IV."""

_GPU_FIELDS = {
    "title": Field(TEXT),
    "architecture": Field(TEXT, names=ARCHITECTURES, action="Describe an NVIDIA GPU: others have no MPS and no MIG."),
    "sm_count": Field(WHOLE, 1, 1000),
    "cuda_cores": Field(WHOLE, 64, 100_000),
    "memory_mib": Field("MiB", 1000, 2e6),
    "mem_bw_gbs": Field("GB/s", 10, 50_000),
    "l2_mib": Field("MiB", 0.1, 500),
    "fp32_tflops": Field("TFLOP/s", 0.1, 1000),
    "fp16_tflops": Field("TFLOP/s", 0.01, 20_000),
    "tdp_w": Field("W", 5, 3000),
    "idle_w": Field("W", 0.5, 500),
    "clocks_mhz": Field(CLOCKS, 50, 5000),
    "mps_clients": Field(WHOLE, 1, 1000),
    "mig_slices": Field(WHOLE, 1, 100),
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
    "title": Field(TEXT),
    "description": Field(TEXT),
    "load": Field(TEXT, names=LOADS),
    "kind": Field(TEXT, names=(*KINDS, PREFILL)),
    "layers": Field(WHOLE, 1, 100_000),
    "params_m": Field("1e6", 1e-6, 1e7),
}
_SIZES = {
    "gflops": Field("GFLOP/sample", 1e-5, 1e6),
    "activations_m": Field("1e6/sample", 1e-6, 1e5),
    "memory_fixed_mib": Field("MiB", 10, 1e7),
    "memory_per_sample_mib": Field("MiB/sample", 1e-5, 1e6),
}
"""Fields of a network that has no shape of a language model, from which they follow."""
_SHAPE = {
    "heads": Field(WHOLE, 1, 10_000),
    "kv_heads": Field(WHOLE, 1, 10_000),
    "head_dim": Field(WHOLE, 1, 100_000),
    "context": Field("tokens", 1, 1e9),
}
_SHAPE_OPTIONS = {
    "active_params_m": Field("1e6", 1e-6, 1e7),
    "embedding_m": Field("1e6", 0, 1e6),
    "full_layers": Field(WHOLE, 0, 100_000),
    "window_layers": Field(WHOLE, 0, 100_000),
    "window": Field(WHOLE, 1, 1e9),
    "state_mib": Field("MiB", 0, 1e6),
    "experts": Field(WHOLE, 1, 100_000),
    "experts_used": Field(WHOLE, 1, 100_000),
    "weight_bytes": Field("B", 0.1, 8),
}


_Facts = dict[str, dict[str, Any]]
"""Values by name and field."""


@cache
def gpus() -> dict[str, Gpu]:
    """Return every GPU of `data/gpus.csv` by name, in the file's order, and those of plug-ins behind them."""
    plugins.load_others(plugins.DEVICE_MODELS)
    return {name: Gpu(name=name, **fact) for name, fact in _known("gpu").items()}


@cache
def models() -> dict[str, Model]:
    """Return every model of `data/workloads.csv` (Table IV) by name, in the file's order, then those of plug-ins."""
    plugins.load_others(plugins.WORKLOADS)
    return {name: Model(name=name, **fact) for name, fact in _known("workload").items()}


def _read_gpus(path: Path) -> _Facts:
    facts = read_facts(path, "gpu", _GPU_FIELDS, optional=_OPTIONAL)
    for name, fact in facts.items():
        found = f"idle_w {fact['idle_w']:g} W and tdp_w {fact['tdp_w']:g} W of {name}"
        good = fact["idle_w"] < fact["tdp_w"]
        require("value", found, good, "an idle power below the limit", "Correct one of them.", file=path)
    return facts


def _read_models(path: Path) -> _Facts:
    more = {**_SIZES, **_SHAPE, **_SHAPE_OPTIONS}
    facts = read_facts(path, "workload", {**_MODEL_FIELDS, **more}, optional=tuple(more))
    return {name: _described(path, name, fact) for name, fact in facts.items()}


def _described(path: Path, name: str, fact: dict[str, Any]) -> dict[str, Any]:
    # The fields of `Model`: those that the file gives, or those that follow from the shape of a language model.
    shaped = fact["kind"] == PREFILL or not _SHAPE.keys().isdisjoint(fact)
    missing = [field for field in (_SHAPE if shaped else _SIZES) if field not in fact]
    if missing or (shaped and fact["kind"] not in SHAPE_KINDS):
        found = f"{name} of the kind {fact['kind']} without {', '.join(missing) or 'tokens to decode or prompts'}"
        needed = f"{', '.join(_SHAPE)} of a language model (kind {' or '.join(SHAPE_KINDS)}), or {', '.join(_SIZES)}"
        raise InputError(found, needed, "Add the rows, with unit and source.", file=path, column="field")

    if not shaped:
        return {field: value for field, value in fact.items() if field in _MODEL_FIELDS or field in _SIZES}

    own = {field: fact.pop(field) for field in (*_SHAPE, *_SHAPE_OPTIONS, *_SIZES) if field in fact}
    try:
        shape = LanguageModel.of(fact, own)
    except InputError as error:
        found = f"{error.found} for {name}"
        raise InputError(found, error.expected, error.action, file=path, column=error.column) from None

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


_READ: dict[str, Callable[[Path], _Facts]] = {"gpu": _read_gpus, "workload": _read_models}
_SHIPPED = {"gpu": "gpus.csv", "workload": "workloads.csv"}
_MORE: dict[str, dict[Path, _Facts]] = {"gpu": {}, "workload": {}}
"""What plug-ins have registered, by file."""


def register_gpus(path: str | Path) -> None:
    """Add the GPUs of a file in the form of `data/gpus.csv`, at any time.

    A plug-in of `heshare.device_models` calls it when it is imported. The device model derives what was not measured.
    A GPU that is known already with the same values is passed over, so that a cell of a notebook can run again.

    Raises:
        InputError: a bad file, or a known name with other values.
    """
    _register("gpu", Path(path), _read_gpus(Path(path)))


def register_models(path: str | Path) -> None:
    """Add the networks of a file in the form of `data/workloads.csv`, as `register_gpus` adds GPUs.

    A plug-in of `heshare.workloads` calls it when it is imported. Their load is `none`: task sets by MISO's recipe are
    drawn from the networks of Table IV alone.

    Raises:
        InputError: a bad file, a network with a load class, or a known name with other values.
    """
    facts = _read_models(Path(path))
    for name, fact in facts.items():
        if fact["load"] != "none":
            found, action = f"{name} with the load {fact['load']}", "Write none; give its tasks as a file or a list."
            raise InputError(found, "the load none", action, file=path, column="load")
    _register("workload", Path(path), facts)


def registered_files() -> list[Path]:
    """Return the files of plug-ins, whose hashes show whether results of their GPUs and networks are out of date."""
    gpus(), models()  # loads the plug-ins
    return [*_MORE["gpu"], *_MORE["workload"]]


def _known(key: str) -> _Facts:
    # The shipped file's, then those of plug-ins.
    joined = _READ[key](files.data(_SHIPPED[key]))
    for facts in _MORE[key].values():
        joined |= facts
    return joined


def _register(key: str, path: Path, facts: _Facts) -> None:
    known = _known(key)
    for name in (each for each in facts if each in known):
        changed = [
            field for field in facts[name].keys() | known[name] if facts[name].get(field) != known[name].get(field)
        ]
        found, action = (
            f"{name} with another {', '.join(sorted(changed))}",
            "Choose another name, or start Python again.",
        )
        require(key, found, not changed, "one description a name", action, file=path)

    new = {name: fact for name, fact in facts.items() if name not in known}
    if new:
        _MORE[key][path] = {**_MORE[key].get(path, {}), **new}
        for clear in _DEPENDENT:
            clear()


def cleared_by_registrations(*caches: Any) -> None:
    """Clear these caches (of `functools`) whenever a GPU or network is registered: they depend on the catalogue."""
    _DEPENDENT.extend(cached.cache_clear for cached in caches)


_DEPENDENT: list[Callable[[], None]] = []


def gpu(name: str) -> Gpu:
    """Return the GPU of that name, in upper or lower case, with or without hyphens and spaces, or an `InputError`."""
    if isinstance(name, str):
        card = gpus().get(name) or _gpus_by_letters().get(_letters(name))
        if card is not None:
            return card
    action = "Choose one, or add the GPU: register_gpus in a script, an entry point for commands (docs/adding.md)."
    raise unknown(name, gpus(), action, column="gpu")


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
        action = "Choose one, or add it: register_models in a script, an entry point for commands (docs/adding.md)."
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


cleared_by_registrations(gpus, models, _gpus_by_letters, kind, shape, memory_mib)
