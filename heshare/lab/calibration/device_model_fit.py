"""Fit of the whole device model to the public measurements: times, power, contention, half precision, utilisation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from heshare.devices.constants import Constants, Contention, Power, Utilisation
from heshare.devices.derived_constants import complete_catalogue
from heshare.devices.device_model import co_run
from heshare.lab.calibration import contention_fit, copies_fit, grid_fit, timing_constants, uncertainty_fit
from heshare.lab.calibration.half_precision_fit import fit_half_precision, fit_half_timings
from heshare.lab.calibration.laws_fit import fit_laws
from heshare.lab.calibration.measurements import MPS_RECORD, records, table
from heshare.lab.calibration.power.load_fit import fit_loads
from heshare.lab.calibration.power_fit import PowerRanges, RangedValue, consumer_cards, fit_power
from heshare.lab.calibration.time_fit import FittedTiming
from heshare.lab.calibration.timing_constants import BANDWIDTH, TimingKey
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload


@dataclass(frozen=True)
class Calibration:
    """Fitted constants of the device model, with the report of each fit.

    `grid` are the timings of the grid of MPS percentages in FP16, networks outside the catalogue among them; `fitted`
    are constants and laws, `constants` the same with every GPU and network; `pairs` come with their slowdown by power
    limit and taking turns alone; `left_out` is the fit of taking turns without one workload's times of two processes,
    by workload.
    """

    timings: Mapping[TimingKey, FittedTiming]
    half_timings: Mapping[TimingKey, FittedTiming]
    grid: Mapping[TimingKey, FittedTiming]
    power: Mapping[str, PowerRanges]
    fitted: Constants = field(repr=False)
    constants: Constants = field(repr=False)
    pairs: pd.DataFrame = field(repr=False)
    crowding: Mapping[str, RangedValue] = field(repr=False)
    left_out: Mapping[str, Contention] = field(repr=False)
    spreads: uncertainty_fit.SpreadRanges


def fit_device_model() -> Calibration:
    """Run every fit: times alone, taking turns, power, times of throttled GPUs, and contention.

    Each fit takes the results of the earlier ones. Contention is fitted twice, since the slowdown that the power limit
    and taking turns cause can only be computed once times and power are known.
    """
    mps, pairs = timing_constants.fit_mps_timings(), contention_fit.pair_rows()
    contention = contention_fit.fit_contention(pairs)
    turns = {name: copies_fit.two_process_rows(name) for name in copies_fit.TWO_PROCESS_MODELS}
    contention = copies_fit.fit_crowding(contention, turns)
    left_out = copies_fit.left_out_fits(contention, turns)
    source = "MunQ-Lee/ParvaGPU_SC24: two processes on one A100; range: a workload left out"
    found = {name: [getattr(fit, name) for fit in (contention, *left_out.values())] for name in copies_fit.CROWDING}
    crowding = {name: RangedValue(own[0], min(own), max(own), source) for name, own in found.items()}
    eager = copies_fit.fit_eager_timings(contention)
    ranges = fit_power(mps, crowding["memory"], contention)
    power = _powers(ranges)
    timings = timing_constants.fit_all_timings(power, mps, eager)
    timing = {key: fitted.timing for key, fitted in timings.items()}
    draft = Constants(timing, power, dict.fromkeys(power, contention), {})
    crowding["sharpness"], pairs = contention_fit.fit_sharpness(pairs, draft)
    within = contention_fit.fit_contention(pairs)
    sharpness = crowding["sharpness"].value
    contention = replace(contention, strength=within.strength, wait_s=within.wait_s, sharpness=sharpness)
    draft = replace(draft, contention=dict.fromkeys(power, contention))
    timed = frozenset(gpu for gpu, _, _ in timing)
    grid = grid_fit.fit_grid_timings(contention)
    energies = grid_fit.fit_energies(grid, power["A100-40GB"].clock_w)
    laws = fit_laws(power, timed)
    assert laws.power is not None
    ranges |= consumer_cards(energies["RTX-3080-Ti"], laws.power)
    power = _powers(ranges)
    loads = fit_loads(ranges["A100"]["memory"].value) | grid_fit.rated_loads(energies, power)
    draft = replace(draft, loads=loads, power=power)
    half, utilisation = fit_half_precision(draft), fit_utilisation(draft)
    fitted = replace(draft, half=half, utilisation=utilisation, laws=laws)
    fitted = replace(fitted, half=half | grid_fit.fit_grid_halves(complete_catalogue(fitted)))
    half_timings = fit_half_timings(complete_catalogue(fitted)) | grid_fit.of_catalogue(grid)
    fitted = replace(fitted, half_timing={key: one.timing for key, one in half_timings.items()})
    spreads = uncertainty_fit.fit_spreads(fitted, pairs)
    fitted = replace(fitted, spreads=uncertainty_fit.stated(spreads))
    constants = complete_catalogue(fitted)
    return Calibration(timings, half_timings, grid, ranges, fitted, constants, pairs, crowding, left_out, spreads)


def _powers(ranges: Mapping[str, PowerRanges]) -> dict[str, Power]:
    return {gpu: Power(**{name: ranged.value for name, ranged in values.items()}) for gpu, values in ranges.items()}


def fit_utilisation(constants: Constants) -> Utilisation:
    """Return the reported L2 and DRAM utilisation for the model's SM and memory activity, V100-SXM2.

    Memory time moves data at the bandwidth that was assumed for it; what is reported beyond that goes with SM time.
    """
    times = table("times")
    rows = times[(times.framework == MPS_RECORD) & times.l2_pct.notna()]
    gpu, activity = catalogue.gpu("V100-SXM2"), []
    for row in records(rows):
        resident = Resident(Workload(row.workload, int(row.batch_size), engine="tensorrt"), int(row.mps_pct))
        task = co_run(gpu, [resident], constants=constants).tasks[0]
        activity.append((task.sm_util_pct, task.dram_util_pct))
    columns = np.array(activity)
    (l2,), _ = nnls(columns[:, :1], rows.l2_pct.to_numpy(float))
    moved = BANDWIDTH["V100-SXM2"]
    (sms,), _ = nnls(columns[:, :1], np.maximum(0.0, rows.dram_pct.to_numpy(float) - moved * columns[:, 1]))
    return Utilisation(float(l2), float(sms), moved)
