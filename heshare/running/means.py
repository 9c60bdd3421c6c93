"""What a sweep names by text, so that a cell can be sent to another process and known again: beliefs, devices, draws.

A name of the form `module:function` is that function, imported where the cell runs; the module's source counts among
what the cell depends on. `module:function:text` is the same function with a text as its first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from heshare.errors import InputError
from heshare.policies import registry
from heshare.prediction import forest
from heshare.prediction.truth import DevicePredictor
from heshare.profiles import store
from heshare.running import fingerprint
from heshare.running.draw import draw as recipe
from heshare.running.repetition import MakeDevices, MakePredictor
from heshare.world import catalogue
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

PAPER, KEPT, TRUTH, PROFILE = "paper", "paper-kept", "truth", "profile:"
EMULATED, RECIPE, SHIPPED = "emulated", "recipe", "shipped"


def predictor(name: str) -> MakePredictor:
    """What makes a predictor of that name.

    Raises:
        InputError: nobody knows it.
    """
    if name in forest.KINDS:
        return partial(forest.load_predictor, kind=name)
    if name == KEPT:
        return forest.kept_predictor
    if name == TRUTH:
        return DevicePredictor
    if name.startswith(PROFILE):
        path = name.removeprefix(PROFILE)
        return partial(_of_profile, path, fingerprint.hash_of(_tables(path)))
    if ":" not in name:
        raise InputError(
            column="predictors",
            found=repr(name),
            expected=", ".join((*forest.KINDS, KEPT, TRUTH, "profile:PATH")) + " or module:function",
            action="Choose one.",
        )
    return _function(name)


def devices(name: str) -> MakeDevices | None:
    """What makes the devices of a cluster; None for the emulated ones."""
    return hook(name)


def draw(name: str) -> Callable[..., Any]:
    """What draws tasks."""
    return hook(name) or recipe


def hook(name: str) -> Callable[..., Any] | None:
    """The function of `module:function`; None for a default's name.

    Raises:
        InputError: no such module or function.
    """
    return None if name in (EMULATED, RECIPE) else _function(name)


def _function(name: str) -> Callable[..., Any]:
    module, _, rest = name.partition(":")
    function, _, text = rest.partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            column="grid", found=f"{name!r} ({error})", expected="module:function", action="Name one that exists."
        ) from None
    return partial(found, text) if text else found


def sources(names: Iterable[str]) -> dict[str, str]:
    """Hashes of what names stand for outside this package: profiles, traces and modules.

    Raises:
        InputError: a file or module that is not there.
    """
    found = {}
    for name in names:
        if name.startswith(PROFILE):
            found[name] = fingerprint.hash_of(_tables(name.removeprefix(PROFILE)))
        elif ":" in name and not Path(name).is_file():
            found[name] = fingerprint.source(name.partition(":")[0])
        elif name not in (*forest.KINDS, KEPT, TRUTH, EMULATED, RECIPE, SHIPPED):
            found[name] = fingerprint.hash_of([_existing(name)])
    return {name: digest for name, digest in sorted(found.items()) if digest}


def home(policy: str) -> str:
    """The module that registers a policy."""
    entry = registry.policies(variants=True).get(policy.partition("(")[0])
    return "" if entry is None else entry.factory.__module__


def gpus_as_list(cluster: Cluster) -> list[Any]:
    """A cluster's GPUs as JSON knows them: by name, or whole where they differ from the catalogue's."""
    known = catalogue.gpus()
    return [one.name if known.get(one.name) == one else asdict(one) for one in cluster.gpus]


def as_cluster(values: list[Any]) -> Cluster:
    """The cluster of `gpus_as_list`."""
    return Cluster(tuple(catalogue.gpu(one) if isinstance(one, str) else _gpu(one) for one in values))


def _gpu(values: dict[str, Any]) -> Gpu:
    return Gpu(**{**values, "clocks_mhz": tuple(values["clocks_mhz"])})


def as_list(task: Task) -> list[Any]:
    """A task as JSON knows it."""
    what = task.workload
    return [
        task.id,
        what.model,
        what.batch_size,
        what.precision,
        what.engine,
        float(task.iterations),
        float(task.arrival_s),
    ]


def as_task(values: list[Any]) -> Task:
    """The task of `as_list`."""
    number, model, batch_size, precision, engine, iterations, arrival_s = values
    return Task(number, Workload(model, batch_size, precision, engine), iterations, arrival_s)


def _of_profile(path: str, digest: str) -> forest.ForestPredictor:
    return forest.ForestPredictor(*_trained(path, digest))


@cache
def _trained(path: str, digest: str) -> tuple[forest.Forest, Any]:
    return forest.train(store.read(path), seed=0)


def _tables(path: str) -> list[Path]:
    place = Path(path)
    return sorted(place.rglob("profile.csv")) if place.is_dir() else [_existing(path)]


def _existing(path: str) -> Path:
    if not Path(path).is_file():
        raise InputError(file=path, found="no such file", expected="a file", action="Correct the path.")
    return Path(path)
