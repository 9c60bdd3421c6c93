"""Fit of the law of language models to servers on an H100 and to LLaMA 7B on an A100, and its errors.

A row of `data/calibration/language_models.csv` is a server that keeps a number of sequences going: the median time
between two tokens is that of a decode step; sequences over throughput are the mean time of a step, prompts included,
since a new prompt is processed together with the next step of the others. So the mean step holds
`sequences / output tokens` prompts, and power and energy are those of the mean step.

A row of `language_shares.csv` is one decode step and one prefill at an MPS percentage. At 100 % both are fitted as they
are, below it the slowdown of the decode step.

Half of both records is held out: every other row of a model with one set of requests, and every other pair of
sequences and tokens. The forms of the law were chosen by the errors on models left out and on the card left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, nnls

from heshare.devices.constants import Constants, Power
from heshare.devices.language_models import FITTED_ON, LanguageLaw, Work
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.calibration.card_curves import RangedValue
from heshare.lab.calibration.left_out import errors_by, quantile
from heshare.lab.calibration.measurements import records, table
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.world import catalogue
from heshare.world.language_model import LanguageModel

BANDWIDTH = 0.92
"""Bandwidth of a kernel that streams over the peak; assumed, a free fit takes 0.98."""
STREAMING_HOPPER = 0.2
"""`streaming` of Hopper; assumed: from 40 % of its SMs on it reaches its best bandwidth."""
ASSUMED = {"gpu_spread": 0.2, "prefill_spread": 0.2}
"""Relative standard uncertainties beyond that of a model left out: other GPUs, a prefill by itself; assumed."""
PROMPT_TOKENS = {"gpqa": 250.0, "lm-arena-chat": 500.0, "sourcegraph-fim": 2000.0}
"""Mean tokens of a prompt by the set of requests; assumed, the record does not say."""
MEAN_PLACE = 0.5
"""Tokens written so far over the mean output, in the mean over running sequences; assumed."""
LLAMA_7B = LanguageModel(32, 6738.0, 6738.0, 32, 32, 128, 1.0, full_layers=32, embedding_m=131.1)
"""LLaMA 7B; recalled."""
SHARES_ON = "A100"
LEAST_PREFILL = 256.0
"""Tokens below which a prefill of LLaMA 7B waits for its host, 14 ms whatever their number."""
PRECISION = "fp16"
QUANTITIES = {"time": "s", "step": "s", "power": "W", "joules": "J"}
"""What a row of a server holds, and its unit: decode step, mean step with prompts, board power, energy of a token."""
_START = {"step_s": 1e-3, "sequence_s": 3e-5, "launch_cycles": 6e4, "rate": 0.6, "streaming": 0.4}
_NO_RANGE = {"bandwidth": "assumed: a free fit takes 0.98, which no kernel reaches", "streaming_hopper": "assumed"}


@dataclass(frozen=True)
class ServerRows:
    """n servers: models, settings as words, sequences, prompts a step, work, measurements, and what may be fitted.

    `decode` is the work of a decode step, `prompt` that of one which also processes a prompt; `measured` is by
    `QUANTITIES`, (n,) each.
    """

    models: Sequence[str]
    settings: Sequence[str]
    sequences: FloatArray
    prompts: FloatArray
    decode: Work
    prompt: Work
    measured: Mapping[str, FloatArray]
    fitted: BoolArray

    def of(self, model: str) -> BoolArray:
        return np.array([name == model for name in self.models])

    @property
    def mean_step(self) -> Work:
        """Work of the mean step."""
        pairs = zip(astuple(self.decode), astuple(self.prompt), strict=True)
        return Work(*(one + self.prompts * (other - one) for one, other in pairs))


@dataclass(frozen=True)
class ShareRows:
    """n settings of LLaMA 7B on the A100: sequences, share of the SMs, tokens, work, measurements.

    `whole` is the row of the same setting with all SMs; the times are in s, NaN where memory did not suffice.
    """

    sequences: FloatArray
    shares: FloatArray
    tokens: FloatArray
    decode: Work
    prefill: Work
    decode_s: FloatArray
    prefill_s: FloatArray
    whole: IntArray
    fitted: BoolArray

    @property
    def is_whole(self) -> BoolArray:
        whole: BoolArray = self.shares == 1.0
        return whole


@cache
def server_rows() -> ServerRows:
    """Return the rows of the servers, the context of a sequence as assumed above."""
    rows = records(table("language_models"))
    decode, prompt = [], []
    for row in rows:
        shape, tokens = catalogue.model(row.workload).language, PROMPT_TOKENS[row.requests]
        assert shape is not None
        running = replace(shape, context=tokens + MEAN_PLACE * row.output_tokens)
        decode.append(Work.of(running, row.batch_size, PRECISION))
        prompt.append(Work.of(running, row.batch_size, PRECISION, prompt_tokens=tokens))

    sequences = np.array([row.batch_size for row in rows])
    prompts = sequences / np.array([row.output_tokens for row in rows])
    columns = {"time": "time_s", "step": "step_s", "power": "power_w", "joules": "joules_per_token"}
    measured = {name: np.array([getattr(row, column) for row in rows]) for name, column in columns.items()}
    settings = [f"{row.requests} b{row.batch_size:.0f}" for row in rows]
    order = table("language_models").groupby(["workload", "requests"]).cumcount().to_numpy()
    models = [row.workload for row in rows]
    return ServerRows(
        models, settings, sequences, prompts, _stacked(decode), _stacked(prompt), measured, order % 2 == 0
    )


@cache
def share_rows() -> ShareRows:
    """Return the rows of LLaMA 7B at MPS percentages."""
    frame = table("language_shares").dropna(subset=["decode_s"]).reset_index(drop=True)
    pairs = list(zip(frame.batch_size.tolist(), frame.sequence.tolist(), strict=True))
    shapes = [replace(LLAMA_7B, context=float(tokens)) for _, tokens in pairs]
    decode = [Work.of(shape, size, PRECISION) for shape, (size, _) in zip(shapes, pairs, strict=True)]
    prefill = [
        Work.of(replace(shape, prefill=True), size, PRECISION) for shape, (size, _) in zip(shapes, pairs, strict=True)
    ]
    all_sms = {pair: place for place, pair in enumerate(pairs) if frame.mps_pct[place] == 100}

    sizes, lengths = (sorted(set(values)) for values in zip(*pairs, strict=True))
    odd = [(sizes.index(size) + lengths.index(tokens)) % 2 for size, tokens in pairs]
    return ShareRows(
        sequences=frame.batch_size.to_numpy(float),
        shares=frame.mps_pct.to_numpy(float) / 100.0,
        tokens=np.array([float(size * tokens) for size, tokens in pairs]),
        decode=_stacked(decode),
        prefill=_stacked(prefill),
        decode_s=frame.decode_s.to_numpy(float),
        prefill_s=frame.prefill_s.to_numpy(float),
        whole=np.array([all_sms[pair] for pair in pairs]),
        fitted=np.array(odd) == 0,
    )


def _stacked(works: Sequence[Work]) -> Work:
    return Work(*np.array([astuple(work) for work in works]).T)


def step_times_s(law: LanguageLaw, rows: ServerRows) -> tuple[FloatArray, FloatArray]:
    """Return the time of a decode step and of the mean step with prompts, (n,) each, s."""
    gpu, server_s = catalogue.gpu(FITTED_ON), law.server_s(rows.sequences)
    decode_s, prompt_s = (law.gpu_s(gpu, work, PRECISION, 1.0) for work in (rows.decode, rows.prompt))
    return server_s + decode_s, server_s + decode_s + rows.prompts * (prompt_s - decode_s)


def share_times_s(law: LanguageLaw, rows: ShareRows) -> tuple[FloatArray, FloatArray]:
    """Return the time of a decode step and of a prefill, (n,) each, s."""
    gpu = catalogue.gpu(SHARES_ON)
    decode_s, prefill_s = (law.gpu_s(gpu, work, PRECISION, rows.shares) for work in (rows.decode, rows.prefill))
    return law.server_s(rows.sequences) + decode_s, law.step_s + prefill_s


def predicted(law: LanguageLaw, power: Power, rows: ServerRows) -> dict[str, FloatArray]:
    """Return what the law says by `QUANTITIES`, (n,) each; power is at most the limit of the GPU."""
    gpu, (time_s, step_s) = catalogue.gpu(FITTED_ON), step_times_s(law, rows)
    drawn_w = _busy_w(law, power, rows, step_s) + law.energy_j(gpu, rows.mean_step, PRECISION) / step_s
    power_w = np.minimum(gpu.tdp_w, drawn_w)
    return {"time": time_s, "step": step_s, "power": power_w, "joules": power_w * step_s / rows.sequences}


def _busy_w(law: LanguageLaw, power: Power, rows: ServerRows, step_s: FloatArray) -> FloatArray:
    # Power without bytes and operations, W: the clocks are busy while a kernel runs.
    busy = 1.0 - law.server_s(rows.sequences) / step_s
    busy_w: FloatArray = power.idle_w + power.idle_clock_w + power.clock_w * busy
    return busy_w


def fit_law(power: Power, servers: BoolArray, shares: BoolArray) -> LanguageLaw:
    """Return the law that fits the kept rows, (n,) of each record, with the smallest squares of relative errors."""

    def law_of(logs: FloatArray) -> LanguageLaw:
        values = dict(zip(_START, np.exp(logs).tolist(), strict=True))
        return LanguageLaw(bandwidth=BANDWIDTH, streaming_hopper=STREAMING_HOPPER, **values)

    def errors(logs: FloatArray) -> FloatArray:
        law = law_of(logs)
        return np.concatenate([*_server_errors(law, servers), *_share_errors(law, shares)])

    law = law_of(least_squares(errors, np.log(list(_START.values())), x_scale=0.1).x)
    return replace(law, **_energies(law, power, servers))


def _server_errors(law: LanguageLaw, kept: BoolArray) -> list[FloatArray]:
    rows = server_rows()
    measured = rows.measured["time"], rows.measured["step"]
    return [(one / other - 1.0)[kept] for one, other in zip(step_times_s(law, rows), measured, strict=True)]


def _share_errors(law: LanguageLaw, kept: BoolArray) -> list[FloatArray]:
    # The seven shares of a setting count as one row.
    rows = share_rows()
    decode_s, prefill_s = share_times_s(law, rows)
    decode, prefill = decode_s / rows.decode_s, prefill_s / rows.prefill_s
    slowdown = decode / decode[rows.whole]
    whole, long = kept & rows.is_whole, rows.tokens >= LEAST_PREFILL
    parts = [decode[whole], prefill[whole & long], slowdown[kept & ~rows.is_whole]]
    weights = 1.0, 1.0, 7.0**-0.5
    return [weight * (part - 1.0) for weight, part in zip(weights, parts, strict=True)]


def _energies(law: LanguageLaw, power: Power, kept: BoolArray) -> dict[str, float]:
    # Energy of a step is power times its measured time, so that errors of the modelled time stay out.
    rows, gpu = server_rows(), catalogue.gpu(FITTED_ON)
    step_s, measured_w = rows.measured["step"], rows.measured["power"]
    names = "weight_energy", "cache_energy", "tile_energy"
    columns = [replace(law, **{name: 1.0}).energy_j(gpu, rows.mean_step, PRECISION) for name in names]
    scaled = np.column_stack(columns) / (step_s * measured_w)[:, None]
    left = 1.0 - _busy_w(law, power, rows, step_s) / measured_w
    values, _ = nnls(scaled[kept], left[kept])
    return dict(zip(names, values.tolist(), strict=True))


def left_out_laws(power: Power) -> dict[str, LanguageLaw]:
    """Return the law fitted without each model, by the model; its spreads are from the errors of the other models."""
    rows, shares = server_rows(), share_rows()
    laws = {model: fit_law(power, rows.fitted & ~rows.of(model), shares.fitted) for model in sorted(set(rows.models))}
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


def fitted_law(power: Power) -> LanguageLaw:
    """Return the law fitted to the rows that are not held out, without spreads."""
    return fit_law(power, server_rows().fitted, share_rows().fitted)


def language_constants(constants: Constants) -> Iterator[tuple[tuple[str, ...], dict[str, RangedValue]]]:
    """Yield kind, GPU, engine and workload of the law, and its constants; ranges: a model left out."""
    power = constants.power[FITTED_ON]
    left_out = left_out_laws(power)
    law = _with_spreads(fitted_law(power), [_log_errors(one, power, model) for model, one in left_out.items()])
    source = "ml-energy/leaderboard, H100, and hao-ai-lab/MuxServe, A100: half of each; range: a model left out"
    assumed = {**_NO_RANGE, **dict.fromkeys(ASSUMED, "assumed")}
    ranges = {}
    for name, value in asdict(law).items():
        found = [getattr(one, name) for one in left_out.values()]
        ranges[name] = RangedValue(value, min(value, *found), max(value, *found), assumed.get(name, source))
    yield ("language model", "", "", ""), ranges


def language_errors(constants: Constants) -> pd.DataFrame:
    """Return the errors of the law on what it was fitted to, on what was held out, and on what was left out whole.

    Returns:
        Columns test, record, quantity, n, bias_pct, mape_pct, median_pct, p90_pct.
    """
    power, servers, shares = constants.power[FITTED_ON], server_rows(), share_rows()
    law = fitted_law(power)
    parts = []
    for test, fitted in (("fitted half", True), ("held-out half", False)):
        parts += _server_parts(test, law, power, servers.fitted == fitted)
        parts += _share_parts(test, law, shares.fitted == fitted)
    for model, without in left_out_laws(power).items():
        parts += _server_parts("a model left out", without, power, servers.of(model))
    nothing = np.zeros(len(shares.shares), dtype=bool)
    without = fit_law(power, servers.fitted, nothing)
    parts += [part for part in _share_parts("the A100 left out", without, ~nothing) if part.quantity[0] == "decode"]
    return errors_by(pd.concat(parts), ["test", "record", "quantity"])


def _server_parts(test: str, law: LanguageLaw, power: Power, chosen: BoolArray) -> list[pd.DataFrame]:
    rows = server_rows()
    found = predicted(law, power, rows)
    errors = {name: np.log(found[name] / rows.measured[name])[chosen] for name in QUANTITIES}
    return _error_frames(test, f"servers, {FITTED_ON}", errors)


def _share_parts(test: str, law: LanguageLaw, chosen: BoolArray) -> list[pd.DataFrame]:
    rows = share_rows()
    decode_s, prefill_s = share_times_s(law, rows)
    decode, prefill = np.log(decode_s / rows.decode_s), np.log(prefill_s / rows.prefill_s)
    whole, long = rows.is_whole, rows.tokens >= LEAST_PREFILL
    errors = {
        "decode": decode[chosen & whole],
        "decode by share": decode[chosen & ~whole],
        "slowdown by share": (decode - decode[rows.whole])[chosen & ~whole],
        "prefill": prefill[chosen & whole & long],
        "prefill by share": prefill[chosen & ~whole & long],
    }
    return _error_frames(test, f"LLaMA 7B, {SHARES_ON}", errors)


def _error_frames(test: str, record: str, errors: Mapping[str, FloatArray]) -> list[pd.DataFrame]:
    return [
        pd.DataFrame({"test": test, "record": record, "quantity": quantity, "error": values})
        for quantity, values in errors.items()
    ]
