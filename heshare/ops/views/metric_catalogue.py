"""The metrics of a run by name, kind, unit and labels, and their values as families of prometheus_client.

Names, base units and kinds follow the conventions of Prometheus (https://prometheus.io/docs/practices/naming/).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from heshare.lab.limits.power_budget import PowerBudget
from heshare.ops.jobs.run_state import FAULTS, GpuState, RunState

if TYPE_CHECKING:
    from prometheus_client.core import Metric

GPU = ("gpu", "uuid")
GPU_STATES = ("ok", "drained", "lost")
JOB = ("job_name", "gpu")
"""`job` is a label that Prometheus sets itself: it would rename one of that name to `exported_job`."""
Value = tuple[tuple[str, ...], float]
"""The values of a metric's labels, and its value."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric.

    The name is the family's, with its unit, the base unit, and without `_total` and `_info`; `kind` is as Prometheus
    names it. `labels` follow `run`, which every metric has.
    """

    name: str
    kind: Literal["gauge", "counter", "info"]
    unit: str
    labels: tuple[str, ...]
    about: str

    @property
    def sample_name(self) -> str:
        return self.name + {"counter": "_total", "info": "_info", "gauge": ""}[self.kind]


METRICS = (
    MetricSpec("heshare_run", "info", "", ("policy", "version", "provenance"), "The run, always 1."),
    MetricSpec("heshare_run_active", "gauge", "", (), "1 while an executor works on the run, 0 afterwards."),
    MetricSpec("heshare_run_start_time_seconds", "gauge", "seconds", (), "Unix time of the run's first start."),
    MetricSpec("heshare_run_update_time_seconds", "gauge", "seconds", (), "Unix time of the last account of the GPUs."),
    MetricSpec(
        *("heshare_run_power_limit_watts", "gauge", "watts", ()),
        "Limit on the sum of the GPUs' power now; absent without one (--power-limit).",
    ),
    MetricSpec("heshare_jobs", "gauge", "", ("state",), "Jobs by state; those that have not arrived yet are waiting."),
    MetricSpec("heshare_decisions", "counter", "", (), "Decisions of the policy."),
    MetricSpec("heshare_decision_seconds", "counter", "seconds", (), "Time that they took."),
    MetricSpec("heshare_faults", "counter", "", ("kind",), "Failed attempts of jobs (job-...), and faults of GPUs."),
    MetricSpec("heshare_gpu", "info", "", (*GPU, "model", "sharing"), "The GPU, always 1."),
    MetricSpec("heshare_gpu_state", "gauge", "", (*GPU, "state"), "1 for the GPU's state: ok, drained or lost."),
    MetricSpec("heshare_gpu_energy_joules", "counter", "joules", GPU, "Energy of the GPU by its own counter."),
    MetricSpec("heshare_gpu_idle_energy_joules", "counter", "joules", GPU, "Its part while no job ran on the GPU."),
    MetricSpec(
        *("heshare_gpu_lost_energy_joules", "counter", "joules", GPU),
        "Its part, in equal shares, for attempts that failed or were cut off.",
    ),
    MetricSpec("heshare_gpu_power_watts", "gauge", "watts", GPU, "Power of the GPU now."),
    MetricSpec(
        *("heshare_gpu_clock_requested_hertz", "gauge", "hertz", GPU),
        "SM clock that the run has requested; absent where the GPU chooses its clock.",
    ),
    MetricSpec("heshare_gpu_clock_reached_hertz", "gauge", "hertz", GPU, "SM clock that the GPU runs at."),
    MetricSpec(
        *("heshare_job_energy_joules", "counter", "joules", (*JOB, "way")),
        "Energy of the job on the GPU: its share of the GPU's, equal among the jobs there, or by the device model.",
    ),
    MetricSpec("heshare_job_power_watts", "gauge", "watts", (*JOB, "way"), "The job's share of the power now."),
    MetricSpec(
        *("heshare_job_mps_share_ratio", "gauge", "ratio", JOB),
        "MPS active thread percentage of the job, 0 to 1.",
    ),
)


def values(state: RunState, now_s: float, active: bool) -> dict[str, list[Value]]:
    """Return the values of the metrics at a Unix time, s, by name; those that are unknown are left out."""
    found: dict[str, list[Value]] = {
        "heshare_run": [((state.run.policy, state.run.version, "measured"), 1.0)],
        "heshare_run_active": [((), float(active))],
        "heshare_run_start_time_seconds": [((), state.started_s)],
        "heshare_run_update_time_seconds": [((), state.updated_s)],
        "heshare_run_power_limit_watts": [((), limit_w(state))],
        "heshare_jobs": [((state,), float(count)) for state, count in state.counts().items()],
        "heshare_decisions": [((), float(state.decisions))],
        "heshare_decision_seconds": [((), state.decision_s)],
        # With zeros, since an increase from nothing to 1 is none for Prometheus.
        "heshare_faults": [((kind,), float(state.faults[kind])) for kind in FAULTS],
    }
    for index, gpu in enumerate(state.gpus):
        for name, value in _gpu_values(index, gpu):
            found.setdefault(name, []).append(value)
    for name, value in _job_values(state, now_s):
        found.setdefault(name, []).append(value)
    known = {name: [value for value in rows if not math.isnan(value[1])] for name, rows in found.items()}
    return {name: rows for name, rows in known.items() if rows}


def limit_w(state: RunState) -> float:
    """Return the limit on the sum of the GPUs' power at the time of the last account, W; NaN without one."""
    limit, now_s = state.run.power_limit, state.updated_s - state.started_s
    return math.nan if limit is None or math.isnan(now_s) else PowerBudget.of_json(limit).at(now_s)


def families(state: RunState, run: str, now_s: float, *, active: bool) -> Iterator[Metric]:
    """Yield the metrics of a run as prometheus_client writes them; `run` is the label that every metric has."""
    from prometheus_client.core import Metric

    rows = values(state, now_s, active)
    for spec in METRICS:
        if spec.name not in rows:
            continue
        family = Metric(spec.name, spec.about, spec.kind, spec.unit)
        names = ("run", *spec.labels)
        for labels, value in rows[spec.name]:
            family.add_sample(spec.sample_name, dict(zip(names, (run, *labels), strict=True)), value)
        yield family


def _gpu_values(index: int, gpu: GpuState) -> Iterator[tuple[str, Value]]:
    labels = (str(index), gpu.uuid)
    yield "heshare_gpu", ((*labels, gpu.name, gpu.sharing), 1.0)
    for state in GPU_STATES:
        yield "heshare_gpu_state", ((*labels, state), float(gpu.state == state))
    yield "heshare_gpu_energy_joules", (labels, gpu.energy_j)
    yield "heshare_gpu_idle_energy_joules", (labels, gpu.idle_j)
    yield "heshare_gpu_lost_energy_joules", (labels, gpu.lost_j)
    yield "heshare_gpu_power_watts", (labels, gpu.power_w)
    yield "heshare_gpu_clock_requested_hertz", (labels, 1e6 * gpu.requested_mhz)
    yield "heshare_gpu_clock_reached_hertz", (labels, 1e6 * gpu.sm_mhz)


def _job_values(state: RunState, now_s: float) -> Iterator[tuple[str, Value]]:
    for (job, index), energy in state.shown_jobs(now_s).items():
        for way, energy_j in energy.energy_j.items():
            yield "heshare_job_energy_joules", ((job, str(index), way), energy_j)
        for way, power_w in energy.power_w.items():
            yield "heshare_job_power_watts", ((job, str(index), way), power_w)
    for job, running in state.running.items():
        for gpu in running.gpus:
            yield "heshare_job_mps_share_ratio", ((job, str(gpu)), running.mps_pct / 100.0)
