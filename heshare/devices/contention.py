"""How residents slow one another down, apart from the SMs that they are denied."""

from __future__ import annotations

from collections.abc import Sequence

from heshare.devices.constants import Contention
from heshare.devices.timing import Part

_REFERENCE = 8.0


def slowdowns(contention: Contention, parts: Sequence[Part]) -> list[float]:
    """The factor on each resident's GPU part, >= 1, that its co-runners cause, shape (n,).

    It depends on neither clock nor the task's own share, so that a faster clock or a larger share cannot raise it.
    """
    if len(parts) == 1:
        return [1.0]
    push = [
        part.gpu_s(1.0, 1.0) / part.time_s(1.0, 1.0) * (part.batch_size / _REFERENCE) ** contention.other
        for part in parts
    ]
    total = sum(push)
    return [
        1.0 + contention.strength * (part.batch_size / _REFERENCE) ** contention.own * (total - own)
        for part, own in zip(parts, push, strict=True)
    ]
