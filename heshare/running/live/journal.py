"""What a live run's journal says, on the accounts of a simulated run: from the first decision to the last completion.

In virtual time planning takes no time, and nothing is spent before the first start. So time and energy count here from
the moment when the first decision was carried out; what planning took is told beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from heshare.errors import DeviceError

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """A live run in which every job completed.

    Attributes:
        jobs: one row a job: job, gpu (of its last attempt), attempts, jct_s, loading_s (from the start of that attempt
            to its first iteration), sm_mhz (at its end).
        makespan_s: when the last job completed, s.
        energy_active_j: each GPU until its last job ends, by its counter, J.
        energy_cluster_j: all GPUs until the makespan, by their counters, J.
        before_s: from the start of the run until the first decision: opening the GPUs, and planning, s.
        sharing: `mps` or `time-slice`: how jobs shared each GPU.
        limits: what was seen to hold clocks down.
        notes: what the operator should know.
    """

    jobs: pd.DataFrame
    makespan_s: float
    energy_active_j: float
    energy_cluster_j: float
    before_s: float
    sharing: tuple[str, ...]
    limits: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def avg_jct_s(self) -> float:
        """Average JCT (Eq. 9), s."""
        return float(self.jobs["jct_s"].mean())


@dataclass(frozen=True, slots=True)
class Loaded:
    """Jobs that loaded together on a GPU.

    Attributes:
        jobs: their keys.
        asked_s: when the first of them was started, s.
        begun_s: when all of them began, s.
        ended_s: when the last of them ended, s.
    """

    jobs: tuple[str, ...]
    asked_s: float
    begun_s: float
    ended_s: float


def measured(entries: Sequence[Entry], arrivals_s: Mapping[str, float]) -> Measured:
    """Read the journal of a run.

    Args:
        entries: the journal.
        arrivals_s: when each job arrived, s from the start of the run.

    Raises:
        DeviceError: it was not one run from its beginning to its end in which every job completed.
    """
    ends = [entry["end"] for entry in entries if "end" in entry]
    last = {end["job"]: end for end in ends if end["outcome"] == "completed"}
    missing = sorted(set(arrivals_s) - set(last))
    if missing or sum("session" in entry for entry in entries) != 1:
        told = "; ".join(end["reason"] for end in ends if end["job"] in missing and end["reason"])
        raise DeviceError(f"A live run did not complete {', '.join(missing) or 'in one piece'}: {told or 'no reason'}.")
    began_s, base_j = _beginning(entries)
    finish = [entry["sample"]["gpus"] for entry in entries if "sample" in entry][-1]
    spent_j = [
        max((end["gpu_j"] for end in ends if end["gpu"] == gpu), default=base_j[gpu]) for gpu in range(len(finish))
    ]
    rows = [
        {
            "job": key,
            "gpu": end["gpu"],
            "attempts": sum(one["job"] == key for one in ends),
            "jct_s": end["end_s"] - max(began_s, arrivals_s[key]),
            "loading_s": end["released_s"] - end["start_s"],
            "sm_mhz": end["sm_mhz"],
        }
        for key, end in sorted(last.items())
    ]
    return Measured(
        jobs=pd.DataFrame(rows),
        makespan_s=max(end["end_s"] for end in last.values()) - began_s,
        energy_active_j=sum(spent_j) - sum(base_j),
        energy_cluster_j=sum(gpu["energy_j"] for gpu in finish) - sum(base_j),
        before_s=began_s,
        sharing=tuple(gpu["sharing"] for entry in entries for gpu in entry.get("session", {}).get("gpus", ())),
        limits=tuple(sorted({limit for end in ends for limit in end["limits"]})),
        notes=tuple(entry["note"]["text"] for entry in entries if "note" in entry),
    )


def loaded(entries: Sequence[Entry]) -> Iterator[Loaded]:
    """The jobs that loaded together, by GPU, in their order."""
    ends = [entry["end"] for entry in entries if "end" in entry and entry["end"]["released_s"] is not None]
    for _, group in groupby(sorted(ends, key=_key), key=_key):
        every = list(group)
        yield Loaded(
            tuple(sorted(end["job"] for end in every)),
            min(end["start_s"] for end in every),
            every[0]["released_s"],
            max(end["end_s"] for end in every),
        )


def _key(end: Entry) -> tuple[int, float]:
    return end["gpu"], end["released_s"]


def _beginning(entries: Sequence[Entry]) -> tuple[float, list[float]]:
    """When the first decision that did something was made, s, and what each GPU had spent by then, J."""
    spent_j: list[float] = []
    for entry in entries:
        if "sample" in entry:
            spent_j = [gpu["energy_j"] for gpu in entry["sample"]["gpus"]]
        elif entry.get("decision", {}).get("actions"):
            return float(entry["decision"]["decided_s"]), spent_j
    raise DeviceError("A live run decided nothing. See its report.")
