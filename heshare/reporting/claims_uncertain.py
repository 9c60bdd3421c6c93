"""Why claims on single workloads and on predictors fail: light models that nobody measured, and what is learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from heshare import files
from heshare.devices.constants import default
from heshare.prediction.compare import folds, table5
from heshare.prediction.forest import Forest
from heshare.prediction.samples import of_profiles
from heshare.profiles import design, store
from heshare.profiles.design import Point
from heshare.profiles.regenerate import GPUS
from heshare.reporting import motivation
from heshare.reporting import sensitivity_worlds as worlds
from heshare.reporting.claims_reasons import Reasons, row
from heshare.reporting.statistics import Interval
from heshare.world import catalogue
from heshare.world.gpu import Gpu

LIGHT, HEAVY = "mobilenet", "densenet201"


def light_models(batch_size: int) -> tuple[pd.DataFrame, Reasons]:
    """M1, M4: MobileNet's spread over GPUs against DenseNet-201's, within what is uncertain about MobileNet's times.

    Args:
        batch_size: the inference batch size.
    """
    rows, said = [], {}
    variants = {"as calibrated": default(), "closer": worlds.moved(LIGHT, -1), "further apart": worlds.moved(LIGHT, 1)}
    for variant, known in variants.items():
        frame = motivation.solo(GPUS, batch_sizes=(batch_size,), constants=known)
        for column, word in (("energy_j", "energy"), ("time_s", "time")):
            sizes = motivation.spread(frame, column)
            light, heavy = float(sizes[LIGHT]), float(sizes[HEAVY])
            said[variant, word] = f"{light:.1f}x against {heavy:.1f}x"
            for model, size in ((LIGHT, light), (HEAVY, heavy)):
                rows.append(row("light models", f"{model}, {variant}", f"{word}, largest over smallest", _one(size)))

    def why(word: str) -> str:
        return (
            f"MobileNet was measured on none of the GPUs. With its times closer together by each one's own standard "
            f"uncertainty, its spread of {word} against DenseNet-201's is {said['closer', word]}, further apart "
            f"{said['further apart', word]}; as calibrated {said['as calibrated', word]}."
        )

    return pd.DataFrame(rows), {("M1", ""): why("energy"), ("M4", ""): why("time")}


def _one(value: float) -> Interval:
    return Interval(value, value, value, 1)


def forest(seed: int = 0) -> tuple[pd.DataFrame, Reasons]:
    """P1: the forest's error on simpler questions than those of the profiles.

    Args:
        seed: of the splits, of the forest and of the profiles recorded anew.
    """
    shipped = store.read(files.data("profiles", "emulated"))
    tables = {
        "as profiled": shipped,
        "at most one co-runner": _recorded(_pairs, seed),
        "at most one co-runner, top clock": _recorded(_top_pairs, seed),
    }
    rows, sizes = [], {}
    for variant, table in tables.items():
        for (quantity, error), found in _errors(table, seed).items():
            rows.append(row("forest", variant, f"{error} error of {quantity}, %", found))
            sizes[variant, quantity, error] = found.value
    first, pairs, top = tables

    def why(error: str) -> str:
        return (
            "what is asked is wider than pairs: up to 22 co-runners, every clock. With as many samples, recorded and "
            f"split alike, of at most one co-runner the error is {sizes[pairs, 'both', error]:.1f} %, and "
            f"{sizes[top, 'both', error]:.1f} % at the top clock alone ({sizes[first, 'both', error]:.1f} % as "
            f"profiled: time {sizes[first, 'time', error]:.1f}, power {sizes[first, 'power', error]:.1f})."
        )

    return pd.DataFrame(rows), {("P1", error): why(error) for error in ("absolute", "relative")}


def _pairs(card: Gpu, rng: np.random.Generator) -> Iterator[Point]:
    """Settings of the design with at most one co-runner."""
    while True:
        yield from (point for point in design.samples(card, worlds.PART, rng=rng) if len(point.co_runners) <= 1)


def _top_pairs(card: Gpu, rng: np.random.Generator) -> Iterator[Point]:
    return (Point(point.target, point.co_runners, card.max_mhz) for point in _pairs(card, rng))


def _recorded(draw: Callable[[Gpu, np.random.Generator], Iterator[Point]], seed: int) -> pd.DataFrame:
    """A profile of T4, V100 and A100 of as many samples as the shipped one's, drawn by `draw`, none of them twice."""
    tables = []
    for name in GPUS:
        card, rng = catalogue.gpu(name), np.random.default_rng(np.random.SeedSequence([seed, *name.encode(), 2]))
        known, chosen = set(map(str, design.references(card))), list[Point]()
        for point in draw(card, rng):
            if str(point) not in known:
                known.add(str(point))
                chosen.append(point)
            if len(chosen) == worlds.PART:
                break
        tables.append(worlds.profile(name, default(), chosen, seed=seed))
    return pd.concat(tables, ignore_index=True)


def _errors(table: pd.DataFrame, seed: int) -> dict[tuple[str, str], Interval]:
    """The forest's errors of time, power and both, %, as in Table V: mean and range over its splits by row."""
    samples = of_profiles(table)
    x, truth = samples.features(), samples.truth
    found: dict[tuple[str, str], list[float]] = {}
    for train, test in folds("row", samples.rows, seed, quick=False):
        model = Forest(seed=seed).fit(x[train], *truth[train].T)
        gap = np.abs(np.column_stack(model.predict(x[test])) - truth[test])
        absolute, relative = 100 * gap.mean(axis=0) / truth[test].mean(axis=0), 100 * (gap / truth[test]).mean(axis=0)
        for error, (time, power) in (("absolute", absolute), ("relative", relative)):
            for quantity, size in (("time", time), ("power", power), ("both", (time + power) / 2)):
                found.setdefault((quantity, error), []).append(float(size))
    return {
        key: Interval(round(float(np.mean(sizes)), 2), round(min(sizes), 2), round(max(sizes), 2), len(sizes))
        for key, sizes in found.items()
    }


def learners(seed: int = 0) -> tuple[pd.DataFrame, Reasons]:
    """P2, P3: what the techniques' errors become when time and power are learned as they are.

    Args:
        seed: of the split and of the techniques.
    """
    shipped = store.read(files.data("profiles", "emulated"))
    rows, sizes = [], {}
    for target, word in (("load", "over first guesses from the load"), ("literal", "as they are")):
        errors = table5(shipped, seed=seed, splits=("row",), target=target, quick=True)
        both = errors[errors["quantity"] == "both"].set_index(["technique", "error"])["mean_pct"]
        for technique, error in both.index:
            size = float(both[technique, error])
            sizes[target, technique, error] = size
            rows.append(row("learners", f"{technique}, learned {word}", f"{error} error of both, %", _one(size)))
    reasons: Reasons = {}
    named = [("P2", "MLP", ""), *(("P3", technique, f"{technique} ") for technique in ("LR", "DT", "SVR"))]
    for id, technique, prefix in named:
        for error in ("absolute", "relative"):
            reasons[id, f"{prefix}{error}"] = (
                "every technique learns logarithms of time and power over first guesses from the load, which helps all "
                f"of them. With time and power learned as they are, untuned and on one split, its error is "
                f"{sizes['literal', technique, error]:.0f} % instead of {sizes['load', technique, error]:.0f} %."
            )
    return pd.DataFrame(rows), reasons
