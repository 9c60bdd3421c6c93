"""Results of a live comparison: tables and files of measured and simulated values, with a manifest.

The paper's figures and statements on the same GPUs are those of their record (`heshare.paper.studies.sources`).
"""

import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.ops.live.live_comparison import DEVICE_MODELS, LiveComparison
from heshare.ops.live.live_gpus import LiveGpu, cluster_of
from heshare.ops.live.live_runs import JOBS
from heshare.ops.live.live_task_set import JOB_PREFIX, job_file_text
from heshare.ops.recording.recordings import TABLE
from heshare.paper import tables
from heshare.paper.provenance import commit
from heshare.paper.provenance import sidecar as provenance
from heshare.policies.registry import title
from heshare.profiles.manifest import NAME as RECORD_MANIFEST
from heshare.shared import files

MANIFEST, PROFILES = "manifest.json", "profiles"
TARGET_PCT = 10.0
"""The largest acceptable difference between simulated and measured, %."""
JCT, ENERGY = "average JCT (s)", "energy, active account (J)"
_QUANTITIES = {
    JCT: "avg_jct_s",
    "makespan (s)": "makespan_s",
    ENERGY: "energy_active_j",
    "energy, cluster account (J)": "energy_cluster_j",
}


@dataclass(frozen=True)
class Results:
    """The written results of a live comparison: its folder, its tables by name, and its manifest."""

    folder: Path
    tables: dict[str, pd.DataFrame]
    manifest: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The provenance of the rows: `measured`, or `emulated` for simulated NVML."""
        return _kind(self.manifest["stand_in"])


def comparison(trial: LiveComparison) -> pd.DataFrame:
    """Return measured and simulated values, one row a policy and quantity.

    `charged_for_starts` is the value on the fitted device model less that without the times of starting and ending
    processes.
    """
    rows = []
    for policy, outcome in trial.measured.items():
        for quantity, name in _QUANTITIES.items():
            row: dict[str, object] = {"policy": policy, "title": title(policy), "quantity": quantity}
            row["measured"] = found = float(getattr(outcome, name))
            for model in DEVICE_MODELS:
                simulated = float(getattr(trial.simulated[model][policy], name))
                row |= {model: simulated, f"{model}_error_pct": 100.0 * (simulated / found - 1.0)}
            without = float(getattr(trial.without_loading[policy], name))
            row["charged_for_starts"] = float(getattr(trial.simulated["fitted"][policy], name)) - without
            rows.append(row)
    return pd.DataFrame(rows)


def beside(found: pd.DataFrame) -> pd.DataFrame:
    """Return average JCT and active energy measured beside simulated on the fitted model, one row a policy.

    `found` is as from `comparison`.
    """
    titles = found.drop_duplicates("policy").set_index("policy")["title"]
    parts = [titles.rename("system").to_frame()]
    for quantity, name, unit in ((JCT, "JCT", "s"), (ENERGY, "energy", "J")):
        columns = {
            "measured": f"{name} measured ({unit})",
            "fitted": f"simulated ({unit})",
            "fitted_error_pct": f"{name} error (%)",
            "charged_for_starts": f"for starts ({unit})",
        }
        rows = found[found["quantity"] == quantity].set_index("policy")
        parts.append(rows[list(columns)].rename(columns=columns))
    return pd.concat(parts, axis=1).reset_index(drop=True)


def runs(trial: LiveComparison) -> pd.DataFrame:
    rows = []
    for policy, outcome in trial.measured.items():
        fitted = trial.simulated["fitted"][policy]
        rows.append(
            {
                "policy": policy,
                "tasks": len(outcome.jobs),
                "attempts": int(outcome.jobs["attempts"].sum()),
                "before_first_start_s": outcome.before_s,
                "simulator_planning_s": fitted.planning_s,
                "longest_loading_s": float(outcome.jobs["loading_s"].max()),
                "mean_loading_s": float(outcome.jobs["loading_s"].mean()),
                "sm_mhz": float(outcome.jobs["sm_mhz"].mean()),
                "sharing": "+".join(sorted(set(outcome.sharing))),
                "limits": "+".join(outcome.limits),
                "notes": " ".join(outcome.notes),
            }
        )
    return pd.DataFrame(rows)


def jobs(trial: LiveComparison) -> pd.DataFrame:
    """Return the JCT of every job, measured and simulated: one row a policy and job."""
    parts = []

    for policy, outcome in trial.measured.items():
        numbers = outcome.jobs["job"].str.removeprefix(JOB_PREFIX).astype(int)
        measured = outcome.jobs.assign(task=numbers).sort_values("task")
        tasks = [trial.tasks[task] for task in measured["task"]]

        frame = pd.DataFrame(
            {
                "policy": policy,
                "task": measured["task"],
                "workload": [one.workload.model for one in tasks],
                "batch_size": [one.workload.batch_size for one in tasks],
                "iterations": [int(one.iterations) for one in tasks],
                "gpu": measured["gpu"],
                "attempts": measured["attempts"],
                "loading_s": measured["loading_s"],
                "measured_jct_s": measured["jct_s"],
            }
        )
        parts.append(
            frame.assign(**{f"{model}_jct_s": trial.simulated[model][policy].jct_s for model in DEVICE_MODELS})
        )

    return pd.concat(parts, ignore_index=True)


def label(trial: LiveComparison) -> str:
    """Return the name of the results' folder: the cluster, with a prefix if its GPUs were simulated."""
    return ("stand-in-" if trial.emulated else "") + str(cluster_of(trial.gpus)).replace(",", "-")


def write(trial: LiveComparison, out: Path, *, command: str) -> Results:
    """Write the tables of a comparison, and the manifest with their checksums, into the folder `out/<label>`."""
    folder = out / label(trial)
    shutil.rmtree(folder, ignore_errors=True)

    made = {"comparison": comparison(trial), "runs": runs(trial), "jobs": jobs(trial)}

    for name, table in made.items():
        files.write_text(folder / f"{name}.csv", tables.to_csv(table))
    files.write_text(folder / JOBS, job_file_text(trial.tasks))

    # The record of a stand-in that does not say so in each row must not be read as that of a GPU.
    if set(trial.table["provenance"]) == {_kind(trial.emulated)}:
        for record in trial.records:
            for path in (record, record.with_name(RECORD_MANIFEST)):
                text = path.read_text(encoding="utf-8")
                files.write_text(folder / PROFILES / record.parent.name / path.name, text)

    kept = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = _manifest(trial, command) | {
        "files": {path.relative_to(folder).as_posix(): files.sha256(path) for path in kept},
    }
    files.write_text(folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False, default=_plain) + "\n")
    return Results(folder, made, manifest)


def source_of(written: Results) -> str:
    """Return the records of a live comparison as a source of figures; empty if it has none."""
    tables = sorted((written.folder / PROFILES).glob(f"*/{TABLE}"))
    return ",".join(f"recorded:{table.parent}" for table in tables)


def of_record(table: Path) -> Results | None:
    """Return the results of the live comparison that made a record, by the record's table; None if none did."""
    folder = table.parents[2]
    if table.parents[1].name != PROFILES or not (folder / MANIFEST).is_file():
        return None
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return Results(folder, {"comparison": pd.read_csv(folder / "comparison.csv")}, manifest)


def worst(found: pd.DataFrame, model: str, quantity: str) -> float:
    return float(found[found["quantity"].str.startswith(quantity)][f"{model}_error_pct"].abs().max())


def _kind(stand_in: bool) -> str:
    return "emulated" if stand_in else "measured"


def _manifest(trial: LiveComparison, command: str) -> dict[str, Any]:
    return {
        "command": command,
        "stand_in": trial.emulated,
        "cluster": str(cluster_of(trial.gpus)),
        "asked": asdict(trial.config),
        "tasks": len(trial.tasks),
        "left": trial.left,
        "cards": [_facts(card) for card in trial.gpus],
        "loading": asdict(trial.loading),
        "record": {
            str(gpu): {"rows": len(part), "idle_w": float(part["idle_w"].mean())}
            for gpu, part in trial.table.groupby("gpu")
        },
        "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "versions": provenance.versions(),
        "git_commit": commit.git_commit(),
    }


def _facts(card: LiveGpu) -> dict[str, Any]:
    facts = {name: value for name, value in card.facts.items() if not name.startswith("sharing")}
    return {"gpu": card.gpu.name, "clocks_set": card.clocks, **facts}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
