"""Brent's method for a root: the operations, so the bits, of scipy's `brentq`, whose import outlasts an estimate."""

from collections.abc import Callable
from math import inf

_STEPS, _RELATIVE = 100, 2.0**-50


def brentq(function: Callable[[float], float], low: float, high: float, *, xtol: float = 2e-12) -> float:
    """Return a root of a function with opposite signs at two bounds, to `xtol` and four units in the last place."""
    last, x, other = float(low), float(high), 0.0
    f_last, f_x, f_other = function(last), function(x), 0.0
    last_step = step = 0.0
    if f_last == 0.0:
        return last
    if f_x != 0.0 and (f_x > 0.0) == (f_last > 0.0):
        raise ValueError("the function has the same sign at both bounds")
    for _ in range(_STEPS):
        if f_x != 0.0 and (f_x > 0.0) != (f_last > 0.0):
            other, f_other = last, f_last
            last_step = step = x - last
        if abs(f_other) < abs(f_x):
            last, x, other = x, other, x
            f_last, f_x, f_other = f_x, f_other, f_x
        exact, half = (xtol + _RELATIVE * abs(x)) / 2.0, (other - x) / 2.0
        if f_x == 0.0 or abs(half) < exact:
            return x
        tried = inf
        if abs(last_step) > exact and abs(f_x) < abs(f_last):
            if last == other:  # the line through two points, otherwise the inverse parabola through three
                tried = -f_x * (x - last) / (f_x - f_last)
            else:
                slope, other_slope = (f_last - f_x) / (last - x), (f_other - f_x) / (other - x)
                below = other_slope * slope * (f_other - f_last)
                tried = -f_x * (f_other * other_slope - f_last * slope) / below if below else inf
        # A step that is no shorter than half of the one before the last would not be faster than halves.
        short = 2.0 * abs(tried) < min(abs(last_step), 3.0 * abs(half) - exact)
        last_step, step = (step, tried) if short else (half, half)
        last, f_last = x, f_x
        x += step if abs(step) > exact else (exact if half > 0.0 else -exact)
        f_x = function(x)
    raise ValueError(f"no root in {_STEPS} steps")
