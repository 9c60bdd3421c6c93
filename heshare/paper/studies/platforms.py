"""Variants of the emulated GPUs: the calibrated device model with one assumption changed, its devices and predictor.

On each platform all policies use a predictor that was trained on a profile of that platform's GPUs. The profile is
recorded like the shipped ones, with one repeat of each setting.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants, Contention, default
from heshare.devices.device import Device
from heshare.devices.device_model import co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.devices.noise import POWER_CV, TIME_CV, NoiseModel
from heshare.devices.timing_effects import Key, Timing
from heshare.devices.uncertainty import ALONE
from heshare.paper.claims.paper_claims import paper_claims
from heshare.prediction.load import train
from heshare.prediction.profile_predictor import ProfilePredictor, Trained
from heshare.profiles import design, store
from heshare.profiles.design import Point
from heshare.profiles.recorder import record
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared import files
from heshare.shared.errors import unknown
from heshare.world import catalogue
from heshare.world.catalogue import PAPER_GPUS as GPUS
from heshare.world.cluster import Cluster
from heshare.world.workload import DEFAULT_PRECISION, Resident, Workload

AS_FITTED, T4_OF_FIG_2 = "as fitted", "T4 as in Fig. 2"
"""The calibrated constants; those with a T4 that is as fast, against an A100, as the paper's Fig. 2 says."""
SAMPLES = design.split_evenly(design.SAMPLES, len(GPUS))[0]
"""Number of sampled settings in the profile of a GPU."""
Change = Callable[[Constants], Constants]


@dataclass(frozen=True, slots=True)
class Platform:
    """A change of the calibrated constants, and the GPUs that it concerns."""

    gpus: tuple[str, ...]
    change: Change


DYNAMIC, IDLE = ("dynamic_w", "clock_w", "idle_clock_w"), ("idle_w", "parked_w")
"""Power above idle of SMs and of clocks; power of a GPU that does nothing, with and without a context."""
LOW, HIGH = 0, 1
"""The ends of a constant's range in `data/calibration/constants.csv`."""


@cache
def _ranges() -> Mapping[tuple[str, ...], tuple[float, float]]:
    table = pd.read_csv(files.data("calibration", "constants.csv"), keep_default_na=False)
    keys = table[["kind", "gpu", "engine", "workload", "name"]].itertuples(index=False, name=None)
    ends = zip(table["low"].astype(float), table["high"].astype(float), strict=True)
    return dict(zip(keys, ends, strict=True))


def power_range(gpu: str, name: str) -> tuple[float, float]:
    """Return the low and the high end of a constant of a GPU's power."""
    return _ranges()["power", gpu, "", "", name]


def _power_at(end: int, names: Sequence[str], gpus: Sequence[str] = GPUS) -> Platform:
    """Return the platform with constants of the power of `gpus` at the low or high ends of their ranges.

    The others stay: with another idle power or lowest voltage, a GPU keeps its dynamic power.
    """

    def change(known: Constants) -> Constants:
        for gpu in gpus:
            known = known.with_power(gpu, **{name: power_range(gpu, name)[end] for name in names})
        return known

    return Platform(tuple(gpus), change)


def _contention(change_one: Callable[[Contention], Contention]) -> Platform:
    def change(known: Constants) -> Constants:
        return replace(known, contention={gpu: change_one(each) for gpu, each in known.contention.items()})

    return Platform(GPUS, change)


def _scaled_contention(factor: float) -> Platform:
    """Return the platform in which co-runners slow each other's GPU parts down by `factor` times as much."""
    return _contention(lambda each: replace(each, steady=factor * each.steady, by_share=factor * each.by_share))


def _taking_turns(part: float) -> Platform:
    """Return the platform in which tasks block the SMs for others during a part of their memory time and latency."""
    return _contention(lambda each: replace(each, hold_memory=part, hold_idle=part))


def _scaled(timing: Timing, factor: float) -> Timing:
    return replace(timing, **{name: factor * s for name, s in asdict(timing).items() if name.endswith("_s")})


def _timing(change_one: Callable[[Constants, Key, Timing], Timing]) -> Platform:
    def change(known: Constants) -> Constants:
        return replace(known, timing=known.timing.with_change(lambda key, each: change_one(known, key, each)))

    return Platform(GPUS, change)


def _shifted_times(model: str, sign: int) -> Platform:
    """Return the platform in which a model's times are shifted by their standard uncertainty.

    With `sign` 1 it is slower on T4 and V100 and faster on the A100; with -1 it is the reverse.
    """

    def shifted(known: Constants, key: Key, timing: Timing) -> Timing:
        if key[0] not in GPUS or key[2] != model:
            return timing
        direction = -sign if key[0] == "A100" else sign
        return _scaled(timing, math.exp(direction * known.spreads.of("time", timing.support, ALONE).total))

    return _timing(shifted)


def _host_time(factor: float) -> Platform:
    return _timing(lambda known, key, timing: replace(timing, host_s=factor * timing.host_s))


def _t4_of_fig_2(known: Constants) -> Constants:
    """Return constants with a faster T4: at inference batch size 8 ResNet-50's time over the A100's is the paper's."""
    alone = (Resident(Workload("resnet50", 8)),)
    t4_s = co_run(catalogue.gpu("T4"), alone, constants=known).tasks[0].time_s
    a100_s = co_run(catalogue.gpu("A100"), alone, constants=known).tasks[0].time_s

    factor = paper_claims()["M2", ""].value * a100_s / t4_s
    scaled = known.timing.with_change(lambda key, each: _scaled(each, factor) if key[0] == "T4" else each)
    return replace(known, timing=scaled)


PLATFORMS: Mapping[str, Platform] = {
    AS_FITTED: Platform((), lambda known: known),
    T4_OF_FIG_2: Platform(("T4",), _t4_of_fig_2),
    "host time x0": _host_time(0.0),
    "host time x2": _host_time(2.0),
    "idle power, low": _power_at(LOW, IDLE),
    "idle power, high": _power_at(HIGH, IDLE),
    "dynamic power, low": _power_at(LOW, DYNAMIC),
    "dynamic power, high": _power_at(HIGH, DYNAMIC),
    "lowest voltage, low": _power_at(LOW, ("v_min",)),
    "lowest voltage, high": _power_at(HIGH, ("v_min",)),
    "T4's power, low": _power_at(LOW, (*DYNAMIC, *IDLE, "v_min"), ("T4",)),
    "T4's power, high": _power_at(HIGH, (*DYNAMIC, *IDLE, "v_min"), ("T4",)),
    "V100's power, low": _power_at(LOW, DYNAMIC, ("V100",)),
    "V100's power, high": _power_at(HIGH, DYNAMIC, ("V100",)),
    "A100's power, low": _power_at(LOW, DYNAMIC, ("A100",)),
    "A100's power, high": _power_at(HIGH, DYNAMIC, ("A100",)),
    "contention x0.5": _scaled_contention(0.5),
    "contention x5": _scaled_contention(5.0),
    "taking turns, never": _taking_turns(0.0),
    "taking turns, always": _taking_turns(1.0),
    "GPT-2, slower on T4 and V100": _shifted_times("gpt2", 1),
    "GPT-2, faster on T4 and V100": _shifted_times("gpt2", -1),
}
"""The emulated GPUs by name.

Contention was measured on a few GPUs only, and how long residents hold SMs while they wait was chosen with the form of
the model; nothing bounds either range on other GPUs, so that the factors and ends are assumptions.
"""


@cache
def constants(platform: str) -> Constants:
    """Return the constants of a platform's device model.

    Raises:
        InputError: no such platform.
    """
    if platform not in PLATFORMS:
        raise unknown(platform, PLATFORMS, column="platform")
    return PLATFORMS[platform].change(default())


def devices(platform: str, cluster: Cluster) -> Sequence[Device]:
    """Return the emulated GPUs of a cluster on a platform."""
    known = constants(platform)
    return [EmulatedDevice(gpu, sleep_w=known.power[gpu.name].parked_w, constants=known) for gpu in cluster.gpus]


def predictor(platform: str) -> ProfilePredictor:
    """Return the predictor of all policies on a platform: the default one, trained on a profile of it."""
    return ProfilePredictor(partial(_trained, platform))


@cache
def _trained(platform: str) -> Trained:
    known = constants(platform)
    changed = PLATFORMS[platform].gpus
    shipped = _shipped()
    anew = [profile(gpu, known) for gpu in changed]
    rows = pd.concat([shipped[~shipped["gpu"].isin(changed)], *anew], ignore_index=True)
    return train(rows, seed=0)


_shipped = cache(store.read_shipped)


def profile(gpu: str, known: Constants, *, precision: str = DEFAULT_PRECISION, seed: int = 0) -> pd.DataFrame:
    """Return a recorded profile of a GPU with given constants, by the design of the shipped ones."""
    card = catalogue.gpu(gpu)
    noise = np.random.default_rng(np.random.SeedSequence([seed, *gpu.encode(), 1]))
    device = EmulatedDevice(card, noise=NoiseModel(rng=noise, time_cv=TIME_CV, power_cv=POWER_CV), constants=known)

    points = [_in_precision(point, precision) for point in (*design.references(card), *_samples(gpu, seed))]
    return record(device, points, protocol=MeasurementProtocol(repeats=1), seed=seed, progress=False)


def _in_precision(point: Point, precision: str) -> Point:
    target, *others = (
        replace(task, workload=replace(task.workload, precision=precision))
        for task in (point.target, *point.co_runners)
    )
    return replace(point, target=target, co_runners=tuple(others))


@cache
def _samples(gpu: str, seed: int) -> tuple[Point, ...]:
    rng = np.random.default_rng(np.random.SeedSequence([seed, *gpu.encode(), 0]))
    return tuple(design.samples(catalogue.gpu(gpu), SAMPLES, rng=rng))
