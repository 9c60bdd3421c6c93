"""Which of the paper's claims a live comparison on given GPUs can speak to, and which it leaves untested.

A live comparison as tables and files: what was measured beside what the simulator said, with a manifest.
"""

import json
import os
import platform
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare import files
from heshare.errors import InputError
from heshare.experiments import provenance, tables
from heshare.experiments.claims.claim_table import paper_claims
from heshare.gpu.live.live_comparison import DEVICE_MODELS, LiveComparison
from heshare.gpu.live.live_gpus import LiveGpu, cluster_of
from heshare.gpu.live.live_runs import JOBS
from heshare.gpu.live.live_task_set import JOB_PREFIX, job_file_text
from heshare.plugins import title
from heshare.profiles.manifest import NAME as RECORD_MANIFEST

PAPER = frozenset({"T4", "V100", "A100"})


@dataclass(frozen=True, slots=True)
class Need:
    """What a claim needs to be tested for real.

    Attributes:
        gpus: all of these.
        policies: that are run, by the names of the registry.
        clocks: the right to set SM clocks.
        by: `runs` (policies run for real), `record` (the profiles of the GPUs) or `nothing` that a GPU could tell.
    """

    gpus: frozenset[str] = PAPER
    policies: tuple[str, ...] = ()
    clocks: bool = False
    by: str = "runs"


_KNEE, _EN, _JCT = "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt"
_RIVALS = ("morak", "mu-serve")
NEEDS: dict[str, Need] = {
    **{id: Need(by="record") for id in ("M1", "M2", "M3", "M4", "M6")},
    "M5": Need(clocks=True, by="record"),
    **{id: Need(clocks=True, by="record") for id in ("P1", "P2", "P3")},
    "H1": Need(policies=(_KNEE, "morak"), clocks=True),
    "H2": Need(policies=(_KNEE, "mu-serve"), clocks=True),
    "H3": Need(policies=(_EN, "random", _JCT), clocks=True),
    "H4": Need(policies=(_JCT, "random", _EN), clocks=True),
    "H5": Need(policies=("random", "sched-only", _KNEE, _EN, _JCT, *_RIVALS), clocks=True),
    "S1": Need(frozenset(), by="nothing"),
    "G1": Need(policies=(_KNEE, *_RIVALS), clocks=True),
    "G2": Need(policies=(_KNEE, *_RIVALS), clocks=True),
    "G3": Need(policies=(_KNEE, _EN, _JCT), clocks=True),
    "O1": Need(frozenset({"T4"}), (_JCT, *_RIVALS), clocks=True),
    "O2": Need(frozenset({"V100", "A100"}), (_KNEE, *_RIVALS), clocks=True),
    "O3": Need(policies=(_EN, "morak"), clocks=True),
    "O4": Need(policies=(_KNEE, "morak"), clocks=True),
}
"""By claim; those of other papers, about other systems, are not here."""

YES, ELSEWHERE, NO = "yes", "on other GPUs than the paper's", "no"


def coverage(gpus: Collection[str], policies: Collection[str], *, clocks: bool, emulated: bool) -> pd.DataFrame:
    """What a live comparison says of each claim.

    Args:
        gpus: the types of GPU that were there.
        policies: that were run.
        clocks: whether clocks could be set.
        emulated: whether the GPUs were emulated stand-ins.

    Returns:
        One row a claim: id, where, statement (of its first part), tested (`YES`, `ELSEWHERE`, `NO`), why.
    """
    first = {claim.id: claim for claim in reversed(paper_claims().values())}
    rows = []
    for id in dict.fromkeys(claim.id for claim in paper_claims().values()):
        tested, why = _judge(NEEDS.get(id), set(gpus), set(policies), clocks, emulated)
        rows.append(
            {"id": id, "where": first[id].where, "statement": first[id].statement, "tested": tested, "why": why}
        )
    return pd.DataFrame(rows)


def _judge(need: Need | None, gpus: set[str], policies: set[str], clocks: bool, emulated: bool) -> tuple[str, str]:
    if need is None:
        return NO, "about another system, which a live comparison does not run"
    if need.by == "nothing":
        return NO, "about a search, which no GPU could confirm"
    if emulated:
        return NO, "a stand-in played the GPUs"
    missing = [name for name in need.policies if name not in policies]
    if missing:
        return NO, f"not run: {', '.join(missing)}"
    if need.clocks and not clocks:
        return NO, "clocks stay as they are on this machine"
    lacking = sorted(need.gpus - gpus)
    if not lacking:
        return YES, "on this machine's own counts of them" if need.by == "runs" else "by the record"
    if need.by == "runs":
        return ELSEWHERE, f"no {', '.join(lacking)} here"
    return NO, f"no {', '.join(lacking)} here"


def untested_for_clocks(found: pd.DataFrame) -> list[str]:
    """The ids of claims that are left untested because clocks stay as they are."""
    return list(found[found["why"].str.startswith("clocks stay")]["id"])


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


def comparison(trial: LiveComparison) -> pd.DataFrame:
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
            for model in DEVICE_MODELS:
                said = float(getattr(trial.simulated[model][policy], name))
                row |= {model: said, f"{model}_error_pct": 100.0 * (said / found - 1.0)}
            rows.append(row)
    return pd.DataFrame(rows)


def runs(trial: LiveComparison) -> pd.DataFrame:
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


def jobs(trial: LiveComparison) -> pd.DataFrame:
    """JCT of every job, measured and simulated: one row a policy and job."""
    parts = []
    for policy, seen in trial.measured.items():
        measured = seen.jobs.assign(task=seen.jobs["job"].str.removeprefix(JOB_PREFIX).astype(int)).sort_values("task")
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
    """The name of the results' folder: the cluster, and whether stand-ins played it."""
    return ("stand-in-" if trial.emulated else "") + str(cluster_of(trial.gpus)).replace(",", "-")


def write(trial: LiveComparison, out: Path, record: Path, *, command: str) -> Results:
    """Write a comparison into `out/<label>`, all tables and the manifest that holds their checksums.

    Args:
        trial: what was measured and simulated.
        out: the folder of live results.
        record: the folder with the profiles that were recorded for it.
        command: what was asked for.
    """
    folder = out / label(trial)
    shutil.rmtree(folder, ignore_errors=True)
    clocks = all(card.clocks for card in trial.gpus)
    gpus = {card.gpu.name for card in trial.gpus}
    made = {
        "comparison": comparison(trial),
        "runs": runs(trial),
        "jobs": jobs(trial),
        "claims": coverage(gpus, trial.measured, clocks=clocks, emulated=trial.emulated),
    }
    for name, table in made.items():
        files.write_text(folder / f"{name}.csv", tables.to_csv(table))
    files.write_text(folder / JOBS, job_file_text(trial.tasks))
    if not trial.emulated:
        # What a stand-in told must never be found among the records of GPUs.
        for path in sorted(record.glob(f"*/{RECORD_MANIFEST}")):
            for one in (path, path.with_name("profile.csv")):
                files.write_text(folder / "profiles" / path.parent.name / one.name, one.read_text(encoding="utf-8"))
    kept = sorted(path for path in folder.rglob("*") if path.is_file())
    said = _manifest(trial, command) | {
        "claims_untested_for_clocks": untested_for_clocks(made["claims"]),
        "files": {path.relative_to(folder).as_posix(): files.sha256(path) for path in kept},
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
            "no live comparison",
            f"the name of one below data/live ({known or 'there is none yet'}), or a folder's path",
            "On a machine with a GPU, run: make live",
            file=path,
            column="results",
        )
    said = json.loads(path.read_text(encoding="utf-8"))
    for name, expected in said["files"].items():
        if not (folder / name).is_file() or files.sha256(folder / name) != expected:
            raise InputError(
                "a file that was changed after it was written",
                f"the one that {MANIFEST} names",
                "Restore it, or run `make live` again.",
                file=folder / name,
            )
    return Results(folder, {name: pd.read_csv(folder / f"{name}.csv", keep_default_na=True) for name in TABLES}, said)


def worst(found: pd.DataFrame, model: str, quantity: str) -> float:
    """The largest |error| of a device model over the policies, %."""
    return float(found[found["quantity"].str.startswith(quantity)][f"{model}_error_pct"].abs().max())


def _manifest(trial: LiveComparison, command: str) -> dict[str, Any]:
    return {
        "command": command,
        "stand_in": trial.emulated,
        "cluster": str(cluster_of(trial.gpus)),
        "asked": asdict(trial.config),
        "cards": [_facts(card) for card in trial.gpus],
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


def _facts(card: LiveGpu) -> dict[str, Any]:
    """A card by what it tells; how jobs shared it is the runs' to say, for it was looked at without any."""
    told = {name: value for name, value in card.facts.items() if not name.startswith("sharing")}
    return {"gpu": card.gpu.name, "clocks_set": card.clocks, **told}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
