"""The metrics of an emulated run, which is over when they are written: its totals."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import generate_latest

from heshare.lab.tenants.tenant_energy import tenant_energy
from heshare.ops.metrics.metrics_target import write_textfile
from heshare.ops.metrics.run_meter import TallyCollector
from heshare.ops.metrics.run_tally import RunTally
from heshare.running.result import Run
from heshare.shared.version import __version__


def write_metrics(run: Run, file: Path, job_names: Sequence[str] | None = None) -> None:
    """Write the metrics of an emulated run, under the file's name as the name of the run.

    Args:
        run: the run; one that has no timeline has no energies of jobs, and no idle energies.
        file: the textfile.
        job_names: the name of each task's job; by default they are called by their ids.

    Raises:
        OSError: the file cannot be written.
    """
    tally = emulated_tally(run, job_names or [f"task-{task.id}" for task in run.tasks])
    write_textfile(file, generate_latest(TallyCollector(tally, file.stem, active=False)))


def emulated_tally(run: Run, names: Sequence[str]) -> RunTally:
    """Return the totals of a run in virtual time, which is taken to end now; `names` are those of its jobs."""
    tally = RunTally()
    for entry in _entries(run, names):
        tally.add(entry)
    tally.provenance, tally.decisions, tally.decision_s = run.provenance, run.events, run.planning_s
    # The last jobs are shown, however long ago they ended.
    tally.left_s.update(dict.fromkeys(tally.left_s, time.time()))
    idle_j = np.full(len(tally.gpus), 0.0 if run.record.segments else math.nan)
    for segment in run.record.segments:
        idle_j[segment.gpu] += 0.0 if segment.residents else segment.power_w * (segment.end_s - segment.start_s)
    for gpu, own_j in zip(tally.gpus, idle_j.tolist(), strict=True):
        gpu.idle_j = own_j
    tally.end()
    return tally


def _entries(run: Run, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the entries that the journal of such a run would have."""
    yield {"run": {"policy": run.policy, "version": __version__, "jobs": [{"count": len(run.tasks)}]}}
    labels = run.cluster.labels
    cards = zip(labels, run.cluster.gpus, strict=True)
    gpus = [{"uuid": label, "name": gpu.name, "sharing": "mps"} for label, gpu in cards]
    yield {"session": {"at": time.time() - run.makespan_s, "gpus": gpus}}
    energies: list[dict[Any, Any]] = [{"gpu": 0} for _ in run.tasks]
    if run.record.segments:
        columns = tenant_energy(run)[["gpu", "energy_j", "energy_model_j"]]
        energies = [row | {"gpu": labels.index(row["gpu"])} for row in columns.to_dict("records")]
    for end_s, task in sorted((end_s, task) for task, end_s in enumerate(run.completion_s.tolist())):
        yield {"end": {"job": names[task], "end_s": end_s, "outcome": "completed", **energies[task]}}
    accounts = [
        {"energy_j": energy_j, "idle_j": 0.0, "power_w": 0.0, "sm_mhz": None}
        for energy_j in run.gpu_energy_cluster_j.tolist()
    ]
    yield {"sample": {"t": run.makespan_s, "gpus": accounts}}
