"""Recipes of public traces: which columns of a trace are what. They are tables of jobs or of requests.

Sources: S-Lab-System-Group/HeliosData, msr-fiddle/philly-traces, alibaba/clusterdata (cluster-trace-gpu-v2020, -v2023,
-v2025 and cluster-trace-v2026-GenAI), Azure/AzurePublicDataset, stanford-futuredata/gavel.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from heshare.shared.errors import InputError, unknown
from heshare.shared.files import read_input

Columns = Mapping[str, str | tuple[str, ...]]
KEYS = ("id", "arrival", "start", "duration", "end", "iterations", "gpus", "instances", "workload")
"""What a column can be; `heshare.devices.job_import.import_jobs` describes them."""
_GAVEL_BATCH = {"cyclegan": "1", "a3c": "4"}  # of job types that do not name it


def gavel_workload(job_type: str) -> str:
    """Return the workload of Gavel's job type: `gavel_resnet18-train:32` for `ResNet-18 (batch size 32)`."""
    match = re.fullmatch(r"([A-Za-z0-9-]+)(?: \(batch size (\d+)\))?", job_type)
    name = match[1].lower().replace("-", "") if match else job_type
    return f"gavel_{name}-train:{(match and match[2]) or _GAVEL_BATCH.get(name, '0')}"


def philly_jobs(path: Path) -> pd.DataFrame:
    """Return the jobs of Philly's `cluster_job_log`, a row each: jobid, submitted_time, duration and gpus.

    The number of GPUs is that of the last attempt with a begin and an end, and the duration gives the job the GPU time
    of all such attempts. Both are empty without one.

    Raises:
        InputError: no such file, or no list of such jobs.
    """
    try:
        jobs = pd.DataFrame(json.loads(read_input(path)))
        attempts = jobs[["jobid", "attempts"]].explode("attempts").dropna(subset="attempts")
        each = pd.DataFrame(attempts["attempts"].tolist(), index=attempts.index)
        if each.empty:
            each = pd.DataFrame(columns=["start_time", "end_time", "detail"])
        start, end = (
            pd.to_datetime(each[name], format="ISO8601", errors="coerce") for name in ("start_time", "end_time")
        )
        each["gpus"] = [sum(len(server["gpus"]) for server in detail) for detail in each["detail"]]
        each["gpu_s"] = each["gpus"] * (end - start).dt.total_seconds()
        of_job = each.dropna(subset="gpu_s").groupby(level=0)
        gpus = of_job["gpus"].last()
        found = pd.DataFrame({"duration": of_job["gpu_s"].sum() / gpus, "gpus": gpus})
        table = jobs[["jobid", "submitted_time"]].join(found).rename(index=lambda place: place + 1)
    except FileNotFoundError:
        raise InputError("no such file", "a JSON file of jobs", "Correct the path.", file=path) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found_text = f"no list of Philly's jobs ({type(error).__name__}: {error})"
        expected = "a JSON list of jobs with jobid, submitted_time and attempts"
        raise InputError(found_text, expected, "Check that this is cluster_job_log.", file=path) from None
    return table.astype(object).where(table.notna(), "").astype(str).replace("None", "")


@dataclass(frozen=True)
class Recipe:
    """The columns of a public trace, and what its values mean.

    Attributes:
        columns: its columns, by what they are (`KEYS`).
        gpu_unit: what is one GPU in the column of GPUs.
        zero: what the moment 0 means: `moment`, `unknown`, or `judge` (`ForeignTable.read_moments_s`).
        headers: headers of files without one; a file NAME.header beside the trace comes first.
        delimiter: between cells.
        no_gpu: whether an empty number of GPUs means none.
        jobs: reads the rows where the trace is no CSV file.
        workload: gives the workload of a text in the column of workloads.
    """

    columns: Columns
    gpu_unit: float = 1.0
    zero: str = "judge"
    headers: tuple[tuple[str, ...], ...] = ()
    delimiter: str = ","
    no_gpu: bool = False
    jobs: Callable[[Path], pd.DataFrame] | None = field(default=None, compare=False)
    workload: Callable[[str], str] = field(default=str, compare=False)


_PAI = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
_GAVEL = (
    "job_type,command,working_folder,argument,needs_data,total_steps,scale_factor,priority_weight,slo,arrival_time",
    "job_type,command,argument,needs_data,total_steps,arrival_time,scale_factor",
    "job_type,command,argument,total_steps,arrival_time,scale_factor",
)
_HELIOS = {"id": "job_id", "arrival": "submit_time", "gpus": "gpu_num"}
AZURE = {"arrival": "TIMESTAMP", "iterations": "GeneratedTokens"}

RECIPES = {
    "helios": Recipe({**_HELIOS, "duration": "duration"}),
    # The extract of Helios with four columns.
    "helios-extract": Recipe({**_HELIOS, "duration": "duration_s"}),
    "philly": Recipe(
        {"id": "jobid", "arrival": "submitted_time", "duration": "duration", "gpus": "gpus"}, jobs=philly_jobs
    ),
    # An instance asks for hundredths of a GPU, and a task has several; 0 is before the trace.
    "alibaba-2020": Recipe(
        {
            **{"id": ("job_name", "task_name"), "arrival": "start_time", "end": "end_time"},
            **{"gpus": "plan_gpu", "instances": "inst_num"},
        },
        gpu_unit=100.0,
        zero="unknown",
        headers=(tuple(_PAI.split(",")),),
        no_gpu=True,
    ),
    # num_gpu GPUs, of each gpu_milli thousandths. A pod that was never scheduled has no start.
    "alibaba-2023": Recipe(
        {
            **{"id": "name", "arrival": "creation_time", "start": "scheduled_time", "end": "deletion_time"},
            **{"gpus": "gpu_milli", "instances": "num_gpu"},
        },
        gpu_unit=1000.0,
        zero="moment",
    ),
    # Moments of instances that began before the trace, or ended after it, are empty.
    "alibaba-2025": Recipe(
        {
            **{"id": "instance_sn", "arrival": "creation_time", "start": "scheduled_time", "end": "deletion_time"},
            "gpus": "gpu_request",
        },
        zero="moment",
    ),
    "alibaba-genai-2026": Recipe({"arrival": "gmt_create", "duration": "exec_time_seconds"}),
    "azure-llm": Recipe(AZURE),
    "gavel": Recipe(
        {"arrival": "arrival_time", "iterations": "total_steps", "gpus": "scale_factor", "workload": "job_type"},
        zero="moment",
        headers=tuple(tuple(header.split(",")) for header in _GAVEL),
        delimiter="\t",
        workload=gavel_workload,
    ),
}


def recipe(name: str) -> Recipe:
    """Return the recipe of a name; an `InputError` for an unknown one."""
    if name not in RECIPES:
        raise unknown(name, RECIPES, column="recipe")
    return RECIPES[name]
