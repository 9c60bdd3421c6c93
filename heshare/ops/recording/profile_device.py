"""Recording of a GPU's profile, all samples or those within a time budget, with a journal and a manifest."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.device import Device
from heshare.lab.systems.fikit import kernel_table
from heshare.ops.recording import budget_plan, kernel_recorder
from heshare.profiles import design, manifest, recorder, store
from heshare.profiles.design import Point
from heshare.profiles.visit import MeasurementProtocol, Setup, Visit
from heshare.shared.errors import InputError, require
from heshare.shared.journal import Journal
from heshare.world.workload import Resident

TABLE, JOURNAL = "profile.csv", "recording.jsonl"
ARITHMETIC = "as asked for"
"""The arithmetic of recordings: `fp32` is FP32. In journals without this entry `fp32` was TF32."""
IDENTIFYING_STEPS = 300
"""Number of first steps of an endless plan that identify its journal."""


def default_protocol(budget_s: float | None) -> MeasurementProtocol:
    """Return the default protocol of a visit, which is shorter with a time budget."""
    return MeasurementProtocol() if budget_s is None else budget_plan.PROTOCOL


def is_time_sliced(device: Device) -> bool:
    """Return whether tasks share the device by time-slicing."""
    return device.sharing == "time-slice"


def enforceable_steps(device: Device, steps: Iterable[recorder.Step]) -> Iterator[recorder.Step]:
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


class RecordingJournal(recorder.VisitLog):
    """Visits so far, in memory and (with a path) in a `heshare.shared.journal.Journal`, each written when it ends.

    A visit whose line is incomplete after a crash is repeated; a file of a recording with another `identity` is an
    error.
    """

    def __init__(self, path: str | Path | None, identity: Mapping[str, Any]) -> None:
        super().__init__()
        self._journal = None if path is None else Journal(Path(path), "recording")
        if self._journal is not None:
            try:
                self._load(self._journal, json.loads(json.dumps(identity)))
            except BaseException:
                self.close()
                raise

    def add_idle(self, idle_w: float, took_s: float) -> None:
        self._write({"idle_w": idle_w, "took_s": took_s})
        super().add_idle(idle_w, took_s)

    def add(self, visit: Visit) -> None:
        self._write({"visit": visit.as_dict()})
        super().add(visit)

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(entry)

    def _load(self, journal: Journal, identity: dict[str, Any]) -> None:
        if not journal.entries:
            journal.append({"recording": identity})
            return
        recorded: dict[str, Any] = journal.entries[0]["recording"]
        differing = [key for key in sorted(recorded | identity) if recorded.get(key) != identity.get(key)]
        if differing:
            found = "a recording with " + ", ".join(f"{key}={recorded.get(key)}" for key in differing)
            raise _refused(journal.path, 1, found, ", ".join(f"{key}={identity.get(key)}" for key in differing))
        for number, entry in enumerate(journal.entries[1:], start=2):
            try:
                if "idle_w" in entry:
                    super().add_idle(float(entry["idle_w"]), float(entry["took_s"]))
                    continue
                visit = Visit.from_dict(entry["visit"])
            except (KeyError, TypeError, ValueError):
                raise _refused(journal.path, number, "a damaged line") from None
            if (visit.setup, visit.number) in self.visits:
                raise _refused(journal.path, number, f"visit {visit.number} to {visit.setup} a second time")
            super().add(visit)


def _refused(path: Path, row: int, found: str, expected: str = "the requested recording") -> InputError:
    action = "Record with the same options to continue, record into another folder, or delete the journal."
    return InputError(found, expected, action, file=path, row=row)


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
    more_models: Sequence[str] = (),
    progress: bool = True,
) -> Path:
    """Record a GPU's profile: the reference points and `samples` others, or as many as a time budget allows.

    An interrupted recording is continued by a call with the same arguments, which makes only the missing visits. A
    larger budget continues a smaller one.

    Args:
        device: the device to record.
        out: the folder of profiles; the table is `out/<gpu>/profile.csv`, its manifest `out/<gpu>/manifest.json`.
        samples: training samples in addition to the reference points; a third of the paper's 1,000 by default.
        budget_s: the device's time to spend, s; None measures all references and samples.
        clocks: whether to set the SM clock; without it every sample runs at the top clock.
        seed: of the design and of the order.
        protocol: how to measure; `default_protocol(budget_s)` unless given.
        command: the command that was called, for the manifest.
        keep_journal: write each visit to `out/<gpu>/recording.jsonl`.
        more_models: models of the catalogue to record in addition to those of Table IV.
        progress: show a progress bar on a terminal.

    Returns:
        The table's path.

    Raises:
        DeviceError: the device refuses a point.
        InputError: the journal in the folder belongs to another recording.
    """
    protocol = protocol or default_protocol(budget_s)
    folder = Path(out) / device.gpu.name
    journal = folder / JOURNAL if keep_journal else None
    if budget_s is None:
        points = _design_points(device, samples, clocks, seed, more_models)
        table = record_points(device, points, protocol=protocol, seed=seed, journal=journal, progress=progress)
    else:
        table = record_within_budget(
            device,
            budget_s,
            protocol=protocol,
            seed=seed,
            clocks=clocks,
            journal=journal,
            more_models=more_models,
            progress=progress,
        )
    path = store.write(table, folder / TABLE)
    kernels = kernel_recorder.manifest_entry(folder / kernel_table.NAME) or None
    manifest.write(path, table, device, protocol, command=command, journal=journal, kernels=kernels)
    return path


def record_points(
    device: Device,
    points: Sequence[Point],
    *,
    protocol: MeasurementProtocol | None = None,
    seed: int = 0,
    journal: str | Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure points, each once, as `heshare.profiles.recorder.record` does, with a journal.

    Visits in the file `journal` are not repeated, and each new one is appended to it. The device must be idle before,
    and is idle with no clock set afterwards.

    Raises:
        DeviceError: the device refuses a point or does not report a utilisation.
        InputError: the journal belongs to another recording, or a row breaks the schema.
    """
    plan = "\n".join(map(str, recorder.setups_of(points)))
    with _session(device, protocol or MeasurementProtocol(), seed, plan, journal) as session:
        return session.measure(points, seed=seed, progress=progress)


def record_within_budget(
    device: Device,
    budget_s: float,
    *,
    protocol: MeasurementProtocol | None = None,
    seed: int = 0,
    clocks: bool = False,
    journal: str | Path | None = None,
    more_models: Sequence[str] = (),
    progress: bool = True,
) -> pd.DataFrame:
    """Measure as many setups of `budget_plan.plan` as fit into a time, the most informative ones first.

    `budget_s` is the device's time to spend, s, including the visits in the journal. The plan, not the protocol's
    `repeats`, determines how often a setup is visited; `clocks` allows it to set the SM clock; `more_models` are
    recorded in addition to those of Table IV. The other arguments are those of `record_points`. The table has a row for
    each task of each visited setup.

    Raises:
        DeviceError: the device refuses a setup or does not report a utilisation.
        InputError: the journal belongs to another recording, or the budget is too short for a single visit.
    """
    protocol = protocol or default_protocol(budget_s)
    idle_s = protocol.repeats * protocol.window_s
    _check_budget(budget_s, idle_s + protocol.visit_s)  # before the journal is created

    visited: list[Setup] = []
    steps = _budget_steps(device, clocks, seed, more_models)
    first_steps = list(islice(steps, IDENTIFYING_STEPS))
    plan = "\n".join(f"{setup}#{number}" for setup, number in first_steps)
    with _session(device, protocol, seed, plan, journal) as session:
        with recorder.progress_bar(device, round(budget_s), "s", progress) as bar:
            for setup, _ in session.run(_affordable(chain(first_steps, steps), session, budget_s)):
                visited.append(setup)
                bar.update(round(session.log.spent_s) - bar.n)
        if not visited:
            _check_budget(budget_s, session.log.spent_s + protocol.visit_s)
        points = list(dict.fromkeys(point for setup in visited for point in setup.points()))
        return recorder.profile_table(device, points, session.log)


def _check_budget(budget_s: float, least_s: float) -> None:
    expected = f"time for idle power and one visit: {least_s:g} s and more"
    require("budget", f"{budget_s:g} s", budget_s >= least_s, expected, "Allow more time.")


def planned_steps(
    device: Device,
    samples: int,
    budget_s: float | None,
    *,
    clocks: bool,
    seed: int,
    repeats: int,
    more_models: Sequence[str] = (),
) -> Iterator[recorder.Step]:
    """Yield the visits of `profile` with the same arguments, in its order; endless with a budget.

    Nothing is measured: only the device's description is used. `repeats` is the protocol's.
    """
    if budget_s is not None:
        return _budget_steps(device, clocks, seed, more_models)
    setups = recorder.setups_of(_design_points(device, samples, clocks, seed, more_models))
    return recorder.repeated_visits(setups, repeats, np.random.default_rng(seed))


def _affordable(
    steps: Iterable[recorder.Step], session: recorder.RecordingSession, budget_s: float
) -> Iterator[recorder.Step]:
    """Yield visits while the next one fits, assuming the time of the last visit with the same number of tasks.

    Visits in the journal count as if they were made now, so that an interrupted recording ends at the same visit.
    """
    spent_s, last_s, least_s = session.log.idle_s, dict[int, float](), session.protocol.visit_s
    for setup, number in steps:
        tasks = len(setup.residents)
        # A visit may take longer than the last one with as many tasks, but not less than the protocol's time.
        if spent_s + max(last_s.get(tasks, least_s), least_s) > budget_s:
            return
        yield setup, number
        took_s = session.log.visits[str(setup), number].took_s
        last_s[tasks] = took_s or least_s
        spent_s += took_s


def _design_points(device: Device, samples: int, clocks: bool, seed: int, more_models: Sequence[str]) -> list[Point]:
    rng = np.random.default_rng(np.random.SeedSequence([seed, *device.gpu.name.encode()]))
    drawn = design.samples(device.gpu, samples, rng=rng, clocks=clocks, more_models=more_models)
    return enforceable_points(device, design.references(device.gpu, more_models=more_models) + drawn)


def _budget_steps(device: Device, clocks: bool, seed: int, more_models: Sequence[str]) -> Iterator[recorder.Step]:
    plan = budget_plan.plan(device.gpu, rng=np.random.default_rng(seed), clocks=clocks, more_models=more_models)
    return enforceable_steps(device, plan)


@contextmanager
def _session(
    device: Device, protocol: MeasurementProtocol, seed: int, plan: str, journal: str | Path | None
) -> Iterator[recorder.RecordingSession]:
    recorder.check_catalogue(device)
    identity = {
        "gpu": device.gpu.name,
        "provenance": device.provenance,
        "seed": seed,
        "design": hashlib.sha256(plan.encode()).hexdigest()[:16],
        "arithmetic": ARITHMETIC,
        **asdict(protocol),
    }
    with closing(RecordingJournal(journal, identity)) as log:
        yield recorder.RecordingSession(device, protocol, log)
