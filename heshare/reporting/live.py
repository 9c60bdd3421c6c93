"""A live comparison as tables and files: what was measured beside what the simulator said, with a manifest."""

from __future__ import annotations

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

from heshare import files
from heshare.errors import InputError
from heshare.policies.registry import title
from heshare.profiles.manifest import NAME as RECORD_MANIFEST
from heshare.reporting import provenance, tables
from heshare.reporting.live_claims import coverage, untested_for_clocks
from heshare.running.live.cards import LiveCard, cluster
from heshare.running.live.jobs import PREFIX, as_yaml
from heshare.running.live.measuring import JOBS
from heshare.running.live.simulating import MODELS
from heshare.running.live.trial import Trial

MANIFEST = "manifest.json"
TABLES = ("comparison", "runs", "jobs", "claims")
AIM_PCT = 10.0
"""How near simulated and measured should be, %."""
_QUANTITIES = {
    "average JCT (s)": "avg_jct_s",
    "makespan (s)": "makespan_s",
    "energy, active account (J)": "energy_active_j",
    "energy, cluster account (J)": "energy_cluster_j",
}


@dataclass(frozen=True)
class Results:
    """A live comparison as it was written.

    Attributes:
        folder: where.
        tables: by name (`TABLES`).
        manifest: how it came to be.
    """

    folder: Path
    tables: dict[str, pd.DataFrame]
    manifest: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The provenance of its rows: `measured`, or `emulated` where a stand-in played the GPUs."""
        return "emulated" if self.manifest["stand_in"] else "measured"

    @property
    def rows(self) -> dict[str, int]:
        """In how many rows of the comparison there are values of which provenance: each has one run and simulations."""
        count = len(self.tables["comparison"])
        return dict.fromkeys(("emulated", self.kind), count)

    @property
    def label(self) -> str:
        """What it is called in captions."""
        played = "stand-ins for the NVML library and the GPU, real processes" if self.manifest["stand_in"] else "real"
        return f"{self.manifest['cluster']} ({played})"


def comparison(trial: Trial) -> pd.DataFrame:
    """Measured beside simulated, one row a policy and quantity.

    Returns:
        Columns policy, title, quantity, measured, then for each device model its value and its error, % of what was
        measured, such as fitted and fitted_error_pct.
    """
    rows = []
    for policy, seen in trial.measured.items():
        for quantity, name in _QUANTITIES.items():
            row: dict[str, object] = {"policy": policy, "title": title(policy), "quantity": quantity}
            row["measured"] = found = float(getattr(seen, name))
            for model in MODELS:
                said = float(getattr(trial.simulated[model][policy], name))
                row |= {model: said, f"{model}_error_pct": 100.0 * (said / found - 1.0)}
            rows.append(row)
    return pd.DataFrame(rows)


def runs(trial: Trial) -> pd.DataFrame:
    """What else is to be known of each policy's run: planning, loading, attempts, clocks."""
    rows = []
    for policy, seen in trial.measured.items():
        fitted = trial.simulated["fitted"][policy]
        rows.append(
            {
                "policy": policy,
                "tasks": len(seen.jobs),
                "attempts": int(seen.jobs["attempts"].sum()),
                "before_first_start_s": seen.before_s,
                "simulator_planning_s": fitted.planning_s,
                "longest_loading_s": float(seen.jobs["loading_s"].max()),
                "mean_loading_s": float(seen.jobs["loading_s"].mean()),
                "sm_mhz": float(seen.jobs["sm_mhz"].mean()),
                "sharing": "+".join(sorted(set(seen.sharing))),
                "limits": "+".join(seen.limits),
                "notes": " ".join(seen.notes),
            }
        )
    return pd.DataFrame(rows)


def jobs(trial: Trial) -> pd.DataFrame:
    """JCT of every job, measured and simulated: one row a policy and job."""
    parts = []
    for policy, seen in trial.measured.items():
        measured = seen.jobs.assign(task=seen.jobs["job"].str.removeprefix(PREFIX).astype(int)).sort_values("task")
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
        parts.append(frame.assign(**{f"{model}_jct_s": trial.simulated[model][policy].jct_s for model in MODELS}))
    return pd.concat(parts, ignore_index=True)


def label(trial: Trial) -> str:
    """The name of the results' folder: the cluster, and whether stand-ins played it."""
    return ("stand-in-" if trial.played else "") + str(cluster(trial.cards)).replace(",", "-")


def write(trial: Trial, out: Path, record: Path, *, command: str) -> Results:
    """Write a comparison into `out/<label>`, all tables and the manifest that holds their checksums.

    Args:
        trial: what was measured and simulated.
        out: the folder of live results.
        record: the folder with the profiles that were recorded for it.
        command: what was asked for.
    """
    folder = out / label(trial)
    shutil.rmtree(folder, ignore_errors=True)
    clocks = all(card.clocks for card in trial.cards)
    gpus = {card.gpu.name for card in trial.cards}
    made = {
        "comparison": comparison(trial),
        "runs": runs(trial),
        "jobs": jobs(trial),
        "claims": coverage(gpus, trial.measured, clocks=clocks, played=trial.played),
    }
    for name, table in made.items():
        files.write_text(folder / f"{name}.csv", tables.to_csv(table))
    files.write_text(folder / JOBS, as_yaml(trial.tasks))
    if not trial.played:
        # What a stand-in told must never be found among the records of GPUs.
        for path in sorted(record.glob(f"*/{RECORD_MANIFEST}")):
            for one in (path, path.with_name("profile.csv")):
                files.write_text(folder / "profiles" / path.parent.name / one.name, one.read_text(encoding="utf-8"))
    kept = sorted(path for path in folder.rglob("*") if path.is_file())
    said = _manifest(trial, command) | {
        "claims_untested_for_clocks": untested_for_clocks(made["claims"]),
        "files": {path.relative_to(folder).as_posix(): provenance.sha256(path) for path in kept},
    }
    files.write_text(folder / MANIFEST, json.dumps(said, indent=2, ensure_ascii=False, default=_plain) + "\n")
    return read(folder)


def read(where: str | Path) -> Results:
    """Results by the name of their folder below `data/live`, or by a path.

    Raises:
        InputError: there are none, or a file was changed after it was written.
    """
    folder = Path(where) if "/" in str(where) else files.root() / "data" / "live" / str(where)
    path = folder / MANIFEST
    if not path.is_file():
        known = ", ".join(sorted(one.parent.name for one in (files.root() / "data" / "live").glob(f"*/{MANIFEST}")))
        raise InputError(
            file=path,
            column="results",
            found="no live comparison",
            expected=f"the name of one below data/live ({known or 'there is none yet'}), or a folder's path",
            action="On a machine with a GPU, run: make live",
        )
    said = json.loads(path.read_text(encoding="utf-8"))
    for name, expected in said["files"].items():
        if not (folder / name).is_file() or provenance.sha256(folder / name) != expected:
            raise InputError(
                file=folder / name,
                found="a file that was changed after it was written",
                expected=f"the one that {MANIFEST} names",
                action="Restore it, or run `make live` again.",
            )
    return Results(folder, {name: pd.read_csv(folder / f"{name}.csv", keep_default_na=True) for name in TABLES}, said)


def worst(found: pd.DataFrame, model: str, quantity: str) -> float:
    """The largest |error| of a device model over the policies, %."""
    return float(found[found["quantity"].str.startswith(quantity)][f"{model}_error_pct"].abs().max())


def _manifest(trial: Trial, command: str) -> dict[str, Any]:
    return {
        "command": command,
        "stand_in": trial.played,
        "cluster": str(cluster(trial.cards)),
        "asked": asdict(trial.asked),
        "cards": [_facts(card) for card in trial.cards],
        "loading": asdict(trial.loading),
        "record": {
            str(gpu): {"rows": len(part), "idle_w": float(part["idle_w"].mean())}
            for gpu, part in trial.table.groupby("gpu")
        },
        "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "versions": provenance.versions(),
        "git_commit": provenance.git_commit(),
    }


def _facts(card: LiveCard) -> dict[str, Any]:
    """A card by what it tells; how jobs shared it is the runs' to say, for it was looked at without any."""
    told = {name: value for name, value in card.facts.items() if not name.startswith("sharing")}
    return {"gpu": card.gpu.name, "clocks_set": card.clocks, **told}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
