"""Roots by Brent's method: the bits and the evaluations of scipy's `brentq`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq as scipys

from heshare.devices.root import brentq

FUNCTIONS = 4000


def random_function(rng: np.random.Generator) -> Callable[[float], float]:
    """A function with a root in [-1, 1] or beside it: smooth, flat, steep, with poles, or with steps."""
    root, power, scale = rng.uniform(-1.0, 1.0), int(rng.integers(1, 8)), 10.0 ** rng.uniform(-150.0, 3.0)
    kinds: tuple[Callable[[float], float], ...] = (
        lambda x: scale * (math.exp(power * x) - math.exp(power * root)),
        lambda x: scale * math.copysign(abs(x - root) ** power, x - root),
        lambda x: scale * (math.tanh(50.0 * power * (x - root)) + 0.1 * (x - root)),
        lambda x: scale * (math.floor(power * 9.0 * x) - math.floor(power * 9.0 * root) + 0.5),
        lambda x: 1.0 / (x - root) if x != root else 0.0,
        lambda x: scale * (math.sin(9.0 * power * x) - math.sin(9.0 * power * root)),
    )
    return kinds[rng.integers(len(kinds))]


def found(
    solve: Callable[..., float], function: Callable[[float], float], xtol: float
) -> tuple[str | None, list[float]]:
    """The root's bits, None without one, and where the function was evaluated."""
    asked: list[float] = []

    def told(x: float) -> float:
        asked.append(x)
        return function(x)

    try:
        return float(solve(told, -1.0, 1.1, xtol=xtol)).hex(), asked
    except (ValueError, RuntimeError):
        return None, asked


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_roots_are_scipys_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    without = 0
    for _ in range(FUNCTIONS):
        function, xtol = random_function(rng), 10.0 ** rng.uniform(-16.0, -1.0)
        ours = found(brentq, function, xtol)
        assert ours == found(scipys, function, xtol)
        without += ours[0] is None
    assert 0 < without < FUNCTIONS / 3


def test_a_root_at_a_bound_is_that_bound() -> None:
    for bound in (1.0, 3.0):
        assert brentq(lambda x: bound - x, 1.0, 3.0) == bound  # noqa: B023
