"""Errors of the device model on each public record, from fits that saw no row of it.

A record is what one repository published. It is left out whole: what it enters is fitted again without it, its times
are dropped, and what stands in their place follows from the other records (`data/calibration/records.csv` says what).
Spreads, which set the intervals alone, are those of all records.

A further record is one line of `RECORDS` and one of that table; `tables` yields the rows of tables like `times.csv`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from heshare.devices import derived_constants as derived
from heshare.devices.constants import Constants, Contention, Load, Timing
from heshare.devices.device_model import co_run
from heshare.lab.calibration import copies_fit, timing_constants
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.half_precision_fit import fit_half_precision
from heshare.lab.calibration.laws_fit import comparisons, fit_laws, fit_power_law, kind_of
from heshare.lab.calibration.measurements import EAGER_MODELS, MPS_MODELS, records, rows_of, table, without
from heshare.lab.calibration.power import load_fit, voltage_fit
from heshare.lab.calibration.timing_constants import TimingKey
from heshare.lab.calibration.training_fit import fit_instance, mig_instance_errors
from heshare.lab.calibration.validation.points import LeftOutPoint, coverage, table_of
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.time_slicing import time_slice_slowdown
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

GOALS = {"time": 12.0, "power": 10.0}
"""Goal of the median over the records of the mean absolute error, by quantity, %; ratios are slowdowns."""
MOST = 25.0
"""Largest acceptable mean absolute error of a record, %."""
_CARDS = {"A100 40 GB": "A100", "V100-SXM2 32 GB": "V100-SXM2"}
_IMAGES = frozenset(name for name, model in catalogue.models().items() if model.kind == "cnn")
_VOLTAS, _BY_LAW = ("V100", "V100-SXM2"), ("RTX-3080-Ti", "RTX-3090")
_LEAST_RATIO = 0.5
_GPT2_OVER_BERT_BASE = 1.44

GRID = "wuooo339/PctoDL"
_GRID_CHIPS = ("A100-40GB", "RTX-3080-Ti", "A100", "RTX-3090")
Lost = Callable[[TimingKey], bool]
"""Whether a timing came from a record."""


def errors_by_laboratory(calibration: Calibration) -> pd.DataFrame:
    """Return the errors of each record in fits without it, one row a record and quantity.

    Returns:
        Columns record, quantity, n, bias_pct (mean error), mape_pct and p90_pct (mean and 90th percentile of the
        absolute error), inside_pct (mean absolute error after one factor for all rows of the record), within_90_pct,
        interval_score (as in `coverage`), and without and note from `records.csv`.
    """
    rows = []
    for record, points in RECORDS.items():
        for quantity, part in table_of(points(calibration, record)).groupby("quantity", sort=False):
            error, held, logs = part.error_pct, coverage(part).iloc[0], np.log(part.modelled / part.measured)
            sizes = error.mean(), error.abs().mean(), error.abs().quantile(0.9)
            inside = 100.0 * np.abs(np.expm1(logs - logs.mean())).mean()
            rows.append((record, quantity, len(part), *sizes, inside, held.within_90_pct, held.interval_score))
    names = ("bias_pct", "mape_pct", "p90_pct", "inside_pct", "within_90_pct", "interval_score")
    return pd.DataFrame(rows, columns=["record", "quantity", "n", *names]).merge(table("records"), "left", "record")


def constants_without(calibration: Calibration, record: str, lost: Lost) -> Constants:
    """Return the constants without a record that says nothing of power or contention; others replace lost timings."""
    fitted = calibration.fitted
    kept = {key: timing for key, timing in fitted.timing.items() if not lost(key)}
    own = {key for key, one in calibration.half_timings.items() if one.source.startswith(record)}
    half_timing = {key: timing for key, timing in fitted.half_timing.items() if key not in own}
    with without(record):
        laws = fit_laws(fitted.power, frozenset(gpu for gpu, _, _ in kept))
        partial = replace(fitted, timing=kept, laws=replace(laws, power=fitted.laws.power))
        half = fit_half_precision(partial)
    if record != GRID:
        half |= {key: own for key, own in fitted.half.items() if key[0] in _GRID_CHIPS and key[1:] == ("eager", "cnn")}
    partial = replace(partial, half=half, half_timing=half_timing)
    found = {key: timing for key in fitted.timing if lost(key) and (timing := _replaced(partial, key))}
    return derived.complete_catalogue(replace(partial, timing=kept | found))


def _replaced(constants: Constants, key: TimingKey) -> Timing | None:
    (gpu, engine, name), models, laws = key, catalogue.models(), constants.laws
    have: dict[str, dict[str, Timing]] = {}
    for (other, own, network), timing in constants.timing.items():
        if own == engine and network in models and kind_of(network) == kind_of(name):
            have.setdefault(other, {})[network] = timing
    if not have or name not in models or laws.workload is None:
        return None
    card, others = catalogue.gpu(gpu), [catalogue.gpu(other) for other in have]
    base = catalogue.gpu(derived.nearest_by(laws.speed["cnn", "fp32"], card, others))
    timing = have[base.name].get(name) or derived.workload_timing(laws.workload, models[name], have[base.name], models)
    ratio = derived.speed_ratio(constants, card, base, kind_of(name), "fp32")
    return timing if base == card else derived.scaled_timing(timing, card, base, constants.power, *ratio)


def alone(rows: pd.DataFrame, constants: Constants) -> Iterator[LeftOutPoint]:
    """Yield times, or power where it is given, of rows as in `times.csv` whose network the catalogue has."""
    for row in records(rows[rows.workload.isin(list(catalogue.models()))]):
        gpu, precision = catalogue.gpu(_CARDS.get(row.gpu, row.gpu)), getattr(row, "precision", "fp32")
        workload = Workload(row.workload, int(row.batch_size), precision, getattr(row, "engine", "tensorrt"))
        residents = [Resident(workload, int(getattr(row, "mps_pct", 100)))] * int(getattr(row, "processes", 1))
        stated = co_run(gpu, residents, constants=constants)
        first, about = stated.tasks[0], ("alone", gpu.name, workload.model, str(residents[0]))
        values = "s", float(row.time_s), first.time_s, first.uncertainty_parts.total
        if hasattr(row, "power_w"):
            values = "W", float(row.power_w), stated.power_w, stated.power_uncertainty
        yield LeftOutPoint(*about, *values, catalogue.kind(workload.model), precision, workload.engine)


def tables(names: tuple[str, ...], lost: Lost, calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    constants = constants_without(calibration, record, lost)
    for name in names:
        yield from alone(rows_of(record, name), constants)


def igniter(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield times and power alone, and slowdowns of pairs."""
    fitted = calibration.fitted
    with without(record):
        turns = {name: copies_fit.two_process_rows(name) for name in copies_fit.TWO_PROCESS_MODELS}
        contention = copies_fit.fit_crowding(Contention(0.0, 0.0), turns)
        power = {gpu: replace(own, sharing=0.0, memory=contention.memory) for gpu, own in fitted.power.items()}
        law = fit_power_law({gpu: own for gpu, own in power.items() if gpu not in (*_VOLTAS, *_BY_LAW)})
        for card in map(catalogue.gpu, _VOLTAS):
            full_w = (law.dynamic + law.clock) * (card.tdp_w - card.idle_w)
            power[card.name] = replace(power[card.name], dynamic_w=full_w)
        timings = timing_constants.fit_all_timings(power, {}, copies_fit.fit_eager_timings(contention))
        timing = {key: one.timing for key, one in timings.items()}
        laws = replace(fit_laws(power, frozenset(gpu for gpu, _, _ in timing)), power=law)
    changed = replace(fitted, timing=timing, power=power, contention=dict.fromkeys(power, contention), laws=laws)
    constants = derived.complete_catalogue(changed)
    yield from alone(rows_of(record, "times"), constants)
    yield from alone(rows_of(record, "power").dropna(subset=["batch_size"]), constants)
    # Two of the four networks are of no other record, so pairs are slowdowns: without contention there are none.
    for row in records(calibration.pairs):
        setting, slowdown = f"{row.mps_pct} %", row.time_s / row.solo_s
        values = slowdown, 1.0, fitted.spreads.contention, "cnn"
        yield LeftOutPoint("pairs", "V100-SXM2", row.pair, setting, "1", *values)


def _with_hosts(calibration: Calibration, names: frozenset[str]) -> Calibration:
    """The calibration with the host times of these networks by their layers (prior)."""
    timing = dict(calibration.fitted.timing)
    for key, own in timing.items():
        if key[1] == "eager" and key[2] in names:
            host_s = timing_constants.HOST_PER_LAYER_S * catalogue.model(key[2]).layers
            timing[key] = replace(own, host_s=host_s)
    return replace(calibration, fitted=replace(calibration.fitted, timing=timing))


def parvagpu(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield times alone and two at once on the A100; taking turns without the constants that two processes settle."""
    names, known = _IMAGES | set(EAGER_MODELS), _with_hosts(calibration, _IMAGES)
    turns = {gpu: Contention(own.strength, own.wait_s) for gpu, own in known.fitted.contention.items()}
    known = replace(known, fitted=replace(known.fitted, contention=turns))
    yield from tables(("times",), lambda key: key[0] == "A100" and key[2] in names, known, record)


def slower_host(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    known = _with_hosts(calibration, _IMAGES - set(EAGER_MODELS))
    yield from tables(("times", "frameworks"), lambda _: False, known, record)


def mps_grid(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield times and power of FP16 CNNs under MPS; loads by the time of the SMs, as of diffusion models."""
    constants, full = constants_without(calibration, record, lambda _: False), load_fit.tensor_power("A100")
    load = Load(full.high_w / full.dynamic_w, 0.0, 0.0, constants.spreads.load)
    loads = {key: load if key[2] == "fp16" and own.operations_s else own for key, own in constants.loads.items()}
    assert constants.laws.power is not None
    power = {**constants.power, "RTX-3080-Ti": derived.scaled_power(constants.laws.power, catalogue.gpu("RTX-3080-Ti"))}
    constants = replace(constants, loads=loads, power=power)
    rows = rows_of(record, "mps_grid").assign(engine="eager", precision="fp16")
    rows = rows.assign(time_s=rows.batch_size * rows.processes / rows.throughput_per_s)
    yield from alone(rows.drop(columns="power_w"), constants)
    yield from alone(rows, constants)


def bert_half(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    rows = rows_of(record, "cards")
    rows = rows.assign(time_s=rows.batch_size / rows.per_s, engine="tensorrt")
    yield from alone(rows, constants_without(calibration, record, lambda _: False))


def bert_base(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield BERT base with 128 tokens as GPT-2, which is scaled from it."""
    rows = rows_of(record, "times").query("workload == 'bert_base_s128'")
    rows = rows.assign(workload="gpt2", time_s=rows.time_s * _GPT2_OVER_BERT_BASE)
    yield from alone(rows, constants_without(calibration, record, lambda key: key[2] == "gpt2"))


def t4_clocks(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield times at locked clocks over that at the highest of them."""
    gpu, rows, found = catalogue.gpu("T4"), rows_of(record, "times").sort_values("sm_mhz", ascending=False), []
    for row in records(rows):
        resident = Resident(Workload("bert_large", int(row.batch_size)))
        own = co_run(gpu, [resident], int(row.sm_mhz), constants=calibration.constants).tasks[0]
        found.append((row.time_s, own.time_s))
        if len(found) > 1:
            about = "clocks", gpu.name, row.workload, f"{row.sm_mhz:.0f} MHz", "s"
            ratios = found[-1][0] / found[0][0], found[-1][1] / found[0][1]
            yield LeftOutPoint(*about, *ratios, own.uncertainty_parts.within_framework, "transformer")


def card_speeds(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield the time of a sample on each GPU over that on the first one of a comparison."""
    compared = comparisons()
    compared = compared[compared.record.isin(rows_of(record, "cards").record)]
    constants = constants_without(calibration, record, lambda _: False)
    for (kind, precision, name), rows in compared.groupby(["kind", "precision", "workload"], sort=True):
        base, *others = records(rows)
        for row in others:
            cards = catalogue.gpu(row.gpu), catalogue.gpu(base.gpu)
            ratio, uncertainty = derived.speed_ratio(constants, *cards, str(kind), str(precision))
            values = base.per_s / row.per_s, 1.0 / ratio, uncertainty, str(kind), str(precision)
            yield LeftOutPoint("speeds", row.gpu, str(name), f"over {base.gpu}", "s", *values)


def instances(calibration: Calibration, _: str) -> Iterator[LeftOutPoint]:
    """Yield slowdowns of trainings in MIG instances, which enter no fit of instances."""
    constants = calibration.constants
    for row in records(mig_instance_errors(constants, fit_instance(constants))):
        values = row.measured, row.modelled, constants.spreads.beside(f"mig-{row.slices}g", 1), "training"
        yield LeftOutPoint("instances", "A100", row.workload, f"{row.slices} slices", "1", *values)


def training_pairs(calibration: Calibration, _: str) -> Iterator[LeftOutPoint]:
    for pair, slowdowns in training.measured_pairs():
        modelled = time_slice_slowdown([training.step(own).busy for own in pair])
        for slowdown in slowdowns:
            values = slowdown, modelled, calibration.constants.spreads.time_slice, "training"
            yield LeftOutPoint("pairs", "V100", str(pair[0]), str(pair[1]), "1", *values)


def sweep_power(gpu: str, other: str, calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield power of codes below the top clock, from that at the top clock and the voltage curve of another GPU."""
    rows, idle_w = voltage_fit.sweep_rows(gpu), catalogue.gpu(gpu).idle_w
    rows = rows[(rows.ratio < 1.0) & (rows.ratio >= _LEAST_RATIO)]
    with without(record):
        modelled_w = voltage_fit.modelled_w(rows, voltage_fit.voltage_curve(other), idle_w)
    dynamic = 1.0 - idle_w / modelled_w
    uncertainty = -calibration.constants.spreads.voltage * np.log(rows.ratio.to_numpy(float)) * dynamic
    yield from _powers(gpu, rows.assign(kind="code"), "application", modelled_w, uncertainty)


def saturated(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield power of diffusion models from that of INT8 networks on the PCIe cards, by SMs and clock."""
    with without(record):
        curve = voltage_fit.voltage_curve("A100")
        busy = voltage_fit.busy_power(curve)
    for gpu in ("A100", "H100"):
        rows, pcie = load_fit.saturated_rows(gpu), f"{gpu}-PCIe"
        dynamic_w = busy.of_kind(pcie, "cnn") * _sm_rate(gpu) / _sm_rate(pcie) - curve.clock_w
        modelled_w = load_fit.modelled_w(gpu, rows.load.to_numpy(float), curve, curve.clock_w, dynamic_w)
        yield from _powers(gpu, rows, "model", modelled_w, calibration.constants.spreads.load)


def _sm_rate(gpu: str) -> float:
    return catalogue.gpu(gpu).sm_count * catalogue.gpu(gpu).max_mhz


def products(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield power of matrix products on an H200, a part of full work by the peak rate and the bandwidth."""
    rows, gpu = rows_of(record, "gemm_power"), catalogue.gpu("H200")
    curve, weight = voltage_fit.voltage_curve("A100"), calibration.constants.power[gpu.name].memory
    compute_s = 2e-12 * rows.m * rows.n * rows.k / gpu.peak_tflops("fp16")
    memory_s = 2e-9 * (rows.m * rows.n + rows.m * rows.k + rows.n * rows.k) / gpu.mem_bw_gbs
    active = np.minimum(1.0, ((compute_s + weight * memory_s) / rows.time_s).to_numpy(float))
    modelled_w = load_fit.modelled_w(gpu.name, active, curve, *load_fit.fit_saturated("H100", curve))
    yield from _powers(gpu.name, rows.assign(kind="code"), "m", modelled_w, calibration.constants.spreads.load)


def _powers(
    gpu: str, rows: pd.DataFrame, item: str, modelled_w: FloatArray, uncertainty: FloatArray | float
) -> Iterator[LeftOutPoint]:
    stated = np.broadcast_to(uncertainty, len(rows)).tolist()
    for name, *values in zip(rows[item], rows.power_w, modelled_w, stated, rows.kind, strict=True):
        yield LeftOutPoint._make(("power", gpu, str(name), "", "W", *values, "fp16", ""))


def limits(calibration: Calibration, record: str) -> Iterator[LeftOutPoint]:
    """Yield time under a power limit over that without, from FP16 networks on the SXM cards, by SMs and clock."""
    rows = voltage_fit.limit_rows()
    with without(record):
        curve = voltage_fit.voltage_curve("A100")
        each_w = {f"{gpu}-PCIe": sum(load_fit.fit_saturated(gpu, curve)) / _sm_rate(gpu) for gpu in ("A100", "H100")}
    busy_w = np.array([each_w[gpu] * _sm_rate(gpu) for gpu in rows.gpu])
    for row, ratio in zip(records(rows), voltage_fit.throughput_left(rows, busy_w, curve).tolist(), strict=True):
        uncertainty = calibration.constants.spreads.limit * math.log(row.default_w / row.limit_w)
        setting = f"{row.submission} {row.limit_w} W"
        yield LeftOutPoint("limits", row.gpu, row.benchmark, setting, "s", 1.0 / row.rate, 1.0 / ratio, uncertainty)


def _of_paddle(key: TimingKey) -> bool:
    gpu, engine, name = key
    others = gpu == "A100" and name in EAGER_MODELS
    others |= (gpu, engine) == ("V100-SXM2", "tensorrt") and name in MPS_MODELS
    others |= gpu != "V100" and (engine, name) == ("eager", "resnet50")
    return kind_of(name) == "cnn" and not others


def _of_examples(key: TimingKey) -> bool:
    gpu, engine, name = key
    resnet = engine == "eager" and name == "resnet50" and gpu != "A100"
    return name == "bert_large" or resnet or (name == "gpt2" and gpu != "V100")


RECORDS: dict[str, Callable[[Calibration, str], Iterator[LeftOutPoint]]] = {
    "icloud-ecnu/igniter": igniter,
    "MunQ-Lee/ParvaGPU_SC24": parvagpu,
    "PaddlePaddle/PaddleClas": partial(tables, ("times",), _of_paddle),
    "NVIDIA/DeepLearningExamples": partial(tables, ("times", "frameworks"), _of_examples),
    "NVIDIA/FasterTransformer": partial(tables, ("times", "frameworks"), lambda key: kind_of(key[2]) == "decode"),
    "NVIDIA/TensorRT": bert_half,
    "microsoft/onnxruntime": bert_base,
    "apache/incubator-mxnet": partial(tables, ("times",), lambda _: False),
    "ryujaehun/pytorch-gpu-benchmark": slower_host,
    "boringlee24/NLP_on_T4": t4_clocks,
    "lambdal/deeplearning-benchmark": card_speeds,
    "huggingface/pytorch-image-models": card_speeds,
    "boringlee24/socc22-miso": instances,
    "stanford-futuredata/gavel": training_pairs,
    "ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models": partial(sweep_power, "A100", "V100"),
    "blackjack2015/NV-DVFS-Benchmark": partial(sweep_power, "V100", "A100"),
    "ml-energy/leaderboard-v2": saturated,
    "mlcommons/inference_results": limits,
    "ai-dynamo/aiconfigurator": products,
    GRID: mps_grid,
}
"""How each public record with times or power is predicted without it."""
