"""Resolution of names and JSON values in a cell's description to predictors, devices, tasks and clusters.

With names in place of objects a cell can be sent to another process and recognised when it comes again. A name of the
form `module:function` is that function, imported where the cell runs; the module's source is part of the cell's key.
`module:function:text` is the same function with a text as its first argument.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from heshare.devices.device import Device
from heshare.devices.task_sizes import draw as recipe
from heshare.policies import registry
from heshare.prediction.checked import checked
from heshare.prediction.load import PREDICTOR_KINDS, TREES, load_predictor, train
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.prediction.profile_predictor import ProfilePredictor, Trained
from heshare.profiles import store
from heshare.shared import plugins
from heshare.shared.code_version import files_hash
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

GIVEN = "given"
"""The name of a predictor that is an object, in this process alone."""
_GIVEN: dict[str, Predictor] = {}
TRUTH, PROFILE = "truth", "profile:"
EMULATED, RECIPE, SHIPPED = "emulated", "recipe", "shipped"
DrawTasks = Callable[..., Sequence[Task]]
MakePredictor = Callable[[], Predictor]
MakeDevices = Callable[[Cluster], Sequence[Device]]


def predictor_maker(name: str) -> MakePredictor:
    """Return the function that makes the predictor of that name.

    Raises:
        InputError: an unknown name.
    """
    if name in _GIVEN:
        return lambda: _GIVEN[name]
    if name in PREDICTOR_KINDS:
        return partial(load_predictor, kind=name)
    if name == TRUTH:
        return DevicePredictor
    if name.startswith(PROFILE):
        path = name.removeprefix(PROFILE)
        digest = files_hash(_tables(path))
        return partial(ProfilePredictor, partial(_trained, path, digest))
    if ":" not in name:
        known = ", ".join((*PREDICTOR_KINDS, TRUTH, "profile:PATH"))
        raise InputError(repr(name), f"{known} or module:function", "Choose one.", column="predictors")
    make = _function(name)
    return lambda: checked(make())


@contextmanager
def given_predictor(predictor: Predictor | None) -> Iterator[str]:
    """Give a predictor a name of grids meanwhile; None is the default."""
    if predictor is None:
        yield TREES
        return
    _GIVEN[GIVEN] = predictor
    try:
        yield GIVEN
    finally:
        del _GIVEN[GIVEN]


def device_maker(name: str) -> MakeDevices | None:
    """Return the function that makes the devices of a cluster; None for the emulated ones."""
    return None if name == EMULATED else _function(name)


def task_drawer(name: str) -> DrawTasks:
    return recipe if name == RECIPE else _function(name)


def _function(name: str) -> Callable[..., Any]:
    module, _, rest = name.partition(":")
    function_name, _, text = rest.partition(":")
    function = plugins.function(f"{module}:{function_name}", "grid")
    return partial(function, text) if text else function


def source_hashes(names: Iterable[str]) -> dict[str, str]:
    """Return the hashes, by name, of profiles and traces that names refer to, and of files of plug-ins.

    Raises:
        InputError: a file that does not exist.
    """
    by_name = {path.name: files_hash([path]) for path in catalogue.registered_files()}
    for name in names:
        if name.startswith(PROFILE):
            by_name[name] = files_hash(_tables(name.removeprefix(PROFILE)))
        elif not (_names_function(name) or name in (*PREDICTOR_KINDS, *_GIVEN, TRUTH, EMULATED, RECIPE, SHIPPED)):
            by_name[name] = files_hash([_existing(name)])
    return dict(sorted(by_name.items()))


def modules_of(names: Iterable[str]) -> list[str]:
    return sorted({name.partition(":")[0] for name in names if _names_function(name)})


def _names_function(name: str) -> bool:
    return ":" in name and not name.startswith(PROFILE) and not Path(name).is_file()


def policy_modules(policy: str) -> list[str]:
    """Return the module that registers a policy, and that of its name if it is `module:function`."""
    entry = registry.entry(policy)
    named = entry.name.partition(":")[0] if registry.names_function(entry.name) else ""
    return sorted({entry.factory.__module__, named} - {""})


def cluster_to_json(cluster: Cluster) -> list[Any]:
    """Return a cluster's GPUs: by name, or with all attributes where they differ from the catalogue's."""
    known = catalogue.gpus()
    return [gpu.name if known.get(gpu.name) == gpu else asdict(gpu) for gpu in cluster.gpus]


def cluster_from_json(values: Sequence[Any]) -> Cluster:
    gpus = [catalogue.gpu(each) if isinstance(each, str) else msgspec.convert(each, Gpu) for each in values]
    return Cluster(tuple(gpus))


def task_to_json(task: Task) -> dict[str, Any]:
    """Return a task's attributes that are not the defaults: an infinite deadline has no JSON."""
    sizes = {"iterations": float(task.iterations), "arrival_s": float(task.arrival_s)}
    return {**_not_default(task), **sizes, "workload": _not_default(task.workload)}


def _not_default(value: Task | Workload) -> dict[str, Any]:
    values = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
    changed = {name: own for name, (own, default) in values.items() if own != default}
    return {name: plain_number(own) if hasattr(own, "item") else own for name, own in changed.items()}


def plain_number(value: Any) -> Any:
    """Return Python's form of a number of NumPy, which has no JSON."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__}, which is neither a number nor text")


@cache
def _trained(path: str, digest: str) -> Trained:
    # The digest is an argument so that a profile that has changed is trained on again.
    return train(store.read(path), seed=0)


def _tables(path: str) -> list[Path]:
    folder = Path(path)
    return sorted(folder.rglob("profile.csv")) if folder.is_dir() else [_existing(path)]


def _existing(path: str) -> Path:
    if not Path(path).is_file():
        raise InputError("no such file", "a file", "Correct the path.", file=path)
    return Path(path)
