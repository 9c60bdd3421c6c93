"""How residents slow one another down, apart from the SMs that they are denied."""

from __future__ import annotations

from collections.abc import Sequence

from heshare.devices.constants import Contention
from heshare.devices.timing import Part


def pushes(contention: Contention, parts: Sequence[Part]) -> list[tuple[float, float]]:
    """(factor on the GPU part, further wait in s) that each resident suffers from its co-runners, shape (n, 2).

    Neither depends on the clock or on the task's own share, so that a faster clock or a larger share cannot raise it.
    """
    if len(parts) == 1:
        return [(1.0, 0.0)]
    duty = [part.gpu_s(1.0, 1.0) / part.time_s(1.0, 1.0) for part in parts]
    others = [sum(duty[:index]) + sum(duty[index + 1 :]) for index in range(len(parts))]
    return [
        (1.0 + contention.strength * other, contention.wait_s * part.kernels * other)
        for part, other in zip(parts, others, strict=True)
    ]
