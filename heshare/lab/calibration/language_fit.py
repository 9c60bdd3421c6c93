"""Fit of the law of language models to servers on one H100, and its errors on models left out one after the other.

A row of `data/calibration/language_models.csv` is a server that keeps a number of sequences going: the median time
between two tokens is that of a decode step; sequences over throughput are the mean time of a step, prompts included,
since a new prompt is processed together with the next step of the others. So the mean step holds
`sequences / output tokens` prompts, and power and energy are those of the mean step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import least_squares, nnls

from heshare.devices.constants import Constants, Power
from heshare.devices.iteration_time import overlap
from heshare.devices.language_models import FITTED_ON, LanguageLaw
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.calibration.card_curves import RangedValue
from heshare.lab.calibration.left_out import quantile
from heshare.lab.calibration.measurements import records, table
from heshare.shared.arrays import BoolArray, FloatArray
from heshare.world import catalogue

BANDWIDTH = 0.92
"""Reached bandwidth over the peak; assumed, since a free fit takes 1.0, which no kernel reaches."""
ASSUMED = {"gpu_spread": 0.2, "prefill_spread": 0.2}
"""Relative standard uncertainties beyond that of a model left out: other GPUs, a prefill by itself; assumed."""
PROMPT_TOKENS = {"gpqa": 250.0, "lm-arena-chat": 500.0, "sourcegraph-fim": 4000.0}
"""Mean tokens of a prompt by the set of requests; assumed, the record does not say. With them the reached rate is 0.54
of the peak; large matrix products alone reach 0.7 on an H200 (ai-dynamo/aiconfigurator)."""
MEAN_PLACE = 0.6
"""Tokens written so far over the mean output, in the mean over running sequences: long ones run longer; assumed."""
PRECISION = "fp16"
QUANTITIES = {"time": "s", "step": "s", "power": "W", "joules": "J"}
"""What a row holds, and its unit: decode step, mean step with prompts, board power, energy of a token."""
_START = np.log([3e-3, 3e-5, 0.4])


@dataclass(frozen=True)
class ServerRows:
    """n servers: models, settings as words, sequences, prompts a step, what a step moves and computes, measurements.

    Bytes and operations are those of a decode step and of one that also processes a prompt, (n, 2) each; `measured` is
    by `QUANTITIES`, (n,) each.
    """

    models: Sequence[str]
    settings: Sequence[str]
    sequences: FloatArray
    prompts: FloatArray
    moved: FloatArray
    operations: FloatArray
    measured: Mapping[str, FloatArray]

    def of(self, model: str) -> BoolArray:
        return np.array([name == model for name in self.models])


@cache
def server_rows() -> ServerRows:
    """Return the rows of the record, the context of a sequence as assumed above."""
    rows = records(table("language_models"))
    moved, operations = np.empty((len(rows), 2)), np.empty((len(rows), 2))
    for place, row in enumerate(rows):
        shape, prompt = catalogue.model(row.workload).language, PROMPT_TOKENS[row.requests]
        assert shape is not None
        running = replace(shape, context=prompt + MEAN_PLACE * row.output_tokens)
        for column, tokens in enumerate((0.0, prompt)):
            moved[place, column] = running.moved_bytes(row.batch_size, PRECISION, prompt_tokens=tokens)
            operations[place, column] = running.operations(row.batch_size, prompt_tokens=tokens)
    sequences = np.array([row.batch_size for row in rows])
    prompts = sequences / np.array([row.output_tokens for row in rows])
    columns = {"time": "time_s", "step": "step_s", "power": "power_w", "joules": "joules_per_token"}
    measured = {name: np.array([getattr(row, column) for row in rows]) for name, column in columns.items()}
    settings = [f"{row.requests} b{row.batch_size:.0f}" for row in rows]
    return ServerRows([row.workload for row in rows], settings, sequences, prompts, moved, operations, measured)


def step_times_s(law: LanguageLaw, rows: ServerRows) -> tuple[FloatArray, FloatArray]:
    """Return the time of a decode step and of the mean step with prompts, (n,) each, s."""
    gpu = catalogue.gpu(FITTED_ON)
    server_s = law.server_s(1.0) + law.sequence_s * (rows.sequences - 1.0)
    parts_s = [law.gpu_parts_s(gpu, 1.0, 0.0, PRECISION)[0], law.gpu_parts_s(gpu, 0.0, 1.0, PRECISION)[1]]
    gpu_s = overlap(parts_s[0] * rows.moved, parts_s[1] * rows.operations)
    return server_s + gpu_s[:, 0], server_s + gpu_s[:, 0] + rows.prompts * (gpu_s[:, 1] - gpu_s[:, 0])


def predicted(law: LanguageLaw, power: Power, rows: ServerRows) -> dict[str, FloatArray]:
    """Return what the law says by `QUANTITIES`, (n,) each; power is at most the limit of the GPU."""
    time_s, step_s = step_times_s(law, rows)
    traffic_s, operations_s = _energies_s(rows)
    dynamic = (law.traffic * traffic_s + law.operations * operations_s) / step_s
    limit_w = catalogue.gpu(FITTED_ON).tdp_w
    power_w = np.minimum(limit_w, _busy_w(law, power, rows, step_s) + power.dynamic_w * dynamic)
    return {"time": time_s, "step": step_s, "power": power_w, "joules": power_w * step_s / rows.sequences}


def _energies_s(rows: ServerRows) -> tuple[FloatArray, FloatArray]:
    # Bytes and operations of the mean step over the peak values, s.
    gpu = catalogue.gpu(FITTED_ON)
    moved, operations = (
        values[:, 0] + rows.prompts * (values[:, 1] - values[:, 0]) for values in (rows.moved, rows.operations)
    )
    return moved / (1e9 * gpu.mem_bw_gbs), operations / (1e12 * gpu.peak_tflops(PRECISION))


def _busy_w(law: LanguageLaw, power: Power, rows: ServerRows, step_s: FloatArray) -> FloatArray:
    # Power without bytes and operations, W: the clocks are busy while a kernel runs.
    server_s = law.step_s + law.sequence_s * rows.sequences
    return power.idle_w + power.idle_clock_w + power.clock_w * (1.0 - server_s / step_s)


def fit_law(power: Power, kept: BoolArray) -> LanguageLaw:
    """Return the law that fits the kept rows, (n,), with the smallest squares of relative errors."""
    rows = server_rows()

    def law_of(logs: FloatArray) -> LanguageLaw:
        step_s, sequence_s, compute = np.exp(logs).tolist()
        return LanguageLaw(step_s, sequence_s, BANDWIDTH, compute, 0.0, 0.0)

    def errors(logs: FloatArray) -> FloatArray:
        found = step_times_s(law_of(logs), rows)
        measured = rows.measured["time"], rows.measured["step"]
        ratios = [(one / other - 1.0)[kept] for one, other in zip(found, measured, strict=True)]
        return np.concatenate(ratios)

    law = law_of(least_squares(errors, _START, x_scale=0.1).x)
    step_s, measured_w = step_times_s(law, rows)[1], rows.measured["power"]
    columns = np.column_stack(_energies_s(rows)) * (power.dynamic_w / (step_s * measured_w))[:, None]
    left = 1.0 - _busy_w(law, power, rows, step_s) / measured_w
    (traffic, operations), _ = nnls(columns[kept], left[kept])
    return replace(law, traffic=float(traffic), operations=float(operations))


def left_out_laws(power: Power) -> dict[str, LanguageLaw]:
    """Return the law fitted without each model, by the model; its spreads are from the errors of the other models."""
    rows = server_rows()
    laws = {model: fit_law(power, ~rows.of(model)) for model in sorted(set(rows.models))}
    errors = {model: _log_errors(law, power, model) for model, law in laws.items()}
    others = {model: [errors[name] for name in errors if name != model] for model in laws}
    return {model: _with_spreads(law, others[model]) for model, law in laws.items()}


def _log_errors(law: LanguageLaw, power: Power, model: str) -> dict[str, FloatArray]:
    rows = server_rows()
    found, own = predicted(law, power, rows), rows.of(model)
    return {name: np.log(found[name] / rows.measured[name])[own] for name in QUANTITIES}


def _with_spreads(law: LanguageLaw, errors: Sequence[Mapping[str, FloatArray]]) -> LanguageLaw:
    time, power = (_spread([each[name] for each in errors]) for name in ("step", "power"))
    return replace(law, time_spread=time, power_spread=power, **ASSUMED)


def _spread(errors: Sequence[FloatArray]) -> float:
    # The spread whose 90 % interval holds nine in ten of the errors; each model weighs the same.
    weights = [np.full(len(part), 1.0 / len(part)) for part in errors]
    return quantile(np.concatenate(errors), np.concatenate(weights)) / NORMAL_90


def language_constants(constants: Constants) -> Iterator[tuple[tuple[str, ...], dict[str, RangedValue]]]:
    """Yield kind, GPU, engine and workload of the law, and its constants; ranges: a model left out."""
    power, rows = constants.power[FITTED_ON], server_rows()
    left_out = left_out_laws(power)
    law = fit_law(power, np.ones(len(rows.models), dtype=bool))
    law = _with_spreads(law, [_log_errors(one, power, model) for model, one in left_out.items()])
    source = "ml-energy/leaderboard: language models served on an H100; range: a model left out"
    assumed = {"bandwidth": "assumed: a free fit takes the whole peak", **dict.fromkeys(ASSUMED, "assumed")}
    ranges = {}
    for name, value in asdict(law).items():
        found = [getattr(one, name) for one in left_out.values()]
        ranges[name] = RangedValue(value, min(value, *found), max(value, *found), assumed.get(name, source))
    yield ("language model", "", "", ""), ranges
