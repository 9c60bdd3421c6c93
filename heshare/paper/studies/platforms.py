"""Variants of the emulated GPUs and of the task sizes: devices, predictors and task sets of a harness's `Setting`.

Where the GPUs differ, every policy uses a forest that was trained on a profile of those GPUs. The profile is recorded
like the shipped ones, but with one visit to each setting.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from heshare.devices.constants import Constants, Contention, Timing, default
from heshare.devices.device import Device
from heshare.devices.device_model import co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.devices.noise import POWER_CV, TIME_CV, NoiseModel
from heshare.devices.task_sizes import draw as recipe
from heshare.devices.task_sizes import time_alone_s
from heshare.lab.calibration.power_fit import t4_power_curve
from heshare.ops.recording.regenerate_profiles import GPUS
from heshare.paper.claims.paper_claims import paper_claims
from heshare.prediction.features import ReferenceFeatures
from heshare.prediction.forest import Forest, ForestPredictor, train_forest
from heshare.prediction.record_predictor import PredictionCache
from heshare.profiles import design, store
from heshare.profiles.design import Point
from heshare.profiles.recorder import record
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared import files
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_set import PERCENTILES, helios_durations_s, task_set
from heshare.world.workload import Resident, Workload

AS_FITTED = "as fitted"
"""The platform of the calibrated constants."""
PART = design.split_evenly(design.SAMPLES, len(GPUS))[0]
"""Number of samples of a GPU."""
BURST = 4
"""Number of tasks in a burst."""
BURST_INTERVAL_S = 300.0
"""Mean time between two tasks where they arrive in bursts, s."""
HEAVY_SIGMA = 1.5
"""Standard deviation of the logarithm of the heavy-tailed durations."""
Change = Callable[[Constants], Constants]


DYNAMIC, IDLE = ("dynamic_w", "clock_w", "idle_clock_w"), ("idle_w", "parked_w")
"""Power above idle of SMs and of clocks, and power of a GPU that does nothing, with and without a context."""


@cache
def _ranges() -> Mapping[tuple[str, ...], tuple[float, float]]:
    table = pd.read_csv(files.data("calibration", "constants.csv"), keep_default_na=False)
    keys = table[["kind", "gpu", "engine", "workload", "name"]].itertuples(index=False, name=None)
    return dict(zip(keys, zip(table["low"].astype(float), table["high"].astype(float), strict=True), strict=True))


def ends(gpu: str, name: str) -> tuple[float, float]:
    """Return the low and the high end of a constant of a GPU's power, from `data/calibration/constants.csv`."""
    return _ranges()["power", gpu, "", "", name]


def with_shifted_times(model: str, sign: int) -> Constants:
    """Return constants in which a model's times are shifted by their standard uncertainty.

    With `sign` 1 it is slower on T4 and V100 and faster on the A100; with -1 it is the reverse.
    """
    known = default()
    off = {gpu: 1 + known.timing[gpu, "eager", model].total_uncertainty for gpu in GPUS}
    factors = {gpu: size ** (-sign if gpu == "A100" else sign) for gpu, size in off.items()}

    timing = {
        key: _scaled(each, factors[key[0]]) if key[2] == model and key[0] in factors else each
        for key, each in known.timing.items()
    }
    return replace(known, timing=timing)


def _scaled(timing: Timing, factor: float) -> Timing:
    return replace(timing, **{name: factor * s for name, s in asdict(timing).items() if name.endswith("_s")})


def _host(factor: float) -> Change:
    def scaled(rows: Mapping[tuple[str, str, str], Timing]) -> dict[tuple[str, str, str], Timing]:
        return {key: replace(each, host_s=factor * each.host_s) for key, each in rows.items()}

    return lambda known: replace(known, timing=scaled(known.timing), half_timing=scaled(known.half_timing))


def _published_ratio(known: Constants) -> Constants:
    """Return constants with a faster T4: at inference batch size 8 ResNet-50's time over the A100's is the paper's."""
    of = (Resident(Workload("resnet50", 8)),)
    t4, a100 = (co_run(catalogue.gpu(gpu), of, constants=known).tasks[0].time_s for gpu in ("T4", "A100"))
    factor = paper_claims()["M2", ""].value * a100 / t4
    timing = {key: _scaled(each, factor) if key[0] == "T4" else each for key, each in known.timing.items()}
    return replace(known, timing=timing)


def _at_end(names: Sequence[str], end: int, gpus: Sequence[str] = GPUS) -> Change:
    """Return the change of constants of the power of `gpus` to their low (0) or high (1) ends.

    With the dynamic power goes that of each class of load. The T4's idle power and lowest voltage are assumptions; its
    dynamic power follows from them, so that the clock that was measured under its limit stays the same
    (`t4_power_curve`).
    """

    def changed(known: Constants) -> Constants:
        for gpu in gpus:
            moved = {name: ends(gpu, name)[end] for name in names if ("power", gpu, "", "", name) in _ranges()}
            if gpu == "T4" and "dynamic_w" not in moved:
                power = known.power[gpu]
                assumed = {name: moved.get(name, getattr(power, name)) for name in ("idle_w", "v_min")}
                moved["dynamic_w"] = t4_power_curve(power.memory, **assumed).dynamic_w
            known = known.with_power(gpu, **moved)
        return _loads_at_end(known, end, gpus) if "dynamic_w" in names else known

    return changed


def _loads_at_end(known: Constants, end: int, gpus: Sequence[str]) -> Constants:
    """Return constants with every load at its end; the intensity of CNNs on CUDA cores is 1 by definition."""
    loads = {}
    for (gpu, kind, precision), load in known.loads.items():
        names = ["operations_s", "traffic_s"] if kind == "cnn" else ["intensity"]
        keys = {name: ("load", gpu, precision, kind, name) for name in names if gpu in gpus}
        loads[gpu, kind, precision] = replace(
            load, **{name: _ranges()[key][end] for name, key in keys.items() if key in _ranges()}
        )
    return replace(known, loads=loads)


def _t4(end: int) -> Change:
    return _at_end((*IDLE, "v_min"), end, ("T4",))


def scaled_contention(factor: float) -> Change:

    def scaled(contention: Contention) -> Contention:
        return replace(contention, strength=factor * contention.strength, wait_s=factor * contention.wait_s)

    return lambda known: replace(known, contention={gpu: scaled(each) for gpu, each in known.contention.items()})


def _turns(part: float) -> Change:
    def changed(known: Constants) -> Constants:
        contention = {gpu: replace(each, memory=part, busy=part) for gpu, each in known.contention.items()}
        return replace(known, contention=contention)

    return changed


def scaled_power(name: str, factor: float) -> Change:

    def changed(known: Constants) -> Constants:
        for gpu, power in known.power.items():
            known = known.with_power(gpu, **{name: factor * getattr(power, name)})
        return known

    return changed


PLATFORMS: Mapping[str, tuple[tuple[str, ...], Change]] = {
    "idle-low": (GPUS, _at_end(IDLE, 0)),
    "idle-high": (GPUS, _at_end(IDLE, 1)),
    "dynamic-low": (GPUS, _at_end(DYNAMIC, 0)),
    "dynamic-high": (GPUS, _at_end(DYNAMIC, 1)),
    "voltage-low": (GPUS, _at_end(("v_min",), 0)),
    "voltage-high": (GPUS, _at_end(("v_min",), 1)),
    "t4-low": (("T4",), _t4(0)),
    "t4-high": (("T4",), _t4(1)),
    "v100-low": (("V100",), _at_end(DYNAMIC, 0, ("V100",))),
    "v100-high": (("V100",), _at_end(DYNAMIC, 1, ("V100",))),
    "a100-low": (("A100",), _at_end(DYNAMIC, 0, ("A100",))),
    "a100-high": (("A100",), _at_end(DYNAMIC, 1, ("A100",))),
    "contention-x0.5": (GPUS, scaled_contention(0.5)),
    "contention-x5": (GPUS, scaled_contention(5.0)),
    "turns-least": (GPUS, _turns(0.0)),
    "turns-most": (GPUS, _turns(1.0)),
    "co-run-x0.5": (GPUS, scaled_power("sharing", 0.5)),
    "co-run-x2": (GPUS, scaled_power("sharing", 2.0)),
    "gpt2-apart": (GPUS, lambda _: with_shifted_times("gpt2", 1)),
    "gpt2-close": (GPUS, lambda _: with_shifted_times("gpt2", -1)),
    "host-x0": (GPUS, _host(0.0)),
    "host-x2": (GPUS, _host(2.0)),
    "t4-published-ratio": (("T4",), _published_ratio),
}
"""By name: the GPUs that the platform changes, and the change of the calibrated constants.

Contention and the extra power of co-running work were measured on one V100 only, and taking turns on an A100 with two
copies of one workload; nothing bounds their range on other GPUs, so that the factors and ends are assumptions.
"""


@cache
def constants(platform: str) -> Constants:
    if platform not in PLATFORMS:
        raise InputError(repr(platform), ", ".join(PLATFORMS), "Choose one.", column="platform")
    return PLATFORMS[platform][1](default())


def moved(platform: str, gpu: str) -> str:
    """Return the constants of a GPU's power, contention and GPT-2 that a platform moves, such as `idle_w 28 to 22`."""
    pairs = [
        (asdict(one.power[gpu]) | asdict(one.contention[gpu]) | asdict(one.timing[gpu, "eager", "gpt2"]))
        for one in (default(), constants(platform))
    ]
    both = zip(pairs[0].items(), pairs[1].values(), strict=True)
    return ", ".join(f"{name} {old:.3g} to {new:.3g}" for (name, old), new in both if old != new)


def devices(platform: str, cluster: Cluster) -> Sequence[Device]:
    known = constants(platform)
    return [EmulatedDevice(gpu, sleep_w=known.power[gpu.name].parked_w, constants=known) for gpu in cluster.gpus]


def predictor(platform: str) -> ForestPredictor:
    """Return the predictor of all policies on a platform: the paper's forest, trained on a profile of it.

    All predictors of a platform share their cache; as in `load_forest_predictor`, predictions and calls are the same.
    """
    return ForestPredictor(*_trained(platform))


@cache
def _trained(platform: str) -> tuple[Forest, ReferenceFeatures, PredictionCache]:
    shipped, changed = _shipped(), PLATFORMS[platform][0]
    anew = [profile(name, constants(platform)) for name in changed]
    return *train_forest(pd.concat([shipped[~shipped["gpu"].isin(changed)], *anew], ignore_index=True), seed=0), {}


_shipped = cache(store.read_shipped)


def profile(gpu: str, known: Constants, *, seed: int = 0) -> pd.DataFrame:
    """Return a recorded profile of a GPU with given constants, by the design of the shipped ones, one visit each."""
    card, noise = catalogue.gpu(gpu), np.random.default_rng(np.random.SeedSequence([seed, *gpu.encode(), 1]))
    points = design.references(card) + list(_samples(gpu, seed))
    device = EmulatedDevice(card, noise=NoiseModel(rng=noise, time_cv=TIME_CV, power_cv=POWER_CV), constants=known)
    return record(device, points, protocol=MeasurementProtocol(repeats=1), seed=seed, progress=False)


@cache
def _samples(gpu: str, seed: int) -> tuple[Point, ...]:
    rng = np.random.default_rng(np.random.SeedSequence([seed, *gpu.encode(), 0]))
    return tuple(design.samples(catalogue.gpu(gpu), PART, rng=rng))


HELIOS, EQUAL, HEAVY, WITHOUT_GPT2, BURSTS = "helios", "equal", "heavy", "without-gpt2", "bursts"
DURATIONS = (HELIOS, EQUAL, HEAVY, WITHOUT_GPT2, BURSTS)
"""Kinds of task sets: durations by MISO's recipe from Helios; all equal, of the same mean; log-normal, of the same mean;
by the recipe with BERT Large in place of GPT-2; by the recipe, arriving four at a time."""


def draw(kind: str, n: int, *, rng: np.random.Generator, **how: Any) -> tuple[Task, ...]:
    """Return a task set that differs in one thing from the recipe's for the same random state.

    `how` are the other arguments of `heshare.devices.task_sizes.draw`.

    Raises:
        InputError: no such kind.
    """
    if kind not in DURATIONS:
        raise InputError(repr(kind), ", ".join(DURATIONS), "Choose one.", column="durations")

    if kind == HELIOS:
        return tuple(recipe(n, rng=rng, **how))
    if kind == WITHOUT_GPT2:
        return _without_gpt2(n, rng, how)
    if kind == BURSTS:
        return _bursts(n, rng, how)

    # As many percentiles as the recipe's: the same random state draws the same models, and durations of the same rank.
    return task_set(n, rng=rng, time_alone_s=time_alone_s, percentiles=durations_s(kind), **how)


def _without_gpt2(n: int, rng: np.random.Generator, how: Mapping[str, Any]) -> tuple[Task, ...]:
    return tuple(_bert_for_gpt2(task) for task in recipe(n, rng=rng, **how))


def _bert_for_gpt2(task: Task) -> Task:
    if task.workload.model != "gpt2":
        return task

    instead = replace(task.workload, model="bert_large")
    scale = time_alone_s(task.workload) / time_alone_s(instead)
    return replace(task, workload=instead, iterations=task.iterations * scale)


def durations_s(kind: str) -> FloatArray:
    """Return durations, s, all equal or heavy-tailed; their number and mean are those of Helios' percentiles."""
    mean_s = helios_durations_s().mean()
    if kind == EQUAL:
        return np.full(PERCENTILES, mean_s)

    quantiles = (np.arange(PERCENTILES) + 0.5) / PERCENTILES
    drawn = np.exp(HEAVY_SIGMA * np.asarray(ndtri(quantiles), dtype=np.float64))
    return np.asarray(drawn * (mean_s / drawn.mean()))


def _bursts(n: int, rng: np.random.Generator, how: Mapping[str, Any]) -> tuple[Task, ...]:
    tasks = recipe(n, rng=rng, **how)
    steps_s = rng.poisson(BURST * BURST_INTERVAL_S, size=-(-n // BURST))
    at_s = np.cumsum(steps_s).astype(float)
    return tuple(replace(task, arrival_s=float(at_s[place // BURST])) for place, task in enumerate(tasks))
