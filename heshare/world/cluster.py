"""Clusters: which GPUs there are, written `4xT4,2xV100,2xA100` as in Section IV."""

from __future__ import annotations

import re
from dataclasses import dataclass

from heshare.errors import InputError
from heshare.world.catalogue import gpu
from heshare.world.gpu import Gpu

_PART = re.compile(r"^\s*(?:(\d+)\s*[xX*]\s*)?([A-Za-z][A-Za-z0-9-]*)\s*$")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The GPU set G = {GPU_1 .. GPU_k}.

    Attributes:
        gpus: the GPUs in order; a GPU's index here is its id everywhere.
    """

    gpus: tuple[Gpu, ...]

    def __post_init__(self) -> None:
        if not self.gpus:
            raise _bad("a cluster of zero GPUs", "at least one GPU")

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """Read a cluster from text such as `4xT4,2xV100,2xA100`.

        Raises:
            InputError: the text has another form, names an unknown GPU or holds no GPU.
        """
        gpus: list[Gpu] = []
        for part in filter(str.strip, text.split(",")):
            match = _PART.match(part)
            if match is None:
                raise _bad(repr(part.strip()), "a count, an x and a GPU, such as 4xT4")
            gpus += [gpu(match[2])] * int(match[1] or 1)
        return cls(tuple(gpus))

    def __len__(self) -> int:
        return len(self.gpus)

    def __str__(self) -> str:
        return ",".join(f"{self.gpus.count(kind)}x{kind.name}" for kind in self.kinds)

    @property
    def kinds(self) -> tuple[Gpu, ...]:
        """The different types of GPU, in order of first appearance."""
        return tuple(dict.fromkeys(self.gpus))

    @property
    def labels(self) -> tuple[str, ...]:
        """A short name for each GPU, such as `T4-0`, shape (k,)."""
        seen: dict[str, int] = {}
        labels = []
        for card in self.gpus:
            labels.append(f"{card.name}-{seen.get(card.name, 0)}")
            seen[card.name] = seen.get(card.name, 0) + 1
        return tuple(labels)


def _bad(found: str, expected: str) -> InputError:
    return InputError(
        column="cluster", found=found, expected=expected, action="Write the cluster like 4xT4,2xV100,2xA100."
    )
