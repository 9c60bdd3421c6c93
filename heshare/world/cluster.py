"""Clusters: the GPUs of a system, written `4xT4,2xV100,2xA100` as in Section IV and Table III."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pandas as pd

from heshare.shared import display
from heshare.shared.errors import InputError, require
from heshare.shared.html_tables import html_table
from heshare.shared.inputs.bounds import MOST_GPUS, parse_whole
from heshare.world.catalogue import gpu
from heshare.world.gpu import Gpu

_PART = re.compile(r"^\s*(?:([0-9]+)\s*[xX*]\s*)?([A-Za-z][A-Za-z0-9-]*)\s*$")
_ACTION = "Write the cluster like 4xT4,2xV100,2xA100."


@dataclass(frozen=True, slots=True)
class Cluster:
    """The GPU set G = {GPU_1, ..., GPU_k} of Section III-B.

    Attributes:
        gpus: the GPUs in order; a GPU's index is its id everywhere.

    Example:
        >>> from heshare import Cluster
        >>> cluster = Cluster.parse("2xT4,A100")
        >>> cluster, len(cluster), cluster.labels
        (Cluster(2xT4,1xA100), 3, ('T4-0', 'T4-1', 'A100-0'))
    """

    gpus: tuple[Gpu, ...]

    def __post_init__(self) -> None:
        require("cluster", "a cluster of zero GPUs", bool(self.gpus), "at least one GPU", _ACTION)
        wrong = next((each for each in self.gpus if not isinstance(each, Gpu)), None)
        require("cluster", f"{wrong!r} in a Cluster", wrong is None, "GPUs", f"{_ACTION[:-1]}, for Cluster.parse.")

    @classmethod
    def parse(cls, text: str | Cluster) -> Cluster:
        """Return the cluster of a text such as `4xT4,2xV100,2xA100` (a cluster as it is), or an `InputError`."""
        if isinstance(text, Cluster):
            return text
        require(
            "cluster",
            f"an object of {type(text).__name__}",
            isinstance(text, str),
            "text such as 4xT4, or a Cluster",
            _ACTION,
        )

        gpus: list[Gpu] = []
        for part in filter(str.strip, text.split(",")):
            match = _PART.match(part)
            if match is None:
                expected = "a count, an x and a GPU, such as 4xT4"
                raise InputError(repr(part.strip()), expected, _ACTION, column="cluster")
            count = parse_whole(match[1] or "1", "cluster", least=1, most=MOST_GPUS, found=part.strip())
            gpus += [gpu(match[2])] * count
            require("cluster", text[:60], len(gpus) <= MOST_GPUS, f"at most {MOST_GPUS} GPUs", _ACTION)
        return cls(tuple(gpus))

    def __len__(self) -> int:
        return len(self.gpus)

    def __str__(self) -> str:
        return ",".join(f"{self.gpus.count(kind)}x{kind.name}" for kind in self.kinds)

    def __repr__(self) -> str:
        return f"Cluster({display.short(str(self), 150)})"

    def _repr_html_(self) -> str:
        return html_table(self, self.to_frame())

    def to_frame(self) -> pd.DataFrame:
        """Return one row a GPU: its label, type, architecture, size, memory, top clock and powers."""
        rows = [
            {
                "gpu": label,
                "kind": each.name,
                "architecture": each.architecture,
                "sm_count": each.sm_count,
                "memory_mib": each.memory_mib,
                "max_mhz": each.max_mhz,
                "clocks": len(each.clocks_mhz),
                "tdp_w": each.tdp_w,
                "idle_w": each.idle_w,
            }
            for label, each in zip(self.labels, self.gpus, strict=True)
        ]
        return pd.DataFrame(rows)

    @property
    def kinds(self) -> tuple[Gpu, ...]:
        """The different types of GPU, in order of first appearance."""
        return tuple(dict.fromkeys(self.gpus))

    @property
    def labels(self) -> tuple[str, ...]:
        """A short name for each GPU, such as `T4-0`, shape (k,)."""
        counts: Counter[str] = Counter()
        labels = []
        for each in self.gpus:
            labels.append(f"{each.name}-{counts[each.name]}")
            counts[each.name] += 1
        return tuple(labels)
