"""The metrics of an emulated run: its result as the entries that the journal of such a run on real GPUs would have."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heshare import __version__
from heshare.metrics.run_meter import RunMeter
from heshare.running.result import Run


def write_metrics(run: Run, file: Path, job_names: Sequence[str] | None = None) -> None:
    """Write the metrics of an emulated run that is over, under the file's name as the name of the run.

    Args:
        run: the run; one that has no timeline has no energies of its jobs.
        file: the textfile.
        job_names: the name of each task's job; by default they are called by their ids.
    """
    meter = RunMeter(file.stem, file)
    for entry in emulated_entries(run, job_names or [f"task-{task.id}" for task in run.tasks]):
        meter(entry)
    tally = meter.tally
    tally.provenance, tally.decisions, tally.decision_s = run.provenance, run.events, run.planning_s
    # Virtual time ends now: the last jobs are shown, however long ago they ended.
    tally.left_s.update(dict.fromkeys(tally.left_s, time.time()))
    if not run.record.segments:
        for gpu in tally.gpus:
            gpu.idle_j = math.nan
    meter.close()


def emulated_entries(run: Run, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a run in virtual time, which is taken to end now."""
    yield {"run": {"policy": run.policy, "version": __version__, "jobs": [{"count": len(run.tasks)}]}}
    gpus = [
        {"uuid": label, "name": gpu.name, "sharing": "mps"}
        for label, gpu in zip(run.cluster.labels, run.cluster.gpus, strict=True)
    ]
    yield {"session": {"at": time.time() - run.makespan_s, "gpus": gpus}}
    for end_s, job, gpu, outcome, energies in _ends(run):
        end = {"job": names[job], "gpu": gpu, "end_s": end_s, "outcome": outcome, "iterations": math.nan}
        yield {"end": end | energies}
    accounts = [
        {"energy_j": energy_j, "idle_j": 0.0, "power_w": 0.0, "sm_mhz": None}
        for energy_j in run.gpu_energy_cluster_j.tolist()
    ]
    yield {"sample": {"t": run.makespan_s, "gpus": accounts}}


def _ends(run: Run) -> list[tuple[float, int, int, str, dict[str, float]]]:
    """Return how each task left each of its GPUs, in time: s, task, GPU, outcome and its energy there, J."""
    if not run.record.segments:
        return sorted((end_s, task, 0, "completed", {}) for task, end_s in enumerate(run.completion_s.tolist()))
    energy_j = defaultdict[tuple[int, int], float](float)
    for segment in run.record.segments:
        for task, _, _ in segment.residents:
            spent_j = segment.power_w * (segment.end_s - segment.start_s)
            energy_j[task, segment.gpu] += spent_j / len(segment.residents)
    ends = sorted(run.record.intervals, key=lambda interval: interval.end_s)
    return [
        # Its whole energy on the GPU stands at the first time that it left it.
        (end.end_s, end.task, end.gpu, end.outcome, {"energy_j": energy_j.pop((end.task, end.gpu), 0.0)})
        for end in ends
    ]
