"""Dry run of jobs on this machine's GPUs: the plan, the locks and processes of a run, and missing permissions."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from heshare.lab.limits import PowerLimit, check_cluster, within_limit
from heshare.ops import mps
from heshare.ops.clocks import RIGHT
from heshare.ops.executor import job_tasks
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.gpu_lock import lock_path
from heshare.ops.executor.host import Host
from heshare.ops.executor.local_gpus import planned_cluster, select_gpus
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.jobs.run_state import job_states
from heshare.ops.nvml.card_survey import ChosenGpus
from heshare.ops.probe import may_set_clocks
from heshare.policies.policy import Action, Event, SetClock, Start
from heshare.policies.registry import make
from heshare.prediction.predictor import Predictor
from heshare.running.observer import Observer
from heshare.running.run import run
from heshare.shared.file_lock import is_locked


@dataclass(frozen=True)
class DryRun:
    """Result of a dry run.

    Attributes:
        jobs: one row a job, as planned: job, gpu (UUID), mps_pct, clock_mhz (None is the GPU's default), start_s,
            end_s.
        totals: time and energy as predicted by the device model.
        notes: sentences on the locks and processes of a run, and on missing permissions.
    """

    jobs: pd.DataFrame
    totals: dict[str, float]
    notes: list[str]

    def text(self) -> str:
        totals = [f"{name}: {value:.6g}" for name, value in self.totals.items()]
        return "\n".join([self.jobs.to_string(index=False), "", *totals, "", *[f"- {note}" for note in self.notes], ""])


class _StartObserver(Observer):
    def __init__(self) -> None:
        self.starts: dict[int, tuple[int, int]] = {}
        self.clocks: dict[int, int | None] = {}
        self.clock_of: dict[int, int | None] = {}

    def on_decision(self, event: Event, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, SetClock):
                self.clocks[action.gpu] = action.sm_mhz
            elif isinstance(action, Start):
                self.starts[action.task] = action.gpu, action.mps_pct
        for action in actions:
            if isinstance(action, Start):
                self.clock_of[action.task] = self.clocks.get(action.gpu)


def dry_run(
    file: Path,
    folder: Path,
    *,
    policy: str,
    devices: str,
    predictor: Predictor,
    seed: int,
    allow_clocks: bool,
    power_limit: PowerLimit | None = None,
    host: Host | None = None,
) -> DryRun:
    """Return what `execute` would do with the same arguments; nothing is started, locked, set or written.

    Raises:
        InputError, DeviceError: as `execute` before it starts anything.
    """
    host = host or Host()
    specs = read_jobs(file)
    made = make(policy)
    job_tasks.check_real_jobs(specs, file, host.models_lack())
    chosen = select_gpus(devices, host)
    if (folder / run_journal.NAME).exists():
        run_journal.refuse_begun(folder, run_journal.read(folder))

    clocks = allow_clocks and may_set_clocks()
    cluster = planned_cluster(chosen.uuids, host, clocks=clocks)
    if power_limit is not None:
        check_cluster(cluster, power_limit)
    tasks, assigned = job_tasks.remaining_tasks(job_states(specs))

    # The random numbers of the first session of a run.
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[-1])
    starts, limited = _StartObserver(), within_limit(FaultTolerantPolicy(made), power_limit)
    result = run(tasks, cluster, limited, predictor=predictor, rng=rng, observer=starts)

    rows = []
    for task, row in zip(tasks, result.to_frame().to_dict("records"), strict=True):
        gpu, mps_pct = starts.starts[task.id]
        rows.append(
            {
                "job": assigned[task.id].key,
                "gpu": chosen.uuids[gpu],
                "mps_pct": mps_pct,
                "clock_mhz": starts.clock_of[task.id],
                "start_s": row["arrival_s"] + row["waiting_s"],
                "end_s": row["arrival_s"] + row["jct_s"],
            }
        )
    summary = result.summary()
    totals = {name: float(summary[name]) for name in ("makespan_s", "avg_jct_s", "energy_active_j", "energy_cluster_j")}
    notes = [*_notes(chosen, folder), _clock_note(allow_clocks, clocks), *chosen.left_out]
    return DryRun(pd.DataFrame(rows), totals, notes)


def _clock_note(allow_clocks: bool, clocks: bool) -> str:
    if not allow_clocks:
        return "Clocks would be left to the GPUs: --allow-clocks was not given."
    return "Clocks would be set, if the driver agrees." if clocks else RIGHT


def _notes(chosen: ChosenGpus, folder: Path) -> list[str]:
    program = shutil.which(mps.CONTROL)
    notes = [f"Nothing was started or changed. A run would write to {folder}."]
    for uuid in chosen.uuids:
        lock = lock_path(uuid)
        in_use = "; another run has it now: it would be refused" if is_locked(lock) else ""
        notes.append(f"GPU {uuid}: would be locked by {lock}{in_use}.")
    notes += [f"GPU {card.uuid}: {card.use}." for card in chosen.cards if card.uuid in chosen.uuids and card.use]
    if program is None:
        notes.append(f"No MPS ({mps.CONTROL} is not on the PATH): jobs would take turns, and shares are not enforced.")
    else:
        notes.append(f"An MPS daemon would be started for each GPU ({program}), and a cleanup process.")
    return notes
