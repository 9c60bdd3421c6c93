"""The energy of a GPU divided among those that shared it: idle energy equally, the rest in proportion to weights."""

import math
from collections.abc import Sequence

MODEL, EQUAL = "device model", "equal"
"""Ways of dividing energy: in proportion to the device model's power of each tenant alone, and equally."""


def split_energy(energy_j: float, idle_j: float, weights: Sequence[float]) -> list[float]:
    """Return the part of each tenant in the energy of a period in which the same tenants were on the GPU, J.

    Idle energy is divided equally among them; what the GPU used above it, in proportion to their weights. The parts sum
    to `energy_j`, up to rounding. Energy below `idle_j` is divided equally.

    Args:
        energy_j: the GPU's energy, as its counter has it, J.
        idle_j: what it would have used without them, J.
        weights: their power alone above idle, W, or anything proportional to it, at least 0, shape (n,). One that is
            not known, NaN, is taken to be the mean of the others. If none is known, or all are 0, all energy is divided
            equally. No tenants have no parts.

    Example:
        >>> split_energy(100.0, 40.0, [30.0, 10.0])
        [65.0, 35.0]
    """
    count = len(weights)
    known = [weight for weight in weights if not math.isnan(weight)]
    total = sum(known)
    if total <= 0.0:
        return [energy_j / count for _ in weights]
    mean = total / len(known)
    filled = [mean if math.isnan(weight) else weight for weight in weights]
    idle_j, sum_of_weights = min(idle_j, energy_j), sum(filled)
    return [idle_j / count + weight / sum_of_weights * (energy_j - idle_j) for weight in filled]
