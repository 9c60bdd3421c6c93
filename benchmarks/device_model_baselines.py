"""The pooled device model against two baselines on the same rows: a roofline with shrunk offsets, and boosted trees.

Splits: each laboratory left out whole, the H100's held-out half, each network of two records left out of its record,
and no row of any H100. Both baselines choose their settings from a fixed grid by leaving out one laboratory of the
training rows at a time. Run it as `python benchmarks/device_model_baselines.py`, 15 minutes. The model's errors on
laboratories are those of `data/calibration/laboratories.csv`; the others are fitted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from baseline_fits import RIDGE, TREES, Baselines

from heshare.lab.calibration.card_curves import card_curves, power_of
from heshare.lab.calibration.left_out import LEFT_OUT_STEPS
from heshare.lab.calibration.measurements import records, table
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


def splits(rows: Sequence[Observation]) -> Iterator[Split]:
    """Yield the splits of all records."""
    used = np.array([not row.held_out for row in rows])
    laboratories = np.array([row.laboratory for row in rows])
    for name in dict.fromkeys(laboratories.tolist()):
        yield Split(f"laboratory {name}", used & (laboratories != name), laboratories == name, name)
    yield Split("H100, held-out half", used, ~used, "H100")

    for gpu in ("A100-40GB", "RTX-3080-Ti"):
        own = np.array([row.laboratory == "PctoDL" and row.gpu.name == gpu for row in rows])
        networks = np.array([row.tasks[0].network.name for row in rows])
        for network in np.unique(networks[own]):
            test = own & (networks == network)
            yield Split(f"PctoDL, {gpu}, without {network}", used & ~test, test, "PctoDL")

    without = used & np.array([not row.gpu.name.startswith("H100") for row in rows])
    of_record, alone = laboratories == "H100", np.array([len(row.tasks) == 1 for row in rows])
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
                settings = both.choose(grid, place, split.train & (both.laboratories != split.chosen_without))
                methods[name] = summary((both.fitted(settings, place, split.train) - measured)[test])
            for name, (mean, p90) in methods.items():
                line |= {f"{name}_mean_pct": mean, f"{name}_p90_pct": p90}
            found.append(line)
    return pd.DataFrame(found)


def pooled_model(rows: Sequence[Observation]) -> Callable[[Split, int, BoolArray], Summary]:
    """Return the errors of the pooled model, fitted as `left_out` does; those on laboratories from their table."""
    cards = {row.gpu.name: row.gpu for row in rows}
    problem = PooledProblem(rows, {name: power_of(card_curves(gpu)) for name, gpu in cards.items()})
    everything = problem.fit(np.array([not row.held_out for row in rows]))
    kept = {(line.laboratory, line.quantity): line for line in records(table("laboratories"))}
    found: dict[bytes, FloatArray] = {}

    def errors(split: Split, quantity: int, test: BoolArray) -> Summary:
        if split.name.startswith("laboratory "):
            line = kept[split.chosen_without, QUANTITIES[quantity]]
            return line.mape_pct, line.p90_pct
        key = split.train.tobytes()
        if key not in found:
            start = problem.supported(everything.effects, split.train)
            found[key] = problem.predict(problem.fit(split.train, start, LEFT_OUT_STEPS).effects)
        return summary((found[key] - problem.measured)[quantity][test])

    return errors


def results() -> pd.DataFrame:
    """Return the table of all splits; the last rows are the means over laboratories and over networks."""
    rows = observations()
    found = compare(Baselines(rows), list(splits(rows)), pooled_model(rows))
    group = found["split"].str.extract(r"^(laboratory|PctoDL, [\w-]+)", expand=False)
    grouped = found.drop(columns="split").groupby([group.rename("split"), "quantity"], sort=False)
    means = grouped.mean().assign(n=grouped["n"].sum()).reset_index()
    return pd.concat([found, means.assign(split="mean of: " + means["split"])], ignore_index=True)


if __name__ == "__main__":
    print(results().to_string(index=False, float_format="{:.1f}".format))
