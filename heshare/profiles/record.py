"""The recorder: drives any `Device` through the settings of a design and writes what it says of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from heshare.devices.device import Device
from heshare.errors import InputError
from heshare.profiles import budget, design, enforced, kernels, manifest, store
from heshare.profiles.design import Point
from heshare.profiles.journal import Journal
from heshare.profiles.protocol import Protocol
from heshare.profiles.schema import check
from heshare.profiles.session import Item, Kernels, Session, Trace, repeated, with_kernels
from heshare.profiles.visit import Setup, Visit, row
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Workload

TABLE, JOURNAL = "profile.csv", "recording.jsonl"


def record(
    device: Device,
    points: Sequence[Point],
    *,
    protocol: Protocol | None = None,
    seed: int = 0,
    journal: str | Path | None = None,
    traced: Kernels | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure every point on a device, in random order, and again as often as the protocol says.

    Args:
        device: an idle device; afterwards it is idle again and its clock is left to the card.
        points: the settings, each once.
        protocol: how to measure.
        seed: of the order.
        journal: a file that takes each visit as it is made; visits that it already holds are not made again.
        traced: kernel traces to take as well; they are put into it. None leaves them out.
        progress: show a progress bar on a terminal.

    Returns:
        A table of the profile schema, one row for each point, in the order of `points`.

    Raises:
        DeviceError: the device refuses a point or cannot tell a utilisation.
        InputError: the journal belongs to another recording, or a row breaks the schema.
    """
    protocol = protocol or Protocol()
    setups = list(dict.fromkeys(map(Setup.of, points)))
    steps: list[Item] = list(repeated(setups, protocol.repeats, np.random.default_rng(seed)))
    steps += [] if traced is None else traced.workloads
    _check_catalogue(device)
    log = Journal(journal, _identity(device, protocol, seed, "\n".join(map(str, setups))))
    try:
        bar = tqdm(
            total=len(steps), unit="visit", desc=f"profile {device.gpu.name}", disable=None if progress else True
        )
        with bar:
            for _ in Session(device, protocol, log, traced).run(steps):
                bar.update()
        return _table(device, points, log)
    finally:
        log.close()


def record_for(
    device: Device,
    budget_s: float,
    *,
    protocol: Protocol | None = None,
    seed: int = 0,
    clocks: bool = False,
    journal: str | Path | None = None,
    traced: Kernels | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure as many settings of `budget.plan` as fit into a time, the most informative ones first.

    Args:
        device: an idle device; afterwards it is idle again and its clock is left to the card.
        budget_s: the device's time to spend, s, that of the visits in the journal included.
        protocol: how to measure; the plan, not `repeats`, says how often a setting is visited.
        seed: of the plan.
        clocks: whether to set the SM clock.
        journal: a file that takes each visit as it is made; visits that it already holds are not made again.
        traced: kernel traces to take as well; they are put into it. None leaves them out.
        progress: show the time that is left on a terminal.

    Returns:
        A table of the profile schema, a row for each task of each setting that was visited.

    Raises:
        DeviceError: the device refuses a setting or cannot tell a utilisation.
        InputError: the journal belongs to another recording, or the budget is too short for a single visit.
    """
    protocol = protocol or Protocol()
    turns = ", time-slice" if enforced.takes_turns(device) else ""
    log = Journal(journal, _identity(device, protocol, seed, f"budget, clocks={clocks}{turns}"))
    steps = enforced.steps(device, budget.plan(device.gpu, rng=np.random.default_rng(seed), clocks=clocks))
    made: list[Setup] = []
    try:
        _check_catalogue(device)
        session = Session(device, protocol, log, traced)
        with _bar(device, round(budget_s), "s", progress) as bar:
            for item in session.run(
                session.affordable(with_kernels(steps, () if traced is None else traced.workloads), budget_s)
            ):
                if not isinstance(item, Workload):
                    made.append(item[0])
                bar.update(round(log.spent_s) - bar.n)
        if not made:
            raise InputError(
                column="budget",
                found=f"{budget_s:g} s",
                expected=f"time for idle power and one visit: {protocol.visit_s + log.spent_s:g} s and more",
                action="Allow more time.",
            )
        return _table(device, list(dict.fromkeys(point for setup in made for point in setup.points())), log)
    finally:
        log.close()


def profile(
    device: Device,
    out: str | Path,
    *,
    samples: int = -(-design.SAMPLES // 3),
    budget_s: float | None = None,
    clocks: bool = True,
    seed: int = 0,
    protocol: Protocol | None = None,
    command: str = "",
    keep_journal: bool = True,
    trace: Trace | None = None,
    progress: bool = True,
) -> Path:
    """Record a GPU's profile: the reference rows and `samples` settings, or what a time budget allows.

    An interrupted recording goes on where it stopped when it is called again with the same arguments: visits that were
    made are kept and the others are made. A larger budget goes on from a smaller one.

    Args:
        device: the device to record.
        out: the folder of profiles; the table becomes `out/<gpu>/profile.csv`, its manifest `manifest.json` beside it.
        samples: training samples beside the reference rows; a third of the paper's 1,000 by default.
        budget_s: the device's time to spend, s; None measures all references and samples.
        clocks: whether to set the SM clock; without it every sample runs at the top clock.
        seed: of the design and of the order.
        protocol: how to measure.
        command: what was asked for, for the manifest.
        keep_journal: write each visit to `recording.jsonl` beside the table and leave it there.
        trace: what traces a workload's kernels (`kernel_trace.tracer`): one trace of each workload goes into
            `kernels.csv` beside the table. None leaves them out.
        progress: show a progress bar on a terminal.

    Returns:
        The table's path.

    Raises:
        DeviceError: the device refuses a point.
        InputError: the journal in the folder belongs to another recording.
    """
    protocol, gpu = protocol or Protocol(), device.gpu
    folder = Path(out) / gpu.name
    journal = folder / JOURNAL if keep_journal else None
    traced = None if trace is None else _traced(trace, gpu, folder / manifest.KERNELS)
    how: dict[str, Any] = {"protocol": protocol, "seed": seed, "journal": journal, "traced": traced}
    if budget_s is None:
        drawn = design.samples(gpu, samples, rng=np.random.default_rng(_stream(seed, gpu)), clocks=clocks)
        points = enforced.points(device, design.references(gpu) + drawn)
        table = record(device, points, progress=progress, **how)
    else:
        table = record_for(device, budget_s, clocks=clocks, progress=progress, **how)
    path = store.write(table, folder / TABLE)
    left_out = None
    if traced is not None:
        traced.write(folder / manifest.KERNELS)
        left_out = traced.left_out
    manifest.write(path, table, device, protocol, command=command, journal=journal, kernels_left_out=left_out)
    return path


def items(
    device: Device,
    samples: int,
    budget_s: float | None,
    *,
    clocks: bool,
    seed: int,
    repeats: int,
    kernels: bool,
) -> Iterator[Item]:
    """What `profile` with the same arguments does, in its order; endless with a budget, which is not looked at here.

    Args:
        device: what would be recorded; it is only asked what it is.
        samples: training samples beside the reference rows.
        budget_s: the time to spend, s; None is all references and samples.
        clocks: whether the SM clock is set.
        seed: of the design and of the order.
        repeats: visits to each sample without a budget.
        kernels: whether kernels are traced.
    """
    gpu, rng = device.gpu, np.random.default_rng(seed)
    traced = design.traced(gpu) if kernels else []
    if budget_s is not None:
        yield from with_kernels(enforced.steps(device, budget.plan(gpu, rng=rng, clocks=clocks)), traced)
        return
    drawn = design.samples(gpu, samples, rng=np.random.default_rng(_stream(seed, gpu)), clocks=clocks)
    setups = dict.fromkeys(map(Setup.of, enforced.points(device, design.references(gpu) + drawn)))
    yield from repeated(list(setups), repeats, rng)
    yield from traced


def _stream(seed: int, gpu: Gpu) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, *gpu.name.encode()])


def _traced(trace: Trace, gpu: Gpu, path: Path) -> Kernels:
    """The kernel traces of a recording: each workload of the design that fits, but for those in the table already."""
    there = kernels.read(path) if path.exists() else ()
    return Kernels(trace, design.traced(gpu), frozenset(row.setting for row in there))


def _bar(device: Device, total: int, unit: str, progress: bool) -> tqdm[NoReturn]:
    return tqdm(total=total, unit=unit, desc=f"profile {device.gpu.name}", disable=None if progress else True)


def _identity(device: Device, protocol: Protocol, seed: int, plan: str) -> dict[str, object]:
    return {
        "gpu": device.gpu.name,
        "provenance": device.provenance,
        "seed": seed,
        "design": hashlib.sha256(plan.encode()).hexdigest()[:16],
        **asdict(protocol),
    }


def _check_catalogue(device: Device) -> None:
    """A table is checked against the catalogue when it is written: better to know before it is measured."""
    card, top = find_gpu(device.gpu.name), device.gpu.max_mhz
    if top != card.max_mhz:
        raise InputError(
            file="data/gpus.csv",
            column=f"{card.name} clocks_mhz",
            found=f"a top clock of {card.max_mhz} MHz, where the card offers {top} MHz",
            expected="the clocks that the card offers",
            action="Correct clocks_mhz of this GPU, or describe the variant under a name of its own.",
        )


def _table(device: Device, points: Sequence[Point], log: Journal) -> pd.DataFrame:
    visits: dict[str, list[Visit]] = {}
    for key, group in groupby(sorted(log.visits), key=lambda pair: pair[0]):
        visits[key] = [log.visits[pair] for pair in group]
    idle_w = log.idle_w or 0.0
    rows = [row(device.gpu, device.provenance, point, visits[str(Setup.of(point))], idle_w) for point in points]
    return check(store.frame(rows))
