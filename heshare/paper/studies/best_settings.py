"""Choice of the best setting of every system, on other task sets than those of the comparison.

`python benchmarks/settings.py` runs `tried` and writes `data/settings.csv`, the source of `chosen`. The chosen setting
has the least energy (active account) times average JCT: the geometric mean over a study's settings, then the
median over repetitions. The first of several equal ones is chosen.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from types import MappingProxyType

import numpy as np
import pandas as pd

from heshare.paper import harness
from heshare.paper.harness import ENERGY, JCT, TITLE, Comparable, Setting, vary
from heshare.paper.studies.trace_setting import TraceSetting
from heshare.policies import registry
from heshare.shared import files
from heshare.shared.errors import InputError

TABLE = "settings.csv"
BASELINES: Mapping[str, str] = {"Morak": "morak", "mu-Serve": "mu-serve"}
"""Names of the baselines in the registry, by their names in claims and in `data/settings.csv`."""


def _other_seed(seed: int) -> int:
    """Return a seed for the choice of settings, without common random streams with `seed`."""
    return int(np.random.SeedSequence(seed, spawn_key=(2**31,)).generate_state(1, np.uint64)[0])


SEED = _other_seed(0)
"""The seed of the task sets on which settings are chosen; results are judged on seed 0."""
SEEDS: Mapping[str, int] = MappingProxyType({"comparison": 5, "mixes": 5, "single": 5, "together": 2})
"""Repetitions of each study, fewer where a system takes long."""
LIMITS, SHARES, CAPS = (1.0, 1.1, 1.2, 1.5), (1, 2, 3, 4), (0.8, 1.0)
CLOCKS = (0.6, 0.7, 0.8, 0.9)
"""Fixed clocks of SRTF, over the top clock; comparisons have 0.8."""


STUDIES: Mapping[str, Sequence[Comparable]] = MappingProxyType(
    {
        "comparison": [Setting()],
        "mixes": vary(
            Setting(tasks=10),
            cluster=["2xT4,2xV100", "2xT4,2xA100", "2xV100,2xA100", "2xT4,1xV100,1xA100"],
            load=["low", "medium", "high"],
        ),
        "single": vary(Setting(), cluster=["2xT4", "2xV100", "2xA100"], tasks=[4, 8, 12]),
        "together": vary(TraceSetting(), load=[0.3, 0.6, 1.2]),
    }
)
"""The settings of each comparison: Fig. 6, Figs. 8 and 9, Figs. 10 and 11, and all systems on one trace."""


def _grid(name: str, **values: Sequence[object]) -> list[str]:
    rows = product(*values.values())
    return [f"{name}({','.join(f'{key}={value}' for key, value in zip(values, row, strict=True))})" for row in rows]


def candidates(study: str) -> dict[str, list[str]]:
    """Return the policies that are tried for each system of a study, canonical names by the system's title."""
    if study != "together":
        every = _baseline_settings()
        tried = {title: [one for one in every if one.startswith(name)] for title, name in BASELINES.items()}
        return {**tried, "SRTF, fixed clock": _canonical(_grid("srtf", ceiling=CLOCKS))}
    placed = ("earliest",)
    found = {
        "FIFO": ["fifo", "fifo(gpus=fastest)"],
        "SJF": ["sjf", "sjf(gpus=fastest)"],
        "SRTF, fixed clock": _grid("srtf", ceiling=CLOCKS),
        "Morak": ["morak", *_grid("morak", cap=CAPS, k=SHARES, placement=placed)],
        "μ-Serve": ["mu-serve", *_grid("mu-serve", limit=LIMITS, mode=("feedback", "oracle"), placement=placed)],
        "PWR": _grid("pwr", alpha=(0.1, 0.5), slower=(0.0, 0.05)),
        "FGD": _grid("pwr:fgd", slower=(0.0, 0.05)),
        "EaCO": _grid("eaco", util_max=(0.7, 0.9), memory_max=(0.7, 0.9), jobs_max=(2, 4)),
        "PowerFlow": _grid("power-flow", budget=(0.7, 0.8, 0.9, 1.0)),
        "FIKIT": ["fikit", *_grid("fikit", high=(0.1, 0.2, 0.4), each=(1, 2), placement=placed)],
        "MISO": ["miso", *_grid("miso", gpus=("fastest",), objective=("slowdown", "throughput"))],
        "HeShare online": _grid("heshare-online:trade-off", interval_s=(10.0, 30.0, 60.0)),
        "HeShare+ online": _grid("heshare+-online:trade-off", interval_s=(10.0, 30.0, 60.0)),
        "Marginal": _grid("marginal", price_w=(30.0, 100.0, 300.0), most=(2, 4), overlap=(0.5, 0.7, 1.0)),
    }
    return {title: _canonical(texts) for title, texts in found.items()}


def _baseline_settings() -> list[str]:
    """Return both baselines, with their placement and with HeShare's, at every tried setting."""
    ends = ("", ":heshare-placement")
    plain = [name + end for name in BASELINES.values() for end in ends]
    swept = [f"morak{end}(cap={cap},k={k})" for end, k, cap in product(ends, SHARES, CAPS)]
    swept += [f"mu-serve{end}(limit={limit})" for end, limit in product(ends, LIMITS)]
    return _canonical([*plain, *swept])


def _canonical(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(map(registry.canonical, texts)))


def tried(study: str, *, seeds: int = 0) -> pd.DataFrame:
    """Return the tried settings of the systems of a study, and the chosen ones.

    `study` is a key of `STUDIES`; 0 seeds are those of `SEEDS`.

    Returns:
        One row a system and policy: study, system, policy, energy_mj and avg_jct_s (geometric means over settings,
        medians over repetitions), over_best (energy times average JCT over the system's least), chosen, seed, seeds,
        provenance.
    """
    seeds = seeds or SEEDS[study]
    systems = candidates(study)

    every = {policy: policy for texts in systems.values() for policy in texts}
    runs = harness.run(STUDIES[study], every, seeds=seeds, seed=SEED).drop(columns="policy")
    runs = runs.rename(columns={TITLE: "policy"})

    # Geometric means over settings, then medians over repetitions: means and medians of logarithms.
    measures = {"energy_mj": runs[ENERGY] / 1e6, "avg_jct_s": runs[JCT]}
    logs = runs[["policy", "repetition"]].assign(
        **{name: np.log(values) for name, values in measures.items()},
        product=sum(np.log(values) for values in measures.values()),
    )
    by_seed = logs.groupby(["policy", "repetition"]).mean()
    table = by_seed.groupby("policy").median().apply(np.exp)

    # The setting of a system with the least energy times average JCT is chosen.
    parts = []
    for system, texts in systems.items():
        part = table.loc[texts].reset_index()
        part["over_best"] = part["product"] / part["product"].min()
        part["chosen"] = part.index == part["product"].idxmin()
        parts.append(part.drop(columns="product").assign(system=system))

    found = pd.concat(parts, ignore_index=True).round({"energy_mj": 4, "avg_jct_s": 1, "over_best": 4})
    found = found.assign(study=study, seed=SEED, seeds=seeds, provenance="emulated")
    first = ["study", "system"]
    return found.reindex(columns=[*first, *(name for name in found if name not in first)])


@cache
def read() -> pd.DataFrame:
    return pd.read_csv(files.data(TABLE))


def chosen(study: str) -> dict[str, str]:
    """Return the policy that was chosen for each system of a study, by the system's title."""
    table = read()
    rows = table[(table["study"] == study) & table["chosen"]]
    if rows.empty:
        action = "Run `python benchmarks/settings.py`."
        raise InputError(repr(study), f"one of {', '.join(STUDIES)}", action, file=files.data(TABLE), column="study")
    return dict(zip(rows["system"], rows["policy"], strict=True))
