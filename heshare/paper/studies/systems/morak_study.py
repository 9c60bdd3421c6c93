"""The study of Morak in the setting of its own paper: a saturated server under a power cap and a latency limit.

The public record of Morak's paper names no card, network, cap, limit or baseline. They are those at which a third party
runs Morak as a baseline (wuooo339/PctoDL@3074bf90: `run_benchmark.py` and `src/config/*_morak.json`): one network on an
A100, two instances, a cap and a limit for each network, inference batch size 96 and the middle clock to begin with. On
a V100, for which it has no caps, they are the same shares of the power limit.

`run_systems` runs Morak and what it is compared with on the same caps, `gains` compares their throughput, and
`sensitivity` changes one assumed setting at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval, median_interval
from heshare.lab.sweeps.study_runs import repeat
from heshare.lab.systems.morak.policy import SIZES
from heshare.paper.figures.rows import TITLE, interval_rows
from heshare.paper.figures.series_styles import EDGE, GUIDE
from heshare.paper.texts import render
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared.arrays import FloatArray
from heshare.world.catalogue import gpu, memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

LIMITS_S: Mapping[str, float] = {"densenet201": 0.200, "mobilenetv2": 0.120, "resnet50": 0.100, "vgg19": 0.180}
"""Latency limit of each network, s."""
CAPS_W: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "A100": {"densenet201": (200, 280), "mobilenetv2": (100, 120), "resnet50": (150, 180), "vgg19": (130, 180)},
    "RTX-3090": {"densenet201": (180, 190), "mobilenetv2": (120, 125), "resnet50": (130, 170), "vgg19": (155, 180)},
}
"""The lower and the higher cap of each network (one for each of two data sets), W; those of an RTX 3080 Ti are used on
the RTX 3090, which has the same board power limit."""
LARGE = 64
"""Inference batch size of the baseline without control, at which larger ones serve little more."""
PAPER_MOST = 1.677
"""The most in its paper: Morak's throughput over that of a baseline."""
HELD_TO = 1.02
"""Up to this share of the cap Morak's law holds."""
MORAK, ALONE, FIXED_SIZE = "Morak", "Morak, one instance", "Morak, clock alone"
BATCH_DVFS, POWER_LIMIT = "BatchDVFS", "One at a time, card's power limit"
BEST_ONE, BEST_TWO = "Best fixed setting, one instance", "Best fixed setting, two instances"

_PREDICTOR = DevicePredictor()
_words = partial(render, "09_rivals")


@dataclass(frozen=True, slots=True)
class ServedBy:
    """A system of the study.

    Attributes:
        policy: its description; `{cap}` and `{limit}` are filled in.
        instances: number of instances of the network, 0 for as many as the setting has.
        size: inference batch size at the beginning, 0 for that of the setting.
        limited: whether the card's own power limit is the cap.
    """

    policy: str
    instances: int = 0
    size: int = 0
    limited: bool = False


SYSTEMS: Mapping[str, ServedBy] = {
    MORAK: ServedBy("morak(elastic=True,sizes=256,k={k},cap={cap},limit={limit})"),
    ALONE: ServedBy("morak(elastic=True,sizes=256,k=1,cap={cap},limit={limit})", instances=1),
    FIXED_SIZE: ServedBy("morak(k={k},cap={cap},limit={limit})"),
    BATCH_DVFS: ServedBy("batch-dvfs(cap={cap})", instances=1, size=1),
    POWER_LIMIT: ServedBy("mu-serve:no-control", instances=1, size=LARGE, limited=True),
}
"""The systems that are run, by title."""
FIXED: Mapping[str, int] = {BEST_ONE: 1, BEST_TWO: 2}
"""The number of instances of each best fixed setting, by title."""


@dataclass(frozen=True, slots=True)
class StudySetting:
    """Setting of Morak's study.

    Attributes:
        size: inference batch size at the beginning (published: 96, in an earlier version 1).
        k: number of instances, at equal MPS percentages (published: 2).
        caps: factor on the published caps.
        limits: factor on the published latency limits.
        seconds: the time for all images alone at the top clock, s; the second half of a run is measured.
    """

    gpu: str = "A100"
    size: int = 96
    k: int = 2
    caps: float = 1.0
    limits: float = 1.0
    seconds: float = 60.0


FROM_ONE = "inference batch size 1 to begin with"
VARIANTS: Mapping[str, StudySetting] = {
    "as published": StudySetting(),
    FROM_ONE: StudySetting(size=1),
    "three instances": StudySetting(k=3),
    "limits 0.75 of the published": StudySetting(limits=0.75),
    "limits twice the published": StudySetting(limits=2.0),
    "caps 1.4 of the published": StudySetting(caps=1.4),
    "V100, batch size 64 to begin with": StudySetting(gpu="V100", size=64),
    "RTX 3090": StudySetting(gpu="RTX-3090"),
}
"""The setting of each variant of `sensitivity`, by title."""


def run_systems(
    setting: StudySetting, *, seed: int, seeds: int, titles: Sequence[str] = (*SYSTEMS, *FIXED)
) -> pd.DataFrame:
    """Run systems on every network, under a cap drawn between the two published ones in each repetition.

    `titles` are of `SYSTEMS` and `FIXED`.

    Returns:
        One row a repetition, network and system: cap_w, limit_ms, title, then the measures of the second half of the
        run: images_per_s, above_pct (share of the time above the cap), beyond_pct (above `HELD_TO` of it), late_pct
        (share of the time with iterations beyond the limit), and batch_size, sm_mhz at its end; provenance.
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        rng = repetition.rng()
        card = gpu(setting.gpu)
        published = setting.gpu if setting.gpu in CAPS_W else "A100"
        for network, caps_w in CAPS_W[published].items():
            share = setting.caps * rng.uniform(*caps_w) / gpu(published).tdp_w
            limit_s = LIMITS_S[network] * setting.limits
            case = {"network": network, "cap_w": share * card.tdp_w, "limit_ms": 1e3 * limit_s}
            for title in titles:
                if title in FIXED:
                    found = best_fixed(setting.gpu, network, share, limit_s, FIXED[title])
                else:
                    done = run_case(setting, network, share, limit_s, SYSTEMS[title])
                    found = measure(done, share * card.tdp_w, limit_s)
                yield {**case, "title": title, **found}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def run_case(setting: StudySetting, network: str, share: float, limit_s: float, system: ServedBy) -> Run:
    """Run one system on one network until all its images are done.

    `share` is the cap as a share of the board power limit.
    """
    card, predictor = gpu(setting.gpu), _PREDICTOR
    workload, k = Workload(network, system.size or setting.size), system.instances or setting.k
    alone_s = float(predictor.solo([workload], card, card.max_mhz).time_s[0, 0])
    text = system.policy.format(cap=round(share, 4), limit=round(limit_s / alone_s, 6), k=setting.k)
    whole = predictor.solo([Workload(network, LARGE)], card, card.max_mhz)
    images = setting.seconds * LARGE / float(whole.time_s[0, 0])
    tasks = [Task(index, workload, images / k / workload.batch_size) for index in range(k)]
    device = EmulatedDevice(card, power_cap_w=share * card.tdp_w if system.limited else None)
    rng = np.random.default_rng(0)
    return run(tasks, Cluster((card,)), make(text), predictor=predictor, rng=rng, devices=[device])


def measure(result: Run, cap_w: float, limit_s: float) -> dict[str, float]:
    """Return the measures of the second half of a run; columns as from `run_systems`."""
    half_s = result.makespan_s / 2
    images = above_s = beyond_s = late_s = 0.0
    size, sm_mhz = 0, 0.0
    for part in result.record.segments:
        length_s = part.end_s - max(part.start_s, half_s)
        if length_s <= 0 or not part.residents:
            continue
        for task, _, time_s in part.residents:
            size = _batch_size(result, task, part.start_s)
            images += length_s * size / time_s
        above_s += length_s * (part.power_w > cap_w * (1 + 1e-4))
        beyond_s += length_s * (part.power_w > HELD_TO * cap_w * (1 + 1e-4))
        late_s += length_s * any(time_s > limit_s * (1 + 1e-4) for *_, time_s in part.residents)
        sm_mhz = part.sm_mhz
    shares = {"above_pct": above_s, "beyond_pct": beyond_s, "late_pct": late_s}
    of_half = {name: 100.0 * value / half_s for name, value in shares.items()}
    return {"images_per_s": images / half_s, **of_half, "batch_size": size, "sm_mhz": sm_mhz}


def _batch_size(result: Run, task: int, at_s: float) -> int:
    return next(
        each.batch_size
        for each in result.record.intervals
        if each.task == task and each.start_s <= at_s + 1e-9 and each.end_s > at_s + 1e-9
    )


def best_fixed(card_name: str, network: str, share: float, limit_s: float, k: int) -> dict[str, float]:
    """Return the throughput of the best clock and inference batch size within both limits, for k equal instances.

    It is found by trying every clock of the card with every size of `SIZES`, which no controller can do at run
    time. Each instance has 100/k %; `share` is the cap as a share of the board power limit.

    Returns:
        The columns of `run_systems` from images_per_s on; zeros where nothing is within the limits.
    """
    card = gpu(card_name)
    best = {"images_per_s": 0.0, "above_pct": 0.0, "beyond_pct": 0.0, "late_pct": 0.0, "batch_size": 0, "sm_mhz": 0.0}
    for size in SIZES:
        if k * memory_mib(Workload(network, size)) > card.memory_mib:
            break
        time_s, power_w = _at_clocks(card_name, network, size, k)
        good = (time_s <= limit_s) & (power_w <= share * card.tdp_w)
        rates = np.where(good, k * size / time_s, 0.0)
        at = int(rates.argmax())
        if rates[at] > best["images_per_s"]:
            best |= {"images_per_s": float(rates[at]), "batch_size": size, "sm_mhz": float(card.clocks_mhz[at])}
    return best


@cache
def _at_clocks(card_name: str, network: str, size: int, k: int) -> tuple[FloatArray, FloatArray]:
    """Return time per iteration, s, and power, W, of k instances at each clock of a card, each of shape (c,)."""
    card, residents = gpu(card_name), (Resident(Workload(network, size), 100 // k),) * k
    found = _PREDICTOR.co_run([residents] * len(card.clocks_mhz), card, card.clocks_mhz)
    return found.time_s.max(axis=1), found.power_w


def gains(runs: pd.DataFrame) -> pd.DataFrame:
    """Return Morak's throughput over that of each other system.

    Returns:
        One row a title: ratio (geometric mean over networks) with low, high, and most (the largest ratio of a
        repetition) with most_low, most_high, each the median over repetitions with its 95 % interval; n; and means over
        that title's cases of above_pct, beyond_pct, late_pct; provenance.
    """
    wide = runs.pivot_table(index=["repetition", "network"], columns="title", values="images_per_s")
    rows = []
    for title, own in runs.groupby("title", sort=False):
        ratio: Any = (wide[MORAK] / wide[title]).groupby(level="repetition")
        means = ratio.agg(lambda each: float(np.exp(np.log(each).mean())))
        row: dict[str, Any] = {"title": title, **median_interval(means).columns("ratio")}
        row |= median_interval(ratio.max()).columns("most", "most_low", "most_high")
        rows.append({**row, **{name: float(own[name].mean()) for name in ("above_pct", "beyond_pct", "late_pct")}})
    return pd.DataFrame(rows).assign(provenance="emulated")


def sensitivity(*, seed: int, seeds: int) -> pd.DataFrame:
    """Compare Morak with the others with one assumed setting changed at a time (`VARIANTS`)."""
    titles = (MORAK, BATCH_DVFS, POWER_LIMIT)
    found = {
        variant: gains(run_systems(setting, seed=seed, seeds=seeds, titles=titles))
        for variant, setting in VARIANTS.items()
    }
    return pd.concat(found, names=["variant"]).reset_index("variant").reset_index(drop=True)


def throughput_claim(found: pd.DataFrame, title: str) -> dict[str, Any]:
    rows = found.set_index("title")
    own: Any = rows.loc[title]
    value = ConfidenceInterval(own["most"], own["most_low"], own["most_high"], int(own["n"]))
    note = _words("morak_throughput", own=own, best=rows.loc[BEST_ONE])
    return value.claim_arguments(note, testable=False, why=_words("morak_throughput_in_short", own=own))


def limits_claim(runs: pd.DataFrame, found: pd.DataFrame) -> dict[str, Any]:
    own = runs[runs["title"] == MORAK]
    holds = {
        "no iteration beyond its limit": bool((own["late_pct"] == 0).all()),
        f"no power above {HELD_TO:g} of the cap, up to which the law holds": bool((own["beyond_pct"] == 0).all()),
        "no power above the cap": bool((own["above_pct"] == 0).all()),
    }
    above = float(found.set_index("title")["above_pct"][MORAK])
    return {
        "measured": above,
        "n": len(own),
        "provenance": "emulated",
        "note": "Second half of each run, after the search. Measured: share of the time above the cap itself.",
        "holds": holds,
    }


def parts_claim(found: pd.DataFrame) -> dict[str, Any]:
    rows = found.set_index("title")
    alone: Any = rows.loc[ALONE]
    late = rows["late_pct"]
    value = ConfidenceInterval(alone["ratio"], alone["low"], alone["high"], int(alone["n"]))
    return value.claim_arguments(
        _words("morak_parts", fixed=rows.loc[FIXED_SIZE]),
        holds={
            "two instances serve more than one": bool(alone["low"] > 1),
            "without the search for the batch size limits are missed": bool(late[FIXED_SIZE] > late[MORAK]),
        },
    )


def draw_panels(axes: tuple[Axes, Axes], found: pd.DataFrame, variants: pd.DataFrame) -> None:
    left = found[found["title"] != MORAK].assign(series=MORAK)
    interval_rows(axes[0], left, row="title", value="ratio", low="low", high="high", series="series")
    axes[0].lines[0].set_label("mean of the networks")
    axes[0].plot(left["most"], range(len(left)), "|", color=EDGE, markersize=7, label="the most of them")
    right = variants[variants["title"].isin([BATCH_DVFS, POWER_LIMIT])]
    interval_rows(axes[1], right, row="variant", value="ratio", low="low", high="high", series="title")
    axes[0].set_title("Over each other system", **TITLE)
    axes[1].set_title("With one setting changed", **TITLE)
    for ax, label in zip(axes, (f"the paper: up to {PAPER_MOST:g}x", "_"), strict=True):
        ax.axvline(1.0, color=GUIDE, linewidth=0.7)
        ax.axvline(PAPER_MOST, color=GUIDE, linewidth=0.8, linestyle="--", label=label)
        ax.set(xlabel="Morak's throughput over it", xlim=(0.7, None))
    axes[0].figure.legend(loc="outside upper center", ncols=5)
