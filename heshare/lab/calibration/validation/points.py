"""Left-out points: a measurement that a fit did not see, what the model says, and the uncertainty that it states."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants
from heshare.devices.device_model import co_run
from heshare.lab.calibration.intervals import interval_score
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue
from heshare.world.workload import Resident

QUANTITIES = {"s": "time", "W": "power", "MHz": "clock", "J": "energy", "1": "ratio"}
"""Quantity of a point, by its unit."""
LEVELS = {68: 0.994, 90: 1.645}
"""Standard deviations to both sides of a normal interval, by its probability in %."""
LEAST_GROUP = 20
"""Points above which a group's coverage is held against the target."""
COVERAGE_TARGET = (82.0, 97.0)
"""Range in which the stated 90 % interval should hold over all points, %."""
_SMALLEST = 1e-6
GROUPINGS = ("test", "gpu", "kind", "precision", "engine", "quantity")
"""Columns by which coverage is shown."""


class LeftOutPoint(NamedTuple):
    """One measurement left out of a fit; `item` is what was left out or measured.

    `uncertainty` is the relative standard uncertainty that the model states, NaN where none; `kind` is `cnn`,
    `transformer`, `decode`, `training` or `code`; empty where none applies, as `engine`.
    """

    test: str
    gpu: str
    item: str
    setting: str
    unit: str
    measured: float
    modelled: float
    uncertainty: float = np.nan
    kind: str = ""
    precision: str = "fp32"
    engine: str = ""


def points(
    test: str,
    gpu: str,
    item: str,
    settings: Iterable[str],
    unit: str,
    measured: FloatArray,
    modelled: FloatArray,
    uncertainty: FloatArray | float = np.nan,
    kind: str = "",
    precision: str = "fp32",
    engine: str = "",
) -> Iterator[LeftOutPoint]:
    """Yield n points that have all but settings and values in common; `uncertainty` is one for all or (n,)."""
    stated = np.broadcast_to(uncertainty, len(measured)).tolist()
    for setting, *values in zip(settings, measured.tolist(), modelled.tolist(), stated, strict=True):
        yield LeftOutPoint._make((test, gpu, item, setting, unit, *values, kind, precision, engine))


def cell_point(
    test: str,
    constants: Constants,
    gpu: str,
    residents: Sequence[Resident],
    measured: float,
    modelled: float,
    *,
    unit: str = "s",
    item: str = "",
    setting: str = "",
    sm_mhz: int | None = None,
) -> LeftOutPoint:
    """Return the point of the first of `residents`, with the uncertainty that `co_run` states for it.

    `unit` is s or W (board power); `item` is what was left out, the workload unless given; `setting` are words for the
    residents; `sm_mhz` is the locked clock, None for the card's own.
    """
    workload = residents[0].workload
    stated = co_run(catalogue.gpu(gpu), residents, sm_mhz, constants=constants)
    parts = stated.power_uncertainty_parts if unit == "W" else stated.tasks[0].uncertainty_parts
    return LeftOutPoint(
        test,
        gpu,
        item or workload.model,
        setting or " beside ".join(map(str, residents)),
        unit,
        measured,
        modelled,
        parts.within_framework,
        "training" if workload.phase == "training" else catalogue.kind(workload.model),
        workload.precision,
        workload.engine,
    )


def table_of(points: Iterable[LeftOutPoint]) -> pd.DataFrame:
    """Return points as a table: the fields of `LeftOutPoint`, quantity, error_pct and deviations.

    `deviations` is |ln(modelled / measured)| over the stated uncertainty; NaN where none is stated.
    """
    table = pd.DataFrame([LeftOutPoint(*point) for point in points], columns=list(LeftOutPoint._fields))
    ratio = table.modelled / table.measured
    return table.assign(
        quantity=table.unit.map(QUANTITIES),
        error_pct=100.0 * (ratio - 1.0),
        deviations=np.abs(np.log(ratio)) / table.uncertainty,
    )


def coverage(points: pd.DataFrame) -> pd.DataFrame:
    """Return how often the stated 68 and 90 % intervals hold and how sharp they are, over all points and by group.

    `points` is a table as from `table_of`; points without a stated uncertainty are left out.

    Returns:
        Columns grouping (`all` or one of `GROUPINGS`), group, n, within_68_pct, within_90_pct (of the points),
        median_uncertainty_pct, interval_score (mean `interval_score`), sharpness (mean half width of the 90 % interval
        over the 90th percentile of the absolute errors, both of the logarithm).
    """
    stated = points[points.uncertainty.notna()]
    groups = [("all", "", stated)]
    groups += [
        (column, str(name), part)
        for column in GROUPINGS
        for name, part in stated.groupby(column, sort=column != "test")
        if str(name)
    ]
    rows = [(grouping, name, *_intervals(part)) for grouping, name, part in groups]
    held = [f"within_{level}_pct" for level in LEVELS]
    columns = ["grouping", "group", "n", *held, "median_uncertainty_pct", "interval_score", "sharpness"]
    return pd.DataFrame(rows, columns=columns)


def _intervals(points: pd.DataFrame) -> tuple[float, ...]:
    held = [100.0 * float((points.deviations <= sigmas).mean()) for sigmas in LEVELS.values()]
    half_width, error = LEVELS[90] * points.uncertainty, points.deviations * points.uncertainty
    score = float(interval_score(error.to_numpy(float), half_width.to_numpy(float)).mean())
    median_pct = 100.0 * float(points.uncertainty.median())
    return len(points), *held, median_pct, score, float(half_width.mean() / max(float(error.quantile(0.9)), _SMALLEST))
