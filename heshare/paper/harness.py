"""Comparisons of the notebooks: settings, runs of systems on the same tasks, and paired changes.

A notebook gives a setting, the systems by title and the varied fields; `run` returns one row a setting, repetition and
system. Repetition i draws the same tasks for all systems of a setting, so changes are paired by repetition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pandas as pd
from tqdm import tqdm

from heshare.devices.device import Device
from heshare.devices.task_sizes import time_alone_s
from heshare.lab.sweeps.paired_changes import changes_of, seed_means
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct, median_interval
from heshare.lab.sweeps.sweep import Scenario, repetition
from heshare.paper.studies import platforms, sources, task_draws
from heshare.paper.studies.sources import Source
from heshare.policies import registry
from heshare.policies.policy import Policy
from heshare.prediction.load import load_predictor
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import DEFAULT_PRECISION

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ENERGY, CLUSTER, JCT = "energy_active_j", "energy_cluster_j", "avg_jct_s"
"""Energy of each GPU until its last task ends (the paper's), energy of all GPUs until the makespan, and average JCT."""
REPETITION, TITLE, PROVENANCE = "repetition", "title", "provenance"
WALL_TIME = "planning_s"
"""The column of `run` that differs from run to run; outputs leave it out."""
TREES, NEVER_WRONG = "trees", "never wrong"
"""The predictor of all policies: the default one, or the device model itself."""
_Setting = TypeVar("_Setting", bound="DataclassInstance")


class Comparable(Protocol):
    """The interface of a setting for `run`: tasks, GPUs, devices, predictor, and its columns in the rows."""

    @property
    def gpus(self) -> Cluster:
        """The GPUs."""

    def labels(self) -> dict[str, object]:
        """Return the columns that name the setting."""

    def draw(self, *, rng: np.random.Generator) -> Sequence[Task]:
        """Return the task set of one repetition."""

    def make_predictor(self) -> Predictor:
        """Return the predictor of all policies."""

    def make_devices(self, cluster: Cluster) -> Sequence[Device] | None:
        """Return the devices of the GPUs; None for the emulated ones as calibrated."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of a comparison: by default that of Fig. 6.

    Attributes:
        cluster: the GPUs, such as `4xT4,2xV100,2xA100`.
        tasks: number of tasks, which all arrive at the start.
        load: which workloads are drawn: `low`, `medium`, `high` or `mixed`.
        batch_sizes: inference batch sizes of drawn tasks.
        durations: task sizes, a key of `task_draws.KINDS`: `helios`, `equal`, ...
        precision: of the arithmetic of all tasks.
        platform: the emulated GPUs, a key of `platforms.PLATFORMS`: `as fitted`, ...; or a source of GPUs
            (`sources.read`), such as `recorded:H100`.
        predictor: `TREES` or `NEVER_WRONG`.
    """

    cluster: str = "4xT4,2xV100,2xA100"
    tasks: int = 60
    load: str = "mixed"
    batch_sizes: tuple[int, ...] = (4, 8)
    durations: str = task_draws.HELIOS
    precision: str = DEFAULT_PRECISION
    platform: str = platforms.AS_FITTED
    predictor: str = TREES

    @property
    def gpus(self) -> Cluster:
        """The GPUs; recorded ones have the recorded clocks only."""
        source = self._source
        return Cluster.parse(self.cluster) if source is None else source.gpus_of(self.cluster)

    @property
    def _source(self) -> Source | None:
        return None if self.platform in platforms.PLATFORMS else sources.read(self.platform)

    def labels(self) -> dict[str, object]:
        """Return every field as a column; inference batch sizes as text, such as `4+8`."""
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "batch_sizes": "+".join(map(str, self.batch_sizes))}

    def draw(self, *, rng: np.random.Generator) -> tuple[Task, ...]:
        """Return a task set. The time of a task alone on an A100 is the same in every precision."""
        drawn = task_draws.draw(self.durations, self.tasks, rng=rng, load=self.load, batch_sizes=self.batch_sizes)
        return self.in_precision(drawn)

    def in_precision(self, tasks: Iterable[Task]) -> tuple[Task, ...]:
        """Return tasks in the precision of the setting, as long alone on an A100 as they are."""
        return tuple(self._in_precision(task) for task in tasks)

    def _in_precision(self, task: Task) -> Task:
        if task.workload.precision == self.precision:
            return task

        workload = replace(task.workload, precision=self.precision)
        scale = time_alone_s(task.workload) / time_alone_s(workload)
        return replace(task, workload=workload, iterations=task.iterations * scale)

    def make_predictor(self) -> Predictor:
        """Return the predictor of all policies."""
        source = self._source
        if self.predictor == NEVER_WRONG:
            return (None if source is None else source.oracle()) or DevicePredictor()
        if source is not None:
            return source.predictor()
        if self.platform == platforms.AS_FITTED:
            return load_predictor()
        return platforms.predictor(self.platform)

    def make_devices(self, cluster: Cluster) -> Sequence[Device] | None:
        """Return the GPUs of the platform."""
        if self._source is not None:
            return self._source.devices(cluster)
        return None if self.platform == platforms.AS_FITTED else platforms.devices(self.platform, cluster)


def setting_on(source: Source, **of_setting: Any) -> Setting:
    """Return a setting on the GPUs of a source, whose tasks have the precision of its records."""
    return Setting(platform=source.platform, precision=source.precision, **of_setting)


def provenance_of(runs: pd.DataFrame) -> str:
    """Return the provenance of what is computed from runs: `fitted` if that of any run is."""
    is_fitted = PROVENANCE in runs and (runs[PROVENANCE] == sources.FITTED).any()
    return sources.FITTED if is_fitted else sources.EMULATED


def vary(setting: _Setting, **axes: Sequence[object]) -> list[_Setting]:
    """Return a setting, a dataclass, with every combination of the values of several of its fields.

    Raises:
        TypeError: the setting has no such field.
    """
    names = list(axes)
    return [replace(setting, **dict(zip(names, values, strict=True))) for values in product(*axes.values())]


def run(
    settings: Comparable | Iterable[Comparable],
    systems: Mapping[str, str | Policy],
    *,
    seeds: int,
    seed: int = 0,
    measures: Mapping[str, Callable[[Run], float]] | None = None,
    start_cost_s: float = 0.0,
) -> pd.DataFrame:
    """Return the runs of systems in each setting, on the same task sets.

    Args:
        settings: one setting or several.
        systems: policies, or their descriptions such as `morak(cap=1.0)`, by title.
        seeds: number of repetitions.
        seed: the seed of all repetitions; child i of `SeedSequence(seed)` is that of repetition i.
        measures: more columns by name, each a function of the run.
        start_cost_s: idle time of a task whenever it starts on a GPU, s.

    Returns:
        One row a setting, repetition and system: the setting's columns, repetition, title, the columns of
        `Run.summary` (J, s), of which `WALL_TIME` is wall time, and those of `measures`; provenance.
    """
    chosen: list[Comparable] = list(settings) if isinstance(settings, Iterable) else [settings]
    policies = [registry.make(each) if isinstance(each, str) else each for each in systems.values()]
    rows = []

    for setting, number in tqdm(list(product(chosen, range(seeds))), desc="task sets", leave=False):
        scenario = Scenario(
            setting.labels(),
            setting.gpus,
            setting.draw,
            setting.make_predictor,
            setting.make_devices,
            start_cost_s,
        )
        runs = repetition(scenario, policies, Repetition(number, seed))
        for title, result in zip(systems, runs, strict=True):
            more = {name: measure(result) for name, measure in (measures or {}).items()}
            found = {**setting.labels(), REPETITION: number, TITLE: title, **result.summary(), **more}
            rows.append({**found, PROVENANCE: result.provenance})

    return pd.DataFrame(rows)


def change(runs: pd.DataFrame, ours: str, theirs: str, metric: str) -> ConfidenceInterval:
    """Return by how many percent a metric of `ours` differs from that of `theirs`; -30 is a reduction of 30 %.

    Pairs are of one repetition; where there are several settings, the value of a repetition is the geometric mean over
    them. The interval is over repetitions alone, because settings share their task sets and are not independent.

    Returns:
        The median over repetitions with its interval.
    """
    means = seed_means(runs[runs[TITLE].isin([ours, theirs])], metric)
    return change_pct(means[ours], means[theirs])


def less_or_more(size: ConfidenceInterval) -> str:
    """Return a change in words, such as `18 % less`."""
    percent = round(abs(size.value))
    return f"{percent} % {'more' if size.value > 0 and percent else 'less'}"


def sizes_in_words(batch_sizes: Sequence[int]) -> str:
    """Return inference batch sizes for a caption: `inference batch sizes 4 and 8`."""
    plural = "s" if len(batch_sizes) > 1 else ""
    return f"inference batch size{plural} {' and '.join(map(str, batch_sizes))}"


def difference(runs: pd.DataFrame, ours: str, theirs: str, metric: str) -> ConfidenceInterval:
    """Return by how much a metric of `ours` is larger than that of `theirs`, in its unit, paired by repetition.

    The value of a repetition is the mean over the settings that have one.
    """
    means = runs.pivot_table(index=REPETITION, columns=TITLE, values=metric)
    return median_interval(means[ours] - means[theirs])


def ratios(runs: pd.DataFrame, ours: str, theirs: str, metric: str, cases: Sequence[str] = ()) -> pd.Series:
    """Return a metric of `ours` over that of `theirs`, paired by repetition and by the columns `cases`.

    Returns:
        A series with the repetition and the cases as its index.
    """
    keys = [REPETITION, *cases]
    numerator, denominator = (
        runs[runs[TITLE] == title].set_index(keys)[metric].astype(float) for title in (ours, theirs)
    )
    return numerator / denominator


def changes(
    runs: pd.DataFrame,
    ours: Iterable[str],
    theirs: Iterable[str],
    metrics: Iterable[str] = (ENERGY, JCT, CLUSTER),
    by: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the change of each system of `ours` against each of `theirs`, in each group of the columns `by`.

    Returns:
        One row each: the columns `by`, ours, theirs, metric, change_pct, low_pct, high_pct, n, provenance.
    """
    pairs = [(one, other) for one, other in product(list(ours), list(theirs)) if one != other]
    found = changes_of(runs, pairs, list(metrics), by, TITLE)
    return found.drop(columns="level_pct").assign(**{PROVENANCE: provenance_of(runs)})


def medians(runs: pd.DataFrame, metrics: Iterable[str], by: Sequence[str] = ()) -> pd.DataFrame:
    """Return the median of each metric over repetitions with its interval, by system and the columns `by`.

    Returns:
        One row each: the columns `by`, title, metric, median, low, high, n, provenance.
    """
    keys = [*by, TITLE]
    rows = []

    for key, part in runs.groupby(keys, sort=False):
        for metric in metrics:
            size = median_interval(part[metric])
            rows.append({**dict(zip(keys, key, strict=True)), "metric": metric, **size.columns("median")})

    return pd.DataFrame(rows).assign(**{PROVENANCE: provenance_of(runs)})
