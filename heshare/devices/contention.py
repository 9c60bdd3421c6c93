"""How residents slow one another down, apart from the SMs that they are denied."""

from __future__ import annotations

from collections.abc import Sequence

from heshare.devices.constants import Contention
from heshare.devices.timing import Part

_REFERENCE = 8.0


def pushes(contention: Contention, parts: Sequence[Part]) -> list[tuple[float, float]]:
    """(factor on the GPU part, further wait in s) that each resident suffers from its co-runners, shape (n, 2).

    Neither depends on the clock or on the task's own share, so that a faster clock or a larger share cannot raise it.
    """
    if len(parts) == 1:
        return [(1.0, 0.0)]
    duty = [part.gpu_s(1.0, 1.0) / part.time_s(1.0, 1.0) for part in parts]
    push = [one * (part.batch_size / _REFERENCE) ** contention.size for one, part in zip(duty, parts, strict=True)]
    all_duty, all_push = sum(duty), sum(push)
    return [
        (
            1.0 + contention.strength * max(0.0, all_push - own_push),
            contention.wait_s * part.kernels * max(0.0, all_duty - own_duty),
        )
        for part, own_duty, own_push in zip(parts, duty, push, strict=True)
    ]
