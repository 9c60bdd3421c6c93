"""The least squares over all records, on a few dozen rows drawn from known effects."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf
from types import MappingProxyType

import numpy as np
import pytest

from heshare.devices.constants import default
from heshare.devices.timing_effects import PRIORS
from heshare.lab.calibration.observations import FULL_LIMIT, LIMIT, Observation, Task, networks
from heshare.lab.calibration.pooled_fit import CARD_PRIORS, CORRELATION, NOISE, PooledProblem, Values, card_offsets
from heshare.world import catalogue

CURVES = default().power
PROGRAMS = {"lab a|eager": ("eager", "T4", "fp32"), "lab b|engine": ("tensorrt", "V100", "fp16"),
            "PctoDL|eager": ("eager", "A100-40GB", "fp16")}  # fmt: skip


def rows_of(program: str, names: tuple[str, ...] = ("resnet50", "vgg16")) -> list[Observation]:
    """Made-up rows of a program, without measurements: alone, equal processes and pairs, at two clocks."""
    engine, name, precision = PROGRAMS[program]
    gpu = catalogue.gpu(name)

    def row(*tasks: tuple[str, float, float], **options) -> Observation:
        own = tuple(Task(networks()[network], size, share) for network, size, share in tasks)
        return Observation(program, gpu, engine, precision, own, "sets", 1.0, 1.0, cap_w=inf, **options)

    found = [row((network, size, share)) for network in names for size in (1, 8, 64) for share in (0.4, 1.0)]
    found += [row((network, 16, 0.5), (network, 16, 0.5)) for network in names]
    found += [row((names[0], 4, 0.6), (names[1], size, 0.4)) for size in (2, 32)]
    return [*found, row((names[0], 32, 1.0), sm_mhz=float(gpu.clocks_mhz[len(gpu.clocks_mhz) // 2]))]


def limits() -> list[Observation]:
    """A row with the card's own limit and one with a lower limit, which holds the ratio of times."""
    (*_, own) = rows_of("lab b|engine")
    both = replace(own, program="lab c|engine", sm_mhz=float("nan"), power_w=float("nan"), kind=FULL_LIMIT)
    return [
        replace(both, cap_w=250.0, time_s=float("nan")),
        replace(both, cap_w=130.0, kind=LIMIT),
    ]


def drawn(problem: PooledProblem, seed: int, part: float = 1.0) -> dict[tuple[str, str, str], float]:
    """Effects drawn from their priors."""
    rng, priors = np.random.default_rng(seed), {**PRIORS, **CARD_PRIORS}
    return {name: part * rng.normal(0.0, min(0.3, priors[name[0]][name[1]])) for name in problem.names}


def measured(rows: list[Observation], truth: Values, noise: float = 0.0, seed: int = 0) -> list[Observation]:
    """The rows with the times and powers of some effects."""
    rng, found = np.random.default_rng(seed), PooledProblem(rows, CURVES).predict(truth)
    logs = found + noise * rng.normal(size=found.shape)
    return [
        replace(row, time_s=time if row.time_s > 0 else row.time_s, power_w=power if row.power_w > 0 else row.power_w)
        for row, time, power in zip(rows, *np.exp(logs).tolist(), strict=True)
    ]


@cache
def everything() -> tuple[Observation, ...]:
    return tuple(row for program in PROGRAMS for row in rows_of(program))


@cache
def truth() -> Values:
    return MappingProxyType(drawn(PooledProblem([*everything(), *limits()], CURVES), 1))


def every(problem: PooledProblem) -> np.ndarray:
    return np.ones(len(problem.rows), dtype=bool)


def test_offsets():
    """Without effects, predictions follow from features and the GPU's power limit alone."""
    problem = PooledProblem(list(everything()), CURVES)
    assert problem.predict({}) == pytest.approx(problem.predict(dict.fromkeys(problem.names, 0.0)))
    gpu = catalogue.gpu("T4")
    assert np.exp(card_offsets(gpu)["dynamic"]) == pytest.approx(gpu.tdp_w - gpu.idle_w)


def test_recovers():
    """The fit recovers times and powers, also of the rows that it did not see."""
    problem = PooledProblem(measured(list(everything()), truth()), CURVES)
    used = np.arange(len(problem.rows)) % 4 != 1
    fit = problem.fit(used)
    gaps = np.abs(problem.predict(fit.effects) - problem.measured)
    assert gaps[:, used].mean() < 0.01
    assert gaps[:, ~used].mean() < 0.03
    assert fit.cost < problem.fit(used, steps=1).cost

    start = np.abs(problem.predict({}) - problem.measured)
    assert gaps[:, ~used].mean() < 0.15 * start[:, ~used].mean()


@pytest.mark.parametrize(
    "name",
    [
        ("work", "network", "vgg16"), ("work", "gpu", "T4"), ("work", "class", "tensor|cnn"), ("host", "class", "cnn"),
        ("copy", "program", "PctoDL|eager"), ("clock", "all", ""),
    ],
    ids="|".join,
)  # fmt: skip
def test_recovers_effect(name: tuple[str, str, str]):
    """The fit to rows with one effect finds it, in the constants that it multiplies and in no others."""
    problem = PooledProblem(measured(list(everything()), {name: 0.3}), CURVES)
    fit = problem.fit(every(problem))
    found, true = (problem._logs(problem._vector(values)) for values in (fit.effects, {name: 0.3}))
    for members, own in zip(found, true, strict=True):
        for component, (one, other) in enumerate(zip(members, own, strict=True)):
            assert one == pytest.approx(other, abs=0.06), component


@pytest.mark.parametrize("name", [("steady", "all", ""), ("by_share", "all", ""), ("dynamic", "card", "V100")])
def test_shrinks(name: tuple[str, str, str]):
    """An effect that few rows show is found in part: the prior holds the rest."""
    problem = PooledProblem(measured(list(everything()), {name: 0.3}), CURVES)
    fit = problem.fit(every(problem))
    assert 0.0 < fit.effects[name] < 0.3


def test_noise():
    """Noise of the measurements is not fitted: errors on rows left out are hardly larger than it."""
    problem = PooledProblem(measured(list(everything()), truth(), NOISE, seed=4), CURVES)
    used = np.arange(len(problem.rows)) % 4 != 1
    gaps = problem.predict(problem.fit(used).effects) - problem.measured
    assert np.sqrt((gaps[:, ~used] ** 2).mean()) < 2.0 * NOISE


def test_outliers():
    """A few rows that are far off move the others little."""
    rows = measured(list(everything()), truth())
    wrong = [replace(row, time_s=row.time_s * 3.0) if place % 17 == 4 else row for place, row in enumerate(rows)]
    right = np.array([place % 17 != 4 for place in range(len(rows))])
    problem = PooledProblem(wrong, CURVES)
    gaps = np.abs(problem.predict(problem.fit(every(problem)).effects) - problem.measured)
    assert np.median(gaps[:, right]) < 0.03


def test_derivatives():
    """Derivatives by each effect agree with central differences, and are 0 for rows that are not used."""
    problem = PooledProblem(measured([*everything()[::2], *limits()], truth()), CURVES)
    at = drawn(problem, 2)
    used = np.arange(len(problem.rows)) % 7 != 3
    used |= problem._limited
    counts = np.concatenate([used, used & (problem._limited | ~np.isnan(problem.measured[1]))])
    found = problem.derivatives(at, used).toarray()
    step = 1e-5
    for column, name in enumerate(problem.names):
        up, down = (problem.predict({**at, name: at[name] + sign * step}) for sign in (1.0, -1.0))
        expected = ((up - down) / (2.0 * step)).ravel()
        if name[0] in ("intensity", "dynamic", "clock"):
            expected[: len(problem.rows)] *= problem._limited
        assert found[counts, column] == pytest.approx(expected[counts], abs=2e-3), name
    assert not found[: len(used)][~used].any()
    assert not found[len(used) :][~used].any()


def test_known_slopes():
    """A fit to fewer rows is the same with the derivatives of all rows at its start."""
    problem = PooledProblem(measured(list(everything()), truth(), NOISE, seed=3), CURVES)
    fit = problem.fit(every(problem), steps=4)
    train = np.array([row.laboratory != "lab a" for row in problem.rows])
    start = problem.supported(fit.effects, train)
    known = problem.fit(train, start, 2, problem.derivatives(fit.effects, every(problem)))
    assert known.cost == pytest.approx(problem.fit(train, start, 2).cost, rel=1e-9)


def test_weights():
    """A record of n rows counts as n / (1 + c (n - 1)), and what is not measured or used not at all."""
    few, many = everything()[0], [everything()[-1]] * 400
    problem = PooledProblem([few, *many, replace(few, power_w=float("nan"))], CURVES)
    weights = problem.weights(every(problem))
    one = 1.0 / NOISE**2
    assert weights[0, 1:401].sum() == pytest.approx(400 * one / (1.0 + 399 * CORRELATION))
    assert weights[0, 1:401].sum() < one / CORRELATION
    assert weights[0, [0, -1]] == pytest.approx(one / (1.0 + CORRELATION))
    assert (weights[1, 0], weights[1, -1]) == (pytest.approx(one), 0.0)
    unused = problem.weights(np.arange(402) == 0)
    assert (unused[0, 0], unused[:, 1:].sum()) == (pytest.approx(one), 0.0)


def test_supported():
    """Effects of programs, GPUs and networks that no used row has are left out."""
    problem = PooledProblem(list(everything()), CURVES)
    used = np.array([row.laboratory == "lab a" for row in problem.rows])
    values = dict.fromkeys(problem.names, 0.1)
    kept = problem.supported(values, used)
    assert ("work", "gpu", "T4") in kept
    assert ("work", "network", "vgg16") in kept
    assert not [name for name in kept if "V100" in name[2] or "lab b" in name[2] or "PctoDL" in name[2]]
    assert problem.supported(values, every(problem)) == values
    assert problem.supported(values, ~every(problem)) == {}


def test_effects_without_rows():
    """A fit leaves effects without used rows at 0, and other GPUs at the mean."""
    problem = PooledProblem(measured(list(everything()), truth()), CURVES)
    used = np.array([row.laboratory == "lab a" for row in problem.rows])
    fit = problem.fit(used)
    supported = problem.supported(fit.effects, used)
    assert all(abs(value) < 1e-9 for name, value in fit.effects.items() if name not in supported)


def test_repeated_record():
    """A record repeated many times moves the others little."""
    rows = measured(list(everything()), truth(), NOISE, seed=7)
    own = [row for row in rows if row.laboratory == "lab a"]
    once, often = PooledProblem(rows, CURVES), PooledProblem([*rows, *own * 20], CURVES)
    others = np.array([row.laboratory != "lab a" for row in rows])
    found = [
        problem.predict(problem.fit(every(problem)).effects)[:, : len(rows)][:, others] for problem in (once, often)
    ]
    assert np.abs(found[1] - found[0]).max() < 0.05
    assert np.abs(found[1] - found[0]).mean() < 0.01


def test_information():
    """A record tells most about its own effects, and nothing about those of others."""
    problem = PooledProblem(measured(list(everything()), truth()), CURVES)
    fit = problem.fit(every(problem), steps=2)
    names, information = problem.information(fit, every(problem))
    assert set(names) == set(problem.records)
    columns = {name: place for place, name in enumerate(problem.names)}
    of_t4 = information[:, columns["work", "gpu", "T4"]]
    (own,) = np.flatnonzero(of_t4)
    assert "T4" in names[own]
    assert (information >= 0.0).all()
