"""Claims M1 to M8 (Section II, Figs. 1 to 4), and the table of ratios between GPUs from which they are evaluated.

`ratios` returns the table, whose rows have the inputs of each claim beside its value. Every other function takes the
table and returns the arguments of one `Context.claim`.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.lab.sweeps.study_runs import with_median
from heshare.paper.claims.sources import claim_of_row
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.studies.motivation import PAPER_GPUS, ratio, spread
from heshare.paper.texts import render
from heshare.world.catalogue import models

LIGHT, HEAVY = ("mobilenet", "mobilenetv2"), ("densenet201", "bert_large")
NAME = "x01a_ratios"
ENERGY, TIME = "energy, largest over smallest", "time, slowest over fastest"
HEAVY_OVER_LIGHT = "energy, mean of the heavy over that of the light"
T4_OVER_A100 = "time, T4 over A100"
ELASTICITY, ELASTICITY_RANGE = "elasticity of time over the clock", "elasticity of time, range over GPUs"
T4_LESS_A100, ON_A100 = "slowdown of a pair, T4 less A100, points", "slowdown of a pair on the A100, %"
MEAN = "mean of the sizes"
RANK_OF_ENERGY, RANK_OF_TIME = (f"rank correlation of GFLOP with {measure}" for measure in (ENERGY, TIME))
CLOSE_PCT = 25.0
"""How much longer pairs take than alone, in the mean, if their times are close; the paper does not define it."""
_words = partial(render, "01_motivation")
_Row = dict[str, object]


def ratios(solo: pd.DataFrame, clocks: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return what claims M1 to M8 are about, with the inputs of each value.

    The frames are those of the functions of `motivation` with these names.

    Returns:
        Columns measure, item (workload, GPU or pair), batch_size (as text; empty for pairs), value, low and high (two
        standard deviations of the device model, or a 95 % interval; NaN without one), n, unmeasured (the GPUs
        on which the workload's time follows from features, not from a measurement), provenance.
    """
    rows = pd.concat([pd.DataFrame([*_spreads(solo), *_elasticities(clocks)]), *_slowdowns(pairs)])
    columns = ["measure", "item", "batch_size", "value", "low", "high", "n", "unmeasured"]
    return rows.reindex(columns=columns).fillna({"unmeasured": ""}).assign(provenance="emulated")


def _spreads(solo: pd.DataFrame) -> Iterator[_Row]:
    for size, part in solo.groupby("batch_size"):
        energy, time = spread(part, "energy_j"), spread(part, "time_s")
        missing = part[~part["anchored"].astype(bool)].groupby("workload")["gpu"].agg(", ".join).to_dict()
        for measure, sizes in ((ENERGY, energy), (TIME, time)):
            for name, value in sizes.items():
                yield _row(measure, name, size, float(value)) | {"unmeasured": missing.get(name, "")}
        gflops = pd.Series({name: models()[str(name)].gflops for name in energy.index})
        for measure, sizes in ((RANK_OF_ENERGY, energy), (RANK_OF_TIME, time)):
            yield _row(measure, f"{len(sizes)} models", size, float(gflops.corr(sizes, method="spearman")))
        heavy, light = (energy[list(names)].mean() for names in (HEAVY, LIGHT))
        yield _row(HEAVY_OVER_LIGHT, ", ".join(HEAVY), size, float(heavy / light))
        for name in ("resnet50", "bert_large"):
            value, low, high = ratio(part, name)
            yield _row(T4_OVER_A100, name, size, value) | {"low": low, "high": high}


def _elasticities(clocks: pd.DataFrame) -> Iterator[_Row]:
    ranges = []
    for size, part in clocks.groupby("batch_size", sort=False):
        effect = {str(gpu): _elasticity(rows) for gpu, rows in part.groupby("gpu", sort=False)}
        yield from (_row(ELASTICITY, gpu, size, value) for gpu, value in effect.items())
        ranges.append(max(effect.values()) - min(effect.values()))
        yield _row(ELASTICITY_RANGE, "resnet152", size, ranges[-1])
    yield _row(ELASTICITY_RANGE, "resnet152", MEAN, float(np.mean(ranges)))


def _elasticity(part: pd.DataFrame) -> float:
    """Return the elasticity of time over the upper half of a GPU's clocks: -1 where time falls as the clock rises."""
    upper = part[part["requested_mhz"] >= 0.5 * part["requested_mhz"].max()]
    slope = np.polyfit(np.log(upper["requested_mhz"].to_numpy(float)), np.log(upper["time_s"].to_numpy(float)), 1)
    return float(slope[0])


def _slowdowns(pairs: pd.DataFrame) -> list[pd.DataFrame]:
    wide = pairs.pivot_table(index="pair", columns="gpu", values="degradation_pct", sort=False)
    sizes = {T4_LESS_A100: wide["T4"] - wide["A100"], ON_A100: wide["A100"]}
    return [with_median(values.dropna(), measure=measure, batch_size="") for measure, values in sizes.items()]


def _row(measure: str, item: object, batch_size: object, value: float) -> _Row:
    return {"measure": measure, "item": str(item), "batch_size": str(batch_size), "value": value}


def _values(table: pd.DataFrame, measure: str, batch_size: object) -> dict[str, float]:
    rows = table[(table["measure"] == measure) & (table["batch_size"] == str(batch_size))]
    return {str(item): float(value) for item, value in zip(rows["item"], rows["value"], strict=True)}


def _over_sizes(table: pd.DataFrame, measure: str, item: str, at: object) -> dict[str, Any]:
    rows = table[(table["measure"] == measure) & (table["item"] == item)]
    sizes = rows[rows["batch_size"] != MEAN]["value"]
    size = ConfidenceInterval(_values(table, measure, at)[item], float(sizes.min()), float(sizes.max()), len(sizes))
    return size.claim_arguments(at={"batch_size": at})


def _unmeasured(table: pd.DataFrame, names: tuple[str, ...], batch_size: int) -> list[str]:
    # Workloads and GPUs whose times come from the feature model, not from a measurement.
    here = table[(table["measure"] == TIME) & (table["batch_size"] == str(batch_size))]
    rows = here[here["item"].isin(names) & here["unmeasured"].ne("")]
    return [f"{row.item} on {row.unmeasured}" for row in rows.itertuples()]


def energy_spread(table: pd.DataFrame, batch_size: int) -> dict[str, Any]:
    """Return claim M1: the energy of light models differs less between GPUs than that of heavy ones."""
    names, here = LIGHT + HEAVY, _values(table, ENERGY, batch_size)
    about = {"batch_size": batch_size, "cells": _unmeasured(table, names, batch_size)}
    return _over_sizes(table, HEAVY_OVER_LIGHT, ", ".join(HEAVY), batch_size) | {
        "note": _words("energy_spread", spreads={name: here[name] for name in names}, **about),
        "holds": {f"{heavy} above {light}": here[heavy] > here[light] for heavy in HEAVY for light in LIGHT},
    }


def time_ratio(table: pd.DataFrame, workload: str, batch_size: int, t4_mhz: float) -> dict[str, Any]:
    """Return claim M2 or M3: a workload's time on a T4, which runs at `t4_mhz`, over that on an A100."""
    rows: Any = table[(table["measure"] == T4_OVER_A100) & (table["item"] == workload)].set_index("batch_size")
    value, low, high = (float(rows.loc[str(batch_size), name]) for name in ("value", "low", "high"))
    about = {"batch_size": batch_size, "t4_mhz": t4_mhz, "cells": _unmeasured(table, (workload,), batch_size)}
    note = _words("time_ratio", by_size=rows["value"].to_dict(), **about)
    return ConfidenceInterval(value, low, high, 1).claim_arguments(note, at={"batch_size": batch_size})


def complexity(table: pd.DataFrame, batch_size: int) -> dict[str, Any]:
    """Return claim M8: the more GFLOP a model has, the more its energy and its time differ between GPUs.

    A part holds if the rank correlation over the models is above zero at the level of 5 %, one-sided.
    """
    rows = table[table["measure"].isin([RANK_OF_ENERGY, RANK_OF_TIME])]
    item = str(rows["item"].iloc[0])
    here = {name: _values(table, name, batch_size)[item] for name in (RANK_OF_ENERGY, RANK_OF_TIME)}
    # The normal approximation of Spearman's test; for 15 models the exact limit is 0.446, this one 0.440.
    limit = 1.645 / math.sqrt(int(item.partition(" ")[0]) - 1)
    return _over_sizes(table, RANK_OF_ENERGY, item, batch_size) | {
        "note": _words("complexity", here=here, limit=limit, batch_size=batch_size),
        "holds": {name.removeprefix("rank correlation of GFLOP with "): rho > limit for name, rho in here.items()},
    }


def sizes_that_agree(table: pd.DataFrame, pairs: Mapping[int, pd.DataFrame]) -> str:
    """Return at which inference batch sizes M2, M3 and M7 have the paper's value; `pairs` by size."""
    rows: Any = table[table["measure"] == T4_OVER_A100].set_index(["item", "batch_size"])
    paper = {id: paper_claims()[id, ""].value for id in ("M2", "M3")}
    agree: dict[str, list[int]] = {"M2": [], "M3": [], "M7": []}
    for size, frame in pairs.items():
        resnet, bert = (rows.loc[name, str(size)] for name in ("resnet50", "bert_large"))
        agree["M2"] += [size] if resnet["low"] <= paper["M2"] <= resnet["high"] else []
        agree["M3"] += [size] if bert["value"] > paper["M3"] else []
        agree["M7"] += [size] if frame[frame["gpu"] == "A100"]["degradation_pct"].mean() <= CLOSE_PCT else []
    return _words("sizes_that_agree", agree=agree, together=sorted(set.intersection(*map(set, agree.values()))))


def time_spread(table: pd.DataFrame, batch_size: int) -> dict[str, Any]:
    """Return claim M4: the time of MobileNet differs less between GPUs than that of heavier models."""
    here = _values(table, TIME, batch_size)
    spreads = {name: here[name] for name in ("mobilenet", "mobilenetv2", "resnet50", "bert_large")}
    about = {"batch_size": batch_size, "cells": _unmeasured(table, ("mobilenet",), batch_size)}
    return _over_sizes(table, TIME, "mobilenet", batch_size) | {
        "note": _words("time_spread", spreads=spreads, **about),
        "holds": {f"below {name}": here["mobilenet"] < here[name] for name in ("resnet50", *HEAVY)},
    }


def clock_effect(table: pd.DataFrame, apart: float = 0.05) -> dict[str, Any]:
    """Return claim M5: the clock's effect on ResNet-152 differs between GPUs.

    The effect is the elasticity of time over the clock. Two GPUs differ if theirs are more than `apart` apart.
    """
    sizes = dict.fromkeys(table.loc[table["measure"] == ELASTICITY, "batch_size"])
    effect = {size: _values(table, ELASTICITY, size) for size in sizes}
    return _over_sizes(table, ELASTICITY_RANGE, "resnet152", MEAN) | {
        "note": _words("clock_effect", effect=effect),
        "holds": {
            f"{one} and {other} differ at {size}": abs(effect[size][one] - effect[size][other]) > apart
            for size in sizes
            for one, other in combinations(effect[size], 2)
        },
    }


def pair_degradation(table: pd.DataFrame, pairs: pd.DataFrame) -> dict[str, Any]:
    """Return claim M6: pairs are slower together than alone, most on the T4 and least on the A100."""
    wide = pairs.pivot_table(index="pair", columns="gpu", values="degradation_pct").dropna()
    means = {gpu: float(wide[gpu].mean()) for gpu in PAPER_GPUS}
    return claim_of_row(table, "M6") | {
        "note": _words("pair_degradation", means=means),
        "holds": {f"every pair is slower on {gpu}": bool((wide[gpu] > 0).all()) for gpu in PAPER_GPUS}
        | {f"{a} worse than {b}": means[a] > means[b] for a, b in (("T4", "V100"), ("V100", "A100"))},
    }


def close_to_alone(table: pd.DataFrame, pairs: pd.DataFrame, most_pct: float = CLOSE_PCT) -> dict[str, Any]:
    """Return claim M7: pairs on an A100 take little longer than alone, `most_pct` at most in the mean."""
    slower = pairs[pairs["gpu"] == "A100"]["degradation_pct"].dropna()
    return claim_of_row(table, "M7") | {
        "note": _words("close_to_alone", mean=slower.mean(), worst=slower.max(), most=most_pct),
        "holds": {f"at most {most_pct:g} % longer in the mean": bool(slower.mean() <= most_pct)},
    }
