"""The command `make calibrate`: fit the device model and rewrite the tables of its constants and errors.

`constants.csv` holds every constant with its unit, a range in which it may lie, and its source; `laboratories.csv` the
errors on each laboratory left out whole; `errors.csv` those on half of each record's settings; `coverage.csv` how often
the stated intervals hold on laboratories left out; `moved.csv` which records move which constants;
`language_errors.csv` the errors on language models.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from heshare.devices.constants import Constants, Contention, Power, Utilisation
from heshare.devices.device_model import co_run
from heshare.devices.timing_effects import Effects, Timings, terms
from heshare.devices.uncertainty import CELL, NORMAL_90, Spreads, Uncertainty
from heshare.lab.calibration import left_out
from heshare.lab.calibration.card_curves import PowerRanges, RangedValue, card_curves, power_of
from heshare.lab.calibration.language_fit import language_constants, language_errors
from heshare.lab.calibration.left_out import LeftOut
from heshare.lab.calibration.measurements import MPS_RECORD, records, table
from heshare.lab.calibration.observations import LIMIT, Observation, observations
from heshare.lab.calibration.pooled_fit import Fit, PooledProblem, Values, card_offsets, card_terms
from heshare.lab.calibration.training_fit import fit_instance, mig_instance_errors, training_constants
from heshare.lab.systems.miso.mig import COMPUTE
from heshare.shared import files
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import ENGINES, Resident, Workload

COLUMNS = ("kind", "gpu", "engine", "workload", "name", "value", "unit", "low", "high", "source")
UNITS = {"_w": "W", "_mhz": "MHz", "_s": "s"}
"""Unit of a constant by the end of its name; others have the unit 1."""
ARITHMETICS = ("fp32", "tf32", "fp16")
SMALLEST = 5e-4
"""Effects nearer to 0 than this are left out of the table."""
IDLE_SPREAD, TIME_SLICE_SPREAD = 0.1, 0.25
"""Relative standard deviation of idle power between cards of one type, and of slowdowns by time slices; assumed."""
LEAST_POWERS = 10
"""Rows with power from which on a record counts for the range of the GPUs' power."""
_MOVED = 3
_BANDWIDTH = 0.85
"""Reached bandwidth over the peak while memory time passes, V100-SXM2; assumed."""


@dataclass(frozen=True)
class Calibration:
    """The fit and what follows from it.

    Attributes:
        problem: the least squares.
        fit: the effects fitted to all rows but those held out.
        constants: the constants of the emulated GPUs.
        left_out: errors without each laboratory.
        halves: errors on half of the settings of each record, as from `left_out.group_table`.
        power: power of each GPU with ranges, by name.
    """

    problem: PooledProblem = field(repr=False)
    fit: Fit = field(repr=False)
    constants: Constants = field(repr=False)
    left_out: LeftOut = field(repr=False)
    halves: pd.DataFrame = field(repr=False)
    power: Mapping[str, PowerRanges] = field(repr=False)


def fit_device_model(progress: Callable[[str], None]) -> Calibration:
    """Fit the model to all records, and without each laboratory; `progress` gets its name."""
    rows = observations()
    cards = {row.gpu.name: row.gpu for row in rows} | dict(catalogue.gpus())
    curves = {name: card_curves(gpu) for name, gpu in cards.items()}
    problem = PooledProblem(rows, {name: power_of(ranges) for name, ranges in curves.items()})
    used = np.array([not row.held_out for row in rows])

    fit = problem.fit(used)
    without = left_out.laboratories(problem, fit, used, progress)
    errors = left_out.halves(problem, fit, used)
    cells = tuple(CELL for _ in rows)
    halves = left_out.group_table(problem, LeftOut(errors, cells, {}))

    gpus = catalogue.gpus()
    ratios = power_ratios(problem, without, curves)
    power = {name: curves[name] | _fitted_power(gpu, fit.effects, ratios) for name, gpu in gpus.items()}
    contention = {name: contention_of(gpu, fit.effects) for name, gpu in gpus.items()}
    counts = measured_rows(rows)
    timing = Timings(Effects(fit.effects, counts), gpus, catalogue.models())
    spreads = left_out.intervals(left_out.group_table(problem, without), halves)
    constants = Constants({name: power_of(ranges) for name, ranges in power.items()}, contention, timing)
    constants = replace(constants, utilisation=fit_utilisation(constants))
    constants = replace(constants, spreads=Spreads(spreads | _other_spreads(problem, fit, constants)))
    return Calibration(problem, fit, constants, without, halves, power)


def _fitted_power(gpu: Gpu, values: Values, ratios: tuple[float, float]) -> PowerRanges:
    # The range is that of the ratio of measured to modelled power above idle over the records left out.
    source = "all records with power; range: times the least and the largest ratio of a record left out"
    least, largest = ratios
    watts = dict(zip(("dynamic_w", "clock_w"), dynamic_and_clock_w(gpu, values), strict=True))
    return {name: RangedValue(value, least * value, largest * value, source) for name, value in watts.items()}


def power_ratios(problem: PooledProblem, without: LeftOut, curves: Mapping[str, PowerRanges]) -> tuple[float, float]:
    """Return the least and the largest ratio of measured to modelled power above idle of a record left out.

    A record is a laboratory on a GPU with at least `LEAST_POWERS` rows; its ratio is the geometric mean of them, and 1
    is always inside.
    """
    logs: dict[tuple[str, str], list[float]] = {}
    for row, error in zip(problem.rows, without.errors[1].tolist(), strict=True):
        idle_w = curves[row.gpu.name]["idle_w"].value
        modelled_w = row.power_w * math.exp(error)
        if min(row.power_w, modelled_w) > idle_w:
            ratio = (row.power_w - idle_w) / (modelled_w - idle_w)
            logs.setdefault((row.laboratory, row.gpu.name), []).append(math.log(ratio))
    ratios = [math.exp(float(np.mean(values))) for values in logs.values() if len(values) >= LEAST_POWERS]
    return min(1.0, *ratios), max(1.0, *ratios)


def dynamic_and_clock_w(gpu: Gpu, values: Values, laboratory: str = "") -> tuple[float, float]:
    """Return (`Power.dynamic_w`, `Power.clock_w`) of a GPU by fitted effects, or of a laboratory's own one."""
    return _of_card(gpu, "dynamic", values, laboratory), _of_card(gpu, "clock", values, laboratory)


def contention_of(gpu: Gpu, values: Values) -> Contention:
    """Return the contention of a GPU by fitted effects."""
    return Contention(_of_card(gpu, "steady", values), _of_card(gpu, "by_share", values))


def _of_card(gpu: Gpu, component: str, values: Values, laboratory: str = "") -> float:
    terms = (term for term in card_terms(gpu, laboratory) if term[0][0] == component)
    effects = (factor * values.get(name, 0.0) for name, factor in terms)
    return math.exp(card_offsets(gpu)[component] + sum(effects))


def measured_rows(rows: Sequence[Observation]) -> dict[tuple[str, str, str, str], int]:
    """Return the number of fitted rows of each (GPU, engine, arithmetic, network)."""
    found: dict[tuple[str, str, str, str], int] = {}
    for row in rows:
        for name in {task.network.name for task in row.tasks} if not row.held_out else ():
            key = row.gpu.name, row.engine, row.precision, name
            found[key] = found.get(key, 0) + 1
    return found


def _other_spreads(problem: PooledProblem, fit: Fit, constants: Constants) -> dict[tuple[str, str, str], Uncertainty]:
    # Hosts: of programs around the median one. MIG instances: per e-fold of slices below the whole GPU's.
    hosts = dict.fromkeys(problem.records, 0.0)
    for (component, effect, key), value in fit.effects.items():
        if component == "host" and effect in ("program", "record"):
            hosts |= {row: hosts[row] + value for row in hosts if row.startswith(key)}

    eager = {row.record for row in problem.rows if row.engine == "eager"}
    host = float(np.std([value for row, value in hosts.items() if row in eager]))

    steps = mig_instance_errors(constants, fit_instance(constants))
    logs = np.log(steps.modelled / steps.measured) / np.log(COMPUTE / steps.slices)
    mig = left_out.quantile(logs.to_numpy(float), np.ones(len(logs))) / NORMAL_90
    return {
        ("host", "", ""): Uncertainty(host, 0.0),
        ("idle", "", ""): Uncertainty(IDLE_SPREAD, IDLE_SPREAD),
        ("slowdown", "", "time-slice"): Uncertainty(TIME_SLICE_SPREAD, TIME_SLICE_SPREAD),
        ("slowdown", "", "mig"): Uncertainty(mig, mig),
    }


def fit_utilisation(constants: Constants) -> Utilisation:
    """Return the reported L2 and DRAM utilisation for the model's SM and memory activity, V100-SXM2.

    Memory time moves data at the bandwidth that was assumed for it; what is reported beyond that goes with SM time.
    """
    times = table("times")
    rows = times[(times.framework == MPS_RECORD) & times.l2_pct.notna()]
    gpu, activity = catalogue.gpu("V100-SXM2"), []
    for row in records(rows[rows.workload.isin(list(catalogue.models()))]):
        resident = Resident(Workload(row.workload, int(row.batch_size), engine="tensorrt"), int(row.mps_pct))
        task = co_run(gpu, [resident], constants=constants).tasks[0]
        activity.append((task.sm_util_pct, task.dram_util_pct, row.l2_pct, row.dram_pct))
    sms, memory, l2_pct, dram_pct = np.array(activity).T
    (l2,), _ = nnls(sms[:, None], l2_pct)
    (dram,), _ = nnls(sms[:, None], np.maximum(0.0, dram_pct - _BANDWIDTH * memory))
    return Utilisation(float(l2), float(dram), _BANDWIDTH)


def recalibrate(progress: Callable[[str], None] = lambda name: None) -> dict[str, pd.DataFrame]:
    """Fit, rewrite the tables, and return errors, coverage and moved constants by the files' names."""
    calibration = fit_device_model(progress)
    folder = files.root() / "data" / "calibration"
    files.write_text(folder / "constants.csv", constants_csv(calibration))
    tables = {
        "errors": error_table(calibration),
        "coverage": left_out.coverage(left_out.group_table(calibration.problem, calibration.left_out)),
        "laboratories": laboratory_table(calibration),
        "moved": moved_constants(calibration),
        "language_errors": language_errors(calibration.constants),
    }
    for name, found in tables.items():
        text = found.to_csv(index=False, float_format="%.3g", lineterminator="\n")
        files.write_text(folder / f"{name}.csv", text)
    return tables


def laboratory_table(calibration: Calibration) -> pd.DataFrame:
    """Return the errors on each laboratory in a fit without it, and in the fit of all rows that are not held out.

    Returns:
        Columns laboratory, quantity, n, bias_pct, mape_pct, median_pct, p90_pct, fitted_mape_pct, within_90_pct.
    """
    problem = calibration.problem
    frame = left_out.group_table(problem, calibration.left_out)
    spreads = calibration.constants.spreads.groups
    half_width = [NORMAL_90 * spreads[group].total for group in _groups(frame)]
    inside = (100.0 * (frame["error"].abs() <= half_width)).groupby([frame["laboratory"], frame["quantity"]]).mean()
    found = left_out.errors_by(frame, ["laboratory", "quantity"])

    errors = problem.errors(calibration.fit.effects)
    fitted = left_out.group_table(problem, replace(calibration.left_out, errors=errors))
    fitted_errors = left_out.errors_by(fitted, ["laboratory", "quantity"]).set_index(["laboratory", "quantity"])
    which = pd.MultiIndex.from_frame(found[["laboratory", "quantity"]])
    return found.assign(
        fitted_mape_pct=fitted_errors.loc[which, "mape_pct"].to_numpy(), within_90_pct=inside.loc[which].to_numpy()
    )


def _groups(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    # The group of intervals of each row of errors; ratios under a limit have their own.
    rows = frame[["quantity", "support", "sharing"]].itertuples(index=False, name=None)
    return [
        (LIMIT, "", "") if quantity == LIMIT else (quantity, support, sharing) for quantity, support, sharing in rows
    ]


def error_table(calibration: Calibration) -> pd.DataFrame:
    """Return the errors on settings left out of their record: half of each, and the H100's held-out half.

    Returns:
        Columns test, laboratory, quantity, sharing, n, bias_pct, mape_pct, median_pct, p90_pct.
    """
    problem = calibration.problem
    errors = problem.errors(calibration.fit.effects)
    errors[:, [not row.held_out for row in problem.rows]] = np.nan
    held = left_out.group_table(problem, replace(calibration.left_out, errors=errors))
    keys = ["laboratory", "quantity", "sharing"]
    parts = {"held-out half": held, "half of the settings": calibration.halves}
    found = [left_out.errors_by(part, keys).assign(test=name) for name, part in parts.items()]
    table = pd.concat(found, ignore_index=True)
    return table[["test", *table.columns.drop("test")]]


def moved_constants(calibration: Calibration) -> pd.DataFrame:
    """Return, for each record, the constants that it moves most: those with the largest part of all information.

    Returns:
        Columns record, component, effect, key, value, share_pct (of the information of rows and prior).
    """
    problem, fit = calibration.problem, calibration.fit
    used = np.array([not row.held_out for row in problem.rows])
    names, information = problem.information(fit, used)
    share = information / (information.sum(axis=0) + problem.precision)
    keys, rows = list(fit.effects), []
    for record, shares in zip(names, share, strict=True):
        moved = [place for place in np.argsort(-shares) if not _is_of_record(keys[place], record)][:_MOVED]
        rows += [(record, *keys[place], fit.effects[keys[place]], 100.0 * shares[place]) for place in moved]
    return pd.DataFrame(rows, columns=["record", "component", "effect", "key", "value", "share_pct"])


def _is_of_record(name: tuple[str, str, str], record: str) -> bool:
    # Whether an effect belongs to a record alone.
    return name[1] in ("record", "cell") and name[2].startswith(record)


def constants_csv(calibration: Calibration) -> str:
    """Return the table of constants as text."""
    rows = []
    for keys, ranges in _constants(calibration):
        for name, ranged in ranges.items():
            value, low, high = (f"{number:.4g}" for number in (ranged.value, ranged.low, ranged.high))
            unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "1")
            rows.append((*keys, name, value, unit, low, high, ranged.source))
    return pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(index=False, lineterminator="\n")


_Ranges = Iterator[tuple[tuple[str, ...], Mapping[str, RangedValue]]]


def _constants(calibration: Calibration) -> _Ranges:
    # Kind, GPU, engine and workload of constants, and these by name.
    yield from _power_constants(calibration)
    yield from _contention_constants(calibration)
    yield from _effect_constants(calibration)
    yield from _row_counts(calibration)
    yield from _utilisation_constants(calibration)
    yield from _interval_constants(calibration)
    yield from training_constants(calibration.constants)
    yield from language_constants(calibration.constants)


def _power_constants(calibration: Calibration) -> _Ranges:
    order = list(Power.__dataclass_fields__)
    for gpu, power in calibration.power.items():
        yield ("power", gpu, "", ""), {name: power[name] for name in order}


def _contention_constants(calibration: Calibration) -> _Ranges:
    # The range of a fitted constant is that over the fits without a laboratory.
    source = "unequal pairs, equal processes, pairs of networks, sets: all records together"
    for gpu, contention in calibration.constants.contention.items():
        card = catalogue.gpu(gpu)
        ranges = {name: RangedValue.within(each, 0.3, "chosen by form") for name, each in asdict(contention).items()}
        for name in ("steady", "by_share"):
            value = _of_card(card, name, calibration.fit.effects)
            others = [_of_card(card, name, effects) for effects in calibration.left_out.fits.values()]
            ranges[name] = RangedValue(value, min(value, *others), max(value, *others), source)
        yield ("contention", gpu, "", ""), ranges


def _effect_constants(calibration: Calibration) -> _Ranges:
    # The effects on any network of the catalogue on any of its GPUs.
    timing, values = calibration.constants.timing, calibration.fit.effects
    names: dict[tuple[str, str, str], None] = {}
    networks = [name for name, model in catalogue.models().items() if model.language is None]
    for gpu, engine, network, precision in product(catalogue.gpus(), ENGINES, networks, ARITHMETICS):
        names |= dict.fromkeys(name for name, _ in terms(timing.cell(gpu, engine, network, precision)))

    source = "heshare.lab.calibration.pooled_fit; range: a laboratory left out"
    fits = calibration.left_out.fits.values()
    for component, effect, key in sorted(names):
        value = values.get((component, effect, key), 0.0)
        if abs(value) >= SMALLEST:
            others = [effects.get((component, effect, key), 0.0) for effects in fits]
            ranged = RangedValue(value, min(value, *others), max(value, *others), source)
            yield ("effect", "", component, effect), {key: ranged}


def _row_counts(calibration: Calibration) -> _Ranges:
    for (gpu, engine, precision, network), count in calibration.constants.timing.effects.rows.items():
        if gpu in catalogue.gpus() and network in catalogue.models():
            yield ("rows", gpu, engine, network), {precision: RangedValue(count, count, count, "rows in the fit")}


def _utilisation_constants(calibration: Calibration) -> _Ranges:
    source = "icloud-ecnu/igniter: L2 and DRAM utilisation by inference batch size and MPS percentage"
    values = asdict(calibration.constants.utilisation)
    yield ("utilisation", "", "", ""), {name: RangedValue.within(each, 0.3, source) for name, each in values.items()}


def _interval_constants(calibration: Calibration) -> _Ranges:
    source = "quantile of absolute log errors of what was left out; idle, time slices: assumed"
    for keys, uncertainty in calibration.constants.spreads.groups.items():
        yield ("interval", *keys), {name: RangedValue(u, u, u, source) for name, u in asdict(uncertainty).items()}
