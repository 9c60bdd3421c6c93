"""Recorded profiles of one's own GPUs as a further laboratory of the pooled fit.

Their rows enter the same least squares as all public records. What they say of their GPUs, their program and its host
stands for these GPUs afterwards; everything else is shared with the other records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants, default
from heshare.devices.timing_effects import PROGRAMS, Effects
from heshare.devices.uncertainty import ALONE, SHARED
from heshare.lab.calibration import left_out
from heshare.lab.calibration.calibrate import contention_of, dynamic_and_clock_w, measured_rows
from heshare.lab.calibration.card_curves import card_curves, power_of
from heshare.lab.calibration.observations import observations, profile_rows
from heshare.lab.calibration.pooled_fit import PooledProblem, Values
from heshare.world import catalogue

LABORATORY = "own"
PROGRAM = f"{LABORATORY}|eager"
"""The program of the profiles; its own host counts."""
STEPS = 6
"""Steps of the fit, from the shipped effects."""


@dataclass(frozen=True)
class OwnFit:
    """A fit with profiles.

    Attributes:
        problem: the least squares; its last rows are those of the profiles.
        effects: the fitted effects.
        constants: the shipped constants, with those of the profiles' GPUs.
    """

    problem: PooledProblem
    effects: Values
    constants: Constants


def fit_with(profiles: pd.DataFrame, *, all_of_them: bool = True) -> OwnFit:
    """Return the fit to all records and to profiles of one or more GPUs.

    Args:
        profiles: rows as `heshare profile` records them; those of networks outside the catalogue are not fitted.
        all_of_them: whether all rows enter the fit; otherwise half of the settings do, and the others can test it.
    """
    added = tuple(row for _, table in profiles.groupby("gpu")
                for row in profile_rows(table, PROGRAM, all_of_them=all_of_them))  # fmt: skip
    rows = (*observations(), *added)
    idle_w = {str(name): float(watts) for name, watts in profiles.groupby("gpu")["idle_w"].mean().items()}
    cards = {row.gpu.name: row.gpu for row in rows}
    curves = {name: power_of(card_curves(gpu)) for name, gpu in cards.items()}
    curves |= {name: replace(curves[name], idle_w=watts) for name, watts in idle_w.items() if name in curves}

    problem = PooledProblem(rows, curves)
    used = np.array([not row.held_out for row in rows])
    values = problem.fit(used, default().timing.effects.values, STEPS).effects
    return OwnFit(problem, values, _constants(problem, values, idle_w))


def _constants(problem: PooledProblem, values: Values, idle_w: Mapping[str, float]) -> Constants:
    shipped = default()
    power, contention = dict(shipped.power), dict(shipped.contention)
    for name, watts in idle_w.items():
        gpu = catalogue.gpu(str(name))
        dynamic_w, clock_w = dynamic_and_clock_w(gpu, values, LABORATORY)
        power[gpu.name] = replace(power[gpu.name], idle_w=watts, dynamic_w=dynamic_w, clock_w=clock_w)
        contention[gpu.name] = contention_of(gpu, values)

    programs = {(gpu, "eager", "", ""): PROGRAM for gpu in idle_w}
    others = {key: program for key, program in PROGRAMS.items() if key[0] not in idle_w}
    timing = replace(
        shipped.timing, effects=Effects(values, measured_rows(problem.rows)), programs={**others, **programs},
        hosts=frozenset([PROGRAM]),
    )  # fmt: skip
    return replace(shipped, power=power, contention=contention, timing=timing)


def errors(profiles: pd.DataFrame) -> pd.DataFrame:
    """Return the errors on the half of the profiles' settings that a fit with the other half did not see.

    Returns:
        One row a model, quantity and sharing: model (`fitted` with the other half, or `shipped`), gpu, quantity
        (`time`, `power`), sharing (`alone`, `shared`), n, bias_pct, mape_pct, median_pct, p90_pct.
    """
    fit = fit_with(profiles, all_of_them=False)
    parts = []
    for model, effects in (("fitted", fit.effects), ("shipped", default().timing.effects.values)):  # noqa: PD011
        found = fit.problem.errors(effects)
        for row, (time, power) in zip(fit.problem.rows, found.T.tolist(), strict=True):
            if row.held_out and row.program == PROGRAM:
                sharing = SHARED if len(row.tasks) > 1 else ALONE
                parts += [(model, row.gpu.name, "time", sharing, time), (model, row.gpu.name, "power", sharing, power)]
    frame = pd.DataFrame(parts, columns=["model", "gpu", "quantity", "sharing", "error"])
    return left_out.errors_by(frame[frame["error"].notna()], ["model", "gpu", "quantity", "sharing"])
