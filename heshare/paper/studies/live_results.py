"""Results of a live comparison: tables and files of measured and simulated values, with a manifest.

One table has the claims of the paper that a comparison on the given GPUs tests, and the untested ones.
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

from heshare.ops.live.live_comparison import DEVICE_MODELS, LiveComparison
from heshare.ops.live.live_gpus import LiveGpu, cluster_of
from heshare.ops.live.live_runs import JOBS
from heshare.ops.live.live_task_set import JOB_PREFIX, job_file_text
from heshare.paper import tables
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.provenance import commit
from heshare.paper.provenance import sidecar as provenance
from heshare.policies.registry import title
from heshare.profiles.manifest import NAME as RECORD_MANIFEST
from heshare.shared import files
from heshare.shared.errors import InputError, require

PAPER = frozenset({"T4", "V100", "A100"})


@dataclass(frozen=True, slots=True)
class Need:
    """Requirements of a test of a claim on real GPUs: policies, GPUs and permissions.

    Attributes:
        policies: names of the policies to run; if empty, the recorded profiles of the GPUs test the claim.
        gpus: types of GPU; empty for a claim that no GPU can test.
        clocks: whether SM clocks must be settable.
    """

    policies: tuple[str, ...] = ()
    gpus: frozenset[str] = PAPER
    clocks: bool = True


_KNEE, _EN, _JCT = "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt"
_BASELINES = ("morak", "mu-serve")
NEEDS: dict[str, Need] = {
    **dict.fromkeys(("M1", "M2", "M3", "M4", "M6", "M7"), Need(clocks=False)),
    **dict.fromkeys(("M5", "P1", "P2", "P3", "P4", "P5"), Need()),
    "H1": Need((_KNEE, "morak")),
    "H2": Need((_KNEE, "mu-serve")),
    "H3": Need((_EN, "random", _JCT)),
    "H4": Need((_JCT, "random", _EN)),
    "H5": Need(("random", "sched-only", _KNEE, _EN, _JCT, *_BASELINES)),
    "H6": Need((_JCT, _EN, _KNEE)),
    "S1": Need(gpus=frozenset()),
    "G1": Need((_KNEE, *_BASELINES)),
    "G2": Need((_KNEE, *_BASELINES)),
    "G3": Need((_KNEE, _EN, _JCT)),
    "O1": Need((_JCT, *_BASELINES), frozenset({"T4"})),
    "O2": Need((_KNEE, *_BASELINES), frozenset({"V100", "A100"})),
    "O3": Need((_EN, "morak")),
    "O4": Need((_KNEE, "morak")),
    "O5": Need((_EN, _KNEE, _JCT, *_BASELINES)),
    "O6": Need((_KNEE, *_BASELINES)),
}
"""By claim of the paper; claims of other papers about other systems are not included."""

YES, ELSEWHERE, NO = "yes", "on other GPUs than the paper's", "no"


def coverage(gpus: Collection[str], policies: Collection[str], *, clocks: bool, emulated: bool) -> pd.DataFrame:
    """Return a table of the claims that a live comparison tests or leaves untested."""
    claims = pd.DataFrame(list(paper_claims().values()))[["id", "where", "statement"]]
    claims = claims.drop_duplicates("id", ignore_index=True)
    tested = [_tested_and_why(NEEDS.get(id), set(gpus), set(policies), clocks, emulated) for id in claims["id"]]
    return claims.assign(tested=[verdict for verdict, _ in tested], why=[why for _, why in tested])


def _tested_and_why(
    need: Need | None, gpus: set[str], policies: set[str], clocks: bool, emulated: bool
) -> tuple[str, str]:
    if need is None:
        return NO, "about another system, which a live comparison does not run"
    if not need.gpus:
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
        return YES, "on this machine's own counts of them" if need.policies else "by the record"
    return ELSEWHERE if need.policies else NO, f"no {', '.join(lacking)} here"


def untested_for_clocks(found: pd.DataFrame) -> list[str]:
    return list(found[found["why"].str.startswith("clocks stay")]["id"])


MANIFEST = "manifest.json"
TABLES = ("comparison", "runs", "jobs", "claims")
TARGET_PCT = 10.0
"""The largest acceptable difference between simulated and measured, %."""
_QUANTITIES = {
    "average JCT (s)": "avg_jct_s",
    "makespan (s)": "makespan_s",
    "energy, active account (J)": "energy_active_j",
    "energy, cluster account (J)": "energy_cluster_j",
}


@dataclass(frozen=True)
class Results:
    """The written results of a live comparison: its folder, its tables by name (`TABLES`), and its manifest."""

    folder: Path
    tables: dict[str, pd.DataFrame]
    manifest: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The provenance of the rows: `measured`, or `emulated` for simulated NVML."""
        return "emulated" if self.manifest["stand_in"] else "measured"

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows with values of each provenance; each row has both a run's and simulated values."""
        return dict.fromkeys(("emulated", self.kind), len(self.tables["comparison"]))

    @property
    def label(self) -> str:
        """The name of the comparison in captions."""
        gpus = "stand-ins for the NVML library and the GPU, real processes" if self.manifest["stand_in"] else "real"
        return f"{self.manifest['cluster']} ({gpus})"


def comparison(trial: LiveComparison) -> pd.DataFrame:
    """Return measured and simulated values, one row a policy and quantity."""
    rows = []
    for policy, outcome in trial.measured.items():
        for quantity, name in _QUANTITIES.items():
            row: dict[str, object] = {"policy": policy, "title": title(policy), "quantity": quantity}
            row["measured"] = found = float(getattr(outcome, name))
            for model in DEVICE_MODELS:
                simulated = float(getattr(trial.simulated[model][policy], name))
                row |= {model: simulated, f"{model}_error_pct": 100.0 * (simulated / found - 1.0)}
            rows.append(row)
    return pd.DataFrame(rows)


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


def write(trial: LiveComparison, out: Path, record: Path, *, command: str) -> Results:
    """Write the tables of a comparison, and the manifest with their checksums, into the folder `out/<label>`."""
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
        # The profile of a simulated GPU must not be read as the record of a GPU.
        for path in sorted(record.glob(f"*/{RECORD_MANIFEST}")):
            for one in (path, path.with_name("profile.csv")):
                files.write_text(folder / "profiles" / path.parent.name / one.name, one.read_text(encoding="utf-8"))

    kept = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = _manifest(trial, command) | {
        "claims_untested_for_clocks": untested_for_clocks(made["claims"]),
        "files": {path.relative_to(folder).as_posix(): files.sha256(path) for path in kept},
    }
    files.write_text(folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False, default=_plain) + "\n")
    return read(folder)


def read(where: str | Path) -> Results:
    """Return results, read by the name of their folder below `data/live` or by a path.

    Raises:
        InputError: no results, or a file was changed after it was written.
    """
    folder = Path(where) if "/" in str(where) else files.data() / "live" / str(where)
    path = folder / MANIFEST
    if not path.is_file():
        known = ", ".join(sorted(one.parent.name for one in (files.data() / "live").glob(f"*/{MANIFEST}")))
        expected = f"the name of one below data/live ({known or 'there is none yet'}), or a folder's path"
        action = "On a machine with a GPU, run: make live"
        raise InputError("no live comparison", expected, action, file=path, column="results")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for name, digest in manifest["files"].items():
        path, found = folder / name, "a file that was changed after it was written"
        good, action = path.is_file() and files.sha256(path) == digest, "Restore it, or run `make live` again."
        require(None, found, good, f"the one that {MANIFEST} names", action, file=path)
    return Results(
        folder, {name: pd.read_csv(folder / f"{name}.csv", keep_default_na=True) for name in TABLES}, manifest
    )


def worst(found: pd.DataFrame, model: str, quantity: str) -> float:
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
        "git_commit": commit.git_commit(),
    }


def _facts(card: LiveGpu) -> dict[str, Any]:
    facts = {name: value for name, value in card.facts.items() if not name.startswith("sharing")}
    return {"gpu": card.gpu.name, "clocks_set": card.clocks, **facts}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
