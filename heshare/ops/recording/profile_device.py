"""Recording of a GPU's profile: all samples or those of a time budget, with a journal, kernel traces and a manifest."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.device import Device
from heshare.lab.systems.fikit import kernel_table
from heshare.ops.recording import budget_plan, kernel_events
from heshare.ops.recording.recording_journal import RecordingJournal
from heshare.ops.recording.tracing_session import (
    KernelTracer,
    KernelTraces,
    RecordingItem,
    TracingSession,
    with_kernels,
)
from heshare.profiles import design, manifest, store
from heshare.profiles.design import Point
from heshare.profiles.recorder import Step, check_catalogue, profile_table, progress_bar, repeated_visits, setups_of
from heshare.profiles.visit import MeasurementProtocol, Setup
from heshare.shared.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


def is_time_sliced(device: Device) -> bool:
    """Return whether tasks share the device by time-slicing; a device that does not report it has MPS."""
    return getattr(device, "sharing", "mps") == "time-slice"


def enforceable_steps(device: Device, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the planned visits; on a time-sliced device each task at 100 %, with the visits numbered again."""
    if not is_time_sliced(device):
        yield from steps
        return
    visits: Counter[Setup] = Counter()
    for setup, _ in steps:
        enforced = Setup(tuple(map(_at_100_pct, setup.residents)), setup.sm_mhz)
        visits[enforced] += 1
        yield enforced, visits[enforced]


def enforceable_points(device: Device, points: Iterable[Point]) -> list[Point]:
    """Return the planned points; on a time-sliced device each task at 100 %, equal points once."""
    if not is_time_sliced(device):
        return list(points)
    shared = (
        Point(_at_100_pct(point.target), tuple(map(_at_100_pct, point.co_runners)), point.sm_mhz) for point in points
    )
    return list(dict.fromkeys(shared))


def _at_100_pct(resident: Resident) -> Resident:
    return Resident(resident.workload, 100)


TABLE, JOURNAL = "profile.csv", "recording.jsonl"


def profile(
    device: Device,
    out: str | Path,
    *,
    samples: int = -(-design.SAMPLES // 3),
    budget_s: float | None = None,
    clocks: bool = True,
    seed: int = 0,
    protocol: MeasurementProtocol | None = None,
    command: str = "",
    keep_journal: bool = True,
    trace: KernelTracer | None = None,
    more_models: Sequence[str] = (),
    progress: bool = True,
) -> Path:
    """Record a GPU's profile: the reference points and `samples` others, or as many as a time budget allows.

    An interrupted recording continues where it stopped when this is called again with the same arguments: visits that
    were made are kept and the others are made. A larger budget continues a smaller one.

    Args:
        device: the device to record.
        out: the folder of profiles; the table becomes `out/<gpu>/profile.csv`, its manifest `manifest.json` beside it.
        samples: training samples beside the reference points; a third of the paper's 1,000 by default.
        budget_s: the device's time to spend, s; None measures all references and samples.
        clocks: whether to set the SM clock; without it every sample runs at the top clock.
        seed: of the design and of the order.
        protocol: how to measure.
        command: the command that was called, for the manifest.
        keep_journal: write each visit to `recording.jsonl` beside the table and leave it there.
        trace: traces a workload's kernels (`kernel_recorder.tracer`): one trace of each workload is written to
            `kernels.csv` beside the table. None leaves them out.
        more_models: models of the catalogue to record beside those of Table IV.
        progress: show a progress bar on a terminal.

    Returns:
        The table's path.

    Raises:
        DeviceError: the device refuses a point.
        InputError: the journal in the folder belongs to another recording.
    """
    protocol, gpu = protocol or MeasurementProtocol(), device.gpu
    folder = Path(out) / gpu.name
    kernels_path = folder / kernel_table.NAME
    journal = folder / JOURNAL if keep_journal else None
    traces = None if trace is None else _kernel_traces(trace, gpu, kernels_path, more_models)
    options: dict[str, Any] = {"protocol": protocol, "seed": seed, "journal": journal, "traces": traces}
    if budget_s is None:
        points = _design_points(device, samples, clocks, seed, more_models)
        table = record_points(device, points, progress=progress, **options)
    else:
        options["more_models"] = more_models
        table = record_within_budget(device, budget_s, clocks=clocks, progress=progress, **options)
    path = store.write(table, folder / TABLE)
    if traces is not None:
        traces.write(kernels_path)
    kernels = kernel_events.manifest_entry(kernels_path)
    if kernels or (traces is not None and traces.left_out):
        kernels["left_out"] = {} if traces is None else traces.left_out
    manifest.write(path, table, device, protocol, command=command, journal=journal, kernels=kernels or None)
    return path


def record_points(
    device: Device,
    points: Sequence[Point],
    *,
    protocol: MeasurementProtocol | None = None,
    seed: int = 0,
    journal: str | Path | None = None,
    traces: KernelTraces | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure points, each once, as `heshare.profiles.recorder.record` does, with a journal and kernel traces.

    Visits that the file `journal` holds already are not made again, and each new one is written to it as it is made;
    `traces` are the kernel traces to make as well. The device is idle before, and idle with no clock set afterwards.

    Raises:
        DeviceError: the device refuses a point or does not report a utilisation.
        InputError: the journal belongs to another recording, or a row breaks the schema.
    """
    plan = "\n".join(map(str, setups_of(points)))
    with _session(device, protocol or MeasurementProtocol(), seed, plan, journal, traces) as session:
        workloads = () if traces is None else traces.workloads
        return session.measure(points, seed=seed, further_items=workloads, progress=progress)


def record_within_budget(
    device: Device,
    budget_s: float,
    *,
    protocol: MeasurementProtocol | None = None,
    seed: int = 0,
    clocks: bool = False,
    journal: str | Path | None = None,
    traces: KernelTraces | None = None,
    more_models: Sequence[str] = (),
    progress: bool = True,
) -> pd.DataFrame:
    """Measure as many setups of `budget_plan.plan` as fit into a time, the most informative ones first.

    `budget_s` is the device's time to spend, s, that of the visits in the journal included. The plan, not the
    protocol's `repeats`, sets how often a setup is visited; `clocks` allows it to set the SM clock; `more_models` are
    recorded beside those of Table IV. The other arguments are those of `record_points`.

    Returns:
        A table of the profile schema, a row for each task of each setup that was visited.

    Raises:
        DeviceError: the device refuses a setup or does not report a utilisation.
        InputError: the journal belongs to another recording, or the budget is too short for a single visit.
    """
    protocol = protocol or MeasurementProtocol()
    sharing = ", time-slice" if is_time_sliced(device) else ""
    visited: list[Setup] = []
    plan = ", ".join([f"budget, clocks={clocks}{sharing}", *more_models])
    with _session(device, protocol, seed, plan, journal, traces) as session:
        items = _budget_items(device, clocks, seed, () if traces is None else traces.workloads, more_models)
        with progress_bar(device, round(budget_s), "s", progress) as bar:
            for item in session.run(session.affordable(items, budget_s)):
                if not isinstance(item, Workload):
                    visited.append(item[0])
                bar.update(round(session.log.spent_s) - bar.n)
        if not visited:
            raise InputError(
                f"{budget_s:g} s",
                f"time for idle power and one visit: {protocol.visit_s + session.log.spent_s:g} s and more",
                "Allow more time.",
                column="budget",
            )
        points = list(dict.fromkeys(point for setup in visited for point in setup.points()))
        return profile_table(device, points, session.log)


def recording_items(
    device: Device,
    samples: int,
    budget_s: float | None,
    *,
    clocks: bool,
    seed: int,
    repeats: int,
    kernels: bool,
    more_models: Sequence[str] = (),
) -> Iterator[RecordingItem]:
    """Yield the items of `profile` with the same arguments, in its order; endless with a budget, which is not spent.

    Only the device's description is used; `repeats` is the protocol's, and `kernels` is whether kernels are traced.
    """
    workloads = design.traced_workloads(device.gpu, more_models) if kernels else []
    if budget_s is not None:
        yield from _budget_items(device, clocks, seed, workloads, more_models)
        return
    setups = setups_of(_design_points(device, samples, clocks, seed, more_models))
    yield from repeated_visits(setups, repeats, np.random.default_rng(seed))
    yield from workloads


def _design_points(device: Device, samples: int, clocks: bool, seed: int, more_models: Sequence[str]) -> list[Point]:
    """Return the reference points of a GPU, and samples drawn with a seed of its own."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, *device.gpu.name.encode()]))
    drawn = design.samples(device.gpu, samples, rng=rng, clocks=clocks, more_models=more_models)
    return enforceable_points(device, design.references(device.gpu, more_models=more_models) + drawn)


def _budget_items(
    device: Device, clocks: bool, seed: int, workloads: Sequence[Workload], more_models: Sequence[str]
) -> Iterator[RecordingItem]:
    plan = budget_plan.plan(device.gpu, rng=np.random.default_rng(seed), clocks=clocks, more_models=more_models)
    return with_kernels(enforceable_steps(device, plan), workloads)


def _kernel_traces(trace: KernelTracer, gpu: Gpu, path: Path, more_models: Sequence[str]) -> KernelTraces:
    """Return the kernel traces of a recording: each workload of the design that fits, except for those of the table."""
    rows = kernel_table.read(path) if path.exists() else ()
    return KernelTraces(trace, design.traced_workloads(gpu, more_models), frozenset(row.setting for row in rows))


@contextmanager
def _session(
    device: Device,
    protocol: MeasurementProtocol,
    seed: int,
    plan: str,
    journal: str | Path | None,
    traces: KernelTraces | None,
) -> Iterator[TracingSession]:
    """Open a recording session, with a journal that refuses to continue another recording."""
    check_catalogue(device)
    identity = {
        "gpu": device.gpu.name,
        "provenance": device.provenance,
        "seed": seed,
        "design": hashlib.sha256(plan.encode()).hexdigest()[:16],
        **asdict(protocol),
    }
    with closing(RecordingJournal(journal, identity)) as log:
        yield TracingSession(device, protocol, log, traces)
