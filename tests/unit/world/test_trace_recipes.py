"""Recipes of public traces: excerpts in their published layouts, with totals recomputed by pandas."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import heshare as hs
from heshare.running.requests import read_requests
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.shared.inputs.foreign_table import LeftOutWarning
from heshare.world.job_trace import JobTable, read_jobs, read_trace
from heshare.world.recipes import RECIPES

pytestmark = pytest.mark.filterwarnings("ignore::heshare.shared.inputs.foreign_table.LeftOutWarning")

HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
41,u1,vc1,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
42,u2,vc1,0,16,1,FAILED,2020-06-09 18:42:01,2020-06-09 18:42:05,2020-06-09 18:46:14,249,4
43,u1,vc2,16,64,2,CANCELLED,2020-06-09 18:50:30,None,None,0,0
44,u3,vc2,8,32,1,COMPLETED,2020-06-09 19:00:30,2020-06-09 19:00:31,2020-06-09 19:02:01,90,1
"""
PAI = """job1,worker,4.0,Terminated,494400.0,495400.0,600.0,29.3,100.0,T4
job1,ps,2.0,Terminated,494400.0,495400.0,600.0,29.3,,
job2,tensorflow,1.0,Terminated,0.0,600000.0,600.0,29.3,50.0,MISC
job3,PyTorchWorker,20.0,Failed,494600.0,494700.0,600.0,29.3,25.0,T4
job4,evaluator,1.0,Terminated,494700.0,494800.0,600.0,29.3,0.0,CPU
job5,worker,1.0,Running,494900.0,,600.0,29.3,150.0,V100
job6,worker,1.0,Waiting,,,600.0,29.3,100.0,V100
job7,worker,2.0,Terminated,495000.0,495100.0,600.0,29.3,150.0,V100
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-0,12000,16384,1,1000,,LS,Running,0,125000,0
pod-1,6000,12288,1,460,,LS,Running,4200,129000,4300
pod-2,20000,65536,0,0,,LS,Running,7500,129000,7502
pod-3,88000,327680,8,1000,V100M16|V100M32,Burstable,Succeeded,9400,10700,9400
pod-4,11908,47104,1,1000,,BE,Pending,10100,10140,
"""
DLRM = """instance_sn,role,app_name,gpu_request,creation_time,scheduled_time,deletion_time
instance_1,HN,app_0,1,,,
instance_2,CN,app_1,0,1435629.0,1435629.0,1435760.0
instance_3,HN,app_0,1,1435700.0,1435710.0,1436710.0
instance_4,HN,app_2,2,1435800.0,1435800.0,1435900.0
"""
GENAI = """gmt_create,predict_type,predict_status,exec_time_seconds,prompt_length,num_inference_steps
2026-01-05 10:00:03,aa,SUCCEED,22.0,54.0,30.0
2026-01-05 10:00:01,aa,SUCCEED,8.5,20.0,20.0
2026-01-05 10:00:09,bb,FAILED,,20.0,20.0
,bb,SUCCEED,7.0,20.0,20.0
"""
AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n2023-11-16 18:16:46,30,9"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
    "2024-05-10 00:00:01+00:00,2399,6\n2024-05-10 01:00:00.017335+00:00,76,15\n\n"
)
GAVEL = (
    "ResNet-18 (batch size 32)\tcd %s/cifar10 && python3 main.py\tcifar10\t--num_steps\t1\t9000\t1\t1\t-1\t0.0\n"
    "A3C\tcd %s/rl && python3 main.py\trl\t--max-steps\t0\t500\t1\t1\t-1\t120.5\n"
    "LM (batch size 80)\tcd %s/lm && python main.py\tlm\t--steps\t1\t20000\t4\t1\t-1\t60.0\n"
)
PHILLY = [
    {
        "status": "Pass",
        "vc": "v1",
        "jobid": "application_1",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:00",
                "end_time": "2017-10-07 01:22:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu4", "gpu5"]}],
            },
            {
                "start_time": "2017-10-07 01:30:00",
                "end_time": "2017-10-07 01:40:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
            },
        ],
        "submitted_time": "2017-10-07 01:11:39",
        "user": "u1",
    },
    {
        "status": "Killed",
        "vc": "v1",
        "jobid": "application_2",
        "attempts": [],
        "submitted_time": "2017-10-07 01:00:00",
        "user": "u2",
    },
    {
        "status": "Failed",
        "vc": "v2",
        "jobid": "application_3",
        "attempts": [
            {"start_time": None, "end_time": None, "detail": []},
            {
                "start_time": "2017-10-07 03:00:00",
                "end_time": "2017-10-07 03:00:30",
                "detail": [{"ip": "m3", "gpus": ["gpu1"]}],
            },
        ],
        "submitted_time": "2017-10-07 02:11:39",
        "user": "u3",
    },
]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_text(text: str, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write_text


def check_totals(table: JobTable, hours: pd.Series, arrivals: pd.Series) -> None:
    """Compare jobs, GPU hours and span with those that pandas gives for the jobs that count."""
    report = table.report
    span_s = (arrivals.max() - arrivals.min()) / (pd.Timedelta("1s") if arrivals.dtype.kind == "M" else 1.0)
    assert (report.kept, len(table.frame)) == (len(hours), len(hours))
    assert report.gpu_hours == pytest.approx(hours.sum())
    assert report.span_s == pytest.approx(span_s)
    assert report.rows == report.kept + sum(report.left_out.values())


def frame_of(text: str, **options: object) -> pd.DataFrame:
    frame: pd.DataFrame = pd.read_csv(io.StringIO(text), **options)
    return frame


def test_helios(write) -> None:
    """Jobs of Helios without a GPU, or without a duration, are left out and counted."""
    frame = frame_of(HELIOS).query("gpu_num > 0 and duration > 0")
    table = read_jobs(write(HELIOS), "helios")
    check_totals(table, frame["duration"] * frame["gpu_num"] / 3600, pd.to_datetime(frame["submit_time"]))
    assert table.report.left_out == {"no GPU": 1, "duration: duration of zero": 1}
    trace = read_trace(write(HELIOS), most_gpus=4)
    assert [(job.submit_s, job.duration_s, job.gpus) for job in trace.jobs] == [(0.0, 36848.0, 1)]
    assert str(trace.report()).count("more than the 4 GPUs of the cluster") == 1


@pytest.mark.parametrize("header", ["", ".header", "first line"])
def test_alibaba_2020(write, header: str) -> None:
    """GPUs of PAI are those of an instance, in hundredths; its header stands beside it, in it, or nowhere."""
    names = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    if header == ".header":
        write(names + "\n", "trace.header")
    text = f"{names}\n{PAI}" if header == "first line" else PAI
    frame = frame_of(PAI, names=names.split(",")).query("plan_gpu > 0 and start_time > 0 and end_time > 0")
    gpus = np.ceil(frame["plan_gpu"] / 100) * frame["inst_num"]
    table = read_jobs(write(text), "alibaba-2020")
    check_totals(table, gpus * (frame["end_time"] - frame["start_time"]) / 3600, frame["start_time"])
    asked = frame["plan_gpu"] / 100 * frame["inst_num"] * (frame["end_time"] - frame["start_time"]) / 3600
    assert table.report.asked_gpu_hours == pytest.approx(asked.sum())
    assert table.report.left_out["no GPU"] == 2


def test_alibaba_2023(write) -> None:
    """A pod holds its GPUs from its schedule on; pods of no GPU, and those that never ran, are left out."""
    frame = frame_of(PODS).query("num_gpu > 0").dropna(subset="scheduled_time")
    table = read_jobs(write(PODS), "alibaba-2023")
    held = frame["num_gpu"] * (frame["deletion_time"] - frame["scheduled_time"]) / 3600
    check_totals(table, held, frame["creation_time"])
    assert table.report.asked_gpu_hours == pytest.approx((held * frame["gpu_milli"] / 1000).sum())
    assert table.report.left_out == {"no GPU": 1, "scheduled_time: empty cell": 1}


def test_alibaba_2025(write) -> None:
    """Instances on CPU nodes, and those without moments, are left out."""
    frame = frame_of(DLRM).query("gpu_request > 0").dropna(subset="scheduled_time")
    table = read_jobs(write(DLRM), "alibaba-2025")
    hours = frame["gpu_request"] * (frame["deletion_time"] - frame["scheduled_time"]) / 3600
    check_totals(table, hours, frame["creation_time"])


def test_alibaba_genai_2026(write) -> None:
    """Requests of GenTD26 are a GPU each, in any order."""
    frame = frame_of(GENAI).dropna(subset=["gmt_create", "exec_time_seconds"])
    table = read_jobs(write(GENAI), "alibaba-genai-2026")
    check_totals(table, frame["exec_time_seconds"] / 3600, pd.to_datetime(frame["gmt_create"]))
    assert table.frame["arrival_s"].tolist() == [0.0, 2.0]


@pytest.mark.parametrize("text", [AZURE_2023, AZURE_2024], ids=["2023", "2024"])
def test_azure(write, text: str) -> None:
    """Requests of both Azure traces have tokens as iterations, and the same span as requests."""
    frame = frame_of(text)
    frame["TIMESTAMP"] = pd.to_datetime(frame["TIMESTAMP"], format="ISO8601")
    tasks = hs.import_jobs(write(text), recipe="azure-llm", workloads="gpt2:1")
    token_s = 1 / hs.iterations("gpt2:1", 1.0)
    assert [task.iterations for task in tasks] == frame["GeneratedTokens"].tolist()
    assert tasks.report.gpu_hours == pytest.approx(frame["GeneratedTokens"].sum() * token_s / 3600)
    span_s = (frame["TIMESTAMP"].max() - frame["TIMESTAMP"].min()).total_seconds()
    requests = read_requests(write(text))
    assert requests[-1].arrival_s == pytest.approx(span_s, abs=1e-6) == tasks.report.span_s
    assert [request.prompt_tokens for request in requests] == frame["ContextTokens"].tolist()


def test_gavel(write) -> None:
    """Jobs of Gavel are its trainings; their hours are steps x the time of a step on a V100."""
    names = RECIPES["gavel"].headers[0]
    frame = frame_of(GAVEL, sep="\t", names=names)
    steps = pd.read_csv(files.data("training", "steps.csv")).set_index(["model", "batch_size"])["step_s"]
    frame["step_s"] = [steps["gavel_resnet18", 32], steps["gavel_a3c", 4], steps["gavel_lm", 80]]
    tasks = hs.import_jobs(write(GAVEL, "some.trace"), recipe="gavel", card="V100")
    hours = frame["total_steps"] * frame["step_s"] * frame["scale_factor"] / 3600
    assert tasks.report.gpu_hours == pytest.approx(hours.sum())
    assert [(str(task.workload), task.arrival_s, task.gpus) for task in tasks] == [
        ("gavel_resnet18-train:32", 0.0, 1),
        ("gavel_lm-train:80", 60.0, 4),
        ("gavel_a3c-train:4", 120.5, 1),
    ]
    older = frame[["job_type", "command", "argument", "total_steps", "arrival_time", "scale_factor"]]
    again = hs.import_jobs(write(older.to_csv(sep="\t", header=False, index=False)), recipe="gavel", card="V100")
    assert again == tasks


def test_philly(write) -> None:
    """A job of Philly has the GPU time of its attempts, and the GPUs of its last one."""
    path = write(json.dumps(PHILLY), "cluster_job_log")
    attempts = [
        (job["submitted_time"], each["start_time"], each["end_time"], sum(len(one["gpus"]) for one in each["detail"]))
        for job in PHILLY
        for each in job["attempts"]
    ]
    frame = pd.DataFrame(attempts, columns=["submitted", "start", "end", "gpus"]).dropna()
    frame[["submitted", "start", "end"]] = frame[["submitted", "start", "end"]].apply(pd.to_datetime)
    frame["hours"] = frame["gpus"] * (frame["end"] - frame["start"]) / pd.Timedelta("1h")
    table = read_jobs(path, "philly")
    check_totals(table, frame.groupby("submitted")["hours"].sum(), frame["submitted"])
    assert table.frame[["size", "gpus"]].to_numpy().tolist() == [[1800.0, 2.0], [30.0, 1.0]]
    assert sum(table.report.left_out.values()) == 1


@pytest.mark.parametrize("content", ["", "[1, 2]", '{"jobid": 3}', '[{"jobid": "a", "attempts": [{}]}]', "jobid\n1\n"])
def test_no_philly(write, content: str) -> None:
    """Another JSON file is refused with one message."""
    with pytest.raises(InputError, match="Philly"):
        read_jobs(write(content, "log.json"), "philly")
    with pytest.raises(InputError, match="no such file"):
        read_jobs(Path("absent.json"), "philly")


def test_wrong_width(write) -> None:
    """A file of another width than a trace without a header is refused."""
    with pytest.raises(InputError, match="10 or 7 or 6 cells"):
        read_jobs(write("a\tb\n"), "gavel")


def test_told(write) -> None:
    """What a recipe leaves out is told."""
    with pytest.warns(LeftOutWarning, match="4 rows read, 2 kept, 2 left out"):
        hs.import_jobs(write(HELIOS), recipe="helios")
    with pytest.raises(InputError, match="Did you mean 'helios'"):
        hs.import_jobs(write(HELIOS), recipe="helois")
