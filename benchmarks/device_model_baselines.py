"""The pooled device model against two baselines on the same rows: a roofline with shrunk offsets, and boosted trees.

`make bench` has the laboratories left out whole: for each baseline its mean |error| over the model's. Run alone as
`python benchmarks/device_model_baselines.py` (2 minutes of CPU) it prints all splits, with the mean and the 90th
percentile of |error|, %: also the H100's held-out half, each network of two records left out of its record, and no row
of any H100. Both baselines choose their settings from a fixed grid by cross-validation over the laboratories of the
training rows. The model's errors on laboratories are those of `data/calibration/laboratories.csv`; the others are
fitted here. Ratios of times under a power limit, the only rows of one laboratory, are left out: the baselines have no
limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from baseline_fits import RIDGE, TREES, Baselines
from bench_rows import Row, sample_row

from heshare.lab.calibration.card_curves import card_curves, power_of
from heshare.lab.calibration.left_out import LEFT_OUT_STEPS
from heshare.lab.calibration.measurements import table
from heshare.lab.calibration.observations import Observation, observations
from heshare.lab.calibration.pooled_fit import PooledProblem
from heshare.shared.arrays import BoolArray, FloatArray

QUANTITIES = ("time", "power")
Summary = tuple[float, float]
"""Mean and 90th percentile of the absolute error, %."""


@dataclass(frozen=True)
class Split:
    """Rows to train on, and rows to test.

    Attributes:
        name: what the table says.
        train: rows for training, (n,).
        test: rows for testing, (n,).
        chosen_without: the tested laboratory; settings are chosen on training rows of the others.
    """

    name: str
    train: BoolArray
    test: BoolArray
    chosen_without: str


def laboratories(rows: Sequence[Observation]) -> Iterator[Split]:
    """Yield each laboratory left out whole."""
    used = np.array([not row.held_out for row in rows])
    names = np.array([row.laboratory for row in rows])
    for name in dict.fromkeys(names.tolist()):
        yield Split(f"laboratory {name}", used & (names != name), names == name, name)


def settings(rows: Sequence[Observation]) -> Iterator[Split]:
    """Yield the splits within laboratories, and that without any H100."""
    used = np.array([not row.held_out for row in rows])
    yield Split("H100, held-out half", used, ~used, "H100")

    for gpu in ("A100-40GB", "RTX-3080-Ti"):
        own = np.array([row.laboratory == "PctoDL" and row.gpu.name == gpu for row in rows])
        networks = np.array([row.tasks[0].network.name for row in rows])
        for network in np.unique(networks[own]):
            test = own & (networks == network)
            yield Split(f"PctoDL, {gpu}, without {network}", used & ~test, test, "PctoDL")

    without = used & np.array([not row.gpu.name.startswith("H100") for row in rows])
    of_record = np.array([row.laboratory == "H100" for row in rows])
    alone = np.array([len(row.tasks) == 1 for row in rows])
    yield Split("no row of any H100: alone", without, of_record & alone, "H100")
    yield Split("no row of any H100: sets", without, of_record & ~alone, "H100")


def summary(errors: FloatArray) -> Summary:
    """Return the mean and the 90th percentile of absolute errors, %; `errors` are log(estimated / measured)."""
    error_pct = 100.0 * np.abs(np.expm1(errors))
    return float(error_pct.mean()), float(np.quantile(error_pct, 0.9))


def compare(both: Baselines, parts: Sequence[Split], model: Callable[[Split, int, BoolArray], Summary]) -> pd.DataFrame:
    """Return errors by split and quantity: n, mean and p90 of each method, %; `model` gets split, quantity and rows."""
    found = []
    for split in parts:
        for place, quantity in enumerate(QUANTITIES):
            test, measured = split.test & ~np.isnan(both.measured[place]), both.measured[place]
            if not test.any() or not (split.train & ~np.isnan(measured)).any():
                continue
            line = {"split": split.name, "quantity": quantity, "n": int(test.sum())}
            methods = {"model": model(split, place, test)}
            for name, grid in (("roofline", RIDGE), ("boosting", TREES)):
                chosen = both.choose(grid, place, split.train & (both.laboratories != split.chosen_without))
                methods[name] = summary((both.fitted(chosen, place, split.train) - measured)[test])
            for name, (mean, p90) in methods.items():
                line |= {f"{name}_mean_pct": mean, f"{name}_p90_pct": p90}
            found.append(line)
    return pd.DataFrame(found)


def on_laboratory(split: Split, quantity: int, test: BoolArray) -> Summary:
    """Return the errors of the pooled model on a laboratory left out, from their table."""
    rows = table("laboratories")
    own = (rows["laboratory"] == split.chosen_without) & (rows["quantity"] == QUANTITIES[quantity])
    return float(rows.loc[own, "mape_pct"].item()), float(rows.loc[own, "p90_pct"].item())


def pooled_model(rows: Sequence[Observation]) -> Callable[[Split, int, BoolArray], Summary]:
    """Return the errors of the pooled model on other splits, fitted as `left_out` does."""
    cards = {row.gpu.name: row.gpu for row in rows}
    problem = PooledProblem(rows, {name: power_of(card_curves(gpu)) for name, gpu in cards.items()})
    everything = problem.fit(np.array([not row.held_out for row in rows]))
    found: dict[bytes, FloatArray] = {}

    def errors(split: Split, quantity: int, test: BoolArray) -> Summary:
        key = split.train.tobytes()
        if key not in found:
            start = problem.supported(everything.effects, split.train)
            found[key] = problem.predict(problem.fit(split.train, start, LEFT_OUT_STEPS).effects)
        return summary((found[key] - problem.measured)[quantity][test])

    return errors


def results() -> list[Row]:
    """Return the mean |error| of each baseline over the model's, by quantity: the median over laboratories left out."""
    rows = observations()
    found = compare(Baselines(rows), list(laboratories(rows)), on_laboratory)
    return [
        sample_row(f"device_model_vs_{name}_{quantity}", part[f"{name}_mean_pct"] / part["model_mean_pct"])
        for quantity, part in found.groupby("quantity", sort=False)
        for name in ("roofline", "boosting")
    ]


def every_split() -> pd.DataFrame:
    """Return the table of all splits; the last rows are the means over laboratories and over networks."""
    rows = observations()
    both = Baselines(rows)
    parts = [compare(both, list(laboratories(rows)), on_laboratory)]
    parts.append(compare(both, list(settings(rows)), pooled_model(rows)))
    found = pd.concat(parts, ignore_index=True)

    group = found["split"].str.extract(r"^(laboratory|PctoDL, [\w-]+)", expand=False)
    grouped = found.drop(columns="split").groupby([group.rename("split"), "quantity"], sort=False)
    means = grouped.mean().assign(n=grouped["n"].sum()).reset_index()
    return pd.concat([found, means.assign(split="mean of: " + means["split"])], ignore_index=True)


if __name__ == "__main__":
    print(every_split().to_string(index=False, float_format="{:.1f}".format))
