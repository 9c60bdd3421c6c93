"""Foreign traces as tasks: Philly, Alibaba and Azure by their columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import heshare as hs
from heshare.shared.errors import InputError

ALIBABA = """job_name,status,start_time,end_time,plan_gpu
a,Terminated,700,1000,50
b,Failed,,,100
c,Terminated,500,600,250
"""
PHILLY = """jobid,submitted_time,duration,num_gpus
x,2017-10-03 11:00:10,60,1
y,2017-10-03 11:00:00,120,4
"""
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.4799600,3180,8
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "jobs.csv"
        path.write_text(text)
        return path

    return write


def test_alibaba(written: Callable[[str], Path]) -> None:
    """Jobs of Alibaba have an end, and GPUs in per cent."""
    columns = {"arrival": "start_time", "end": "end_time", "gpus": "plan_gpu"}
    tasks = hs.import_jobs(written(ALIBABA), columns, gpu_unit=100, skip_bad=True)
    assert [(task.id, task.arrival_s, task.gpus) for task in tasks] == [(0, 0.0, 3), (1, 200.0, 1)]
    assert tasks[1].iterations == pytest.approx(hs.iterations("resnet50:8", 300.0))
    with pytest.raises(InputError, match="row 3, column start_time"):
        hs.import_jobs(written(ALIBABA), columns)


def test_philly(written: Callable[[str], Path]) -> None:
    """Jobs of Philly are sorted by arrival."""
    columns = {"arrival": "submitted_time", "duration": "duration", "gpus": "num_gpus"}
    tasks = hs.import_jobs(written(PHILLY), columns, workloads="vgg16:4", card="V100")
    assert [(task.arrival_s, task.gpus) for task in tasks] == [(0.0, 4), (10.0, 1)]
    assert tasks[0].iterations == pytest.approx(hs.iterations("vgg16:4", 120.0, "V100"))


def test_azure(written: Callable[[str], Path]) -> None:
    """Requests of Azure have iterations."""
    columns = {"arrival": "TIMESTAMP", "iterations": "GeneratedTokens"}
    tasks = hs.import_jobs(written(AZURE), columns, workloads=["gpt2:1", "gpt2:4"], seed=3)
    assert [task.arrival_s for task in tasks] == pytest.approx([0.0, 0.5])
    assert [task.iterations for task in tasks] == [10, 8]
    assert tasks == hs.import_jobs(written(AZURE), columns, workloads=["gpt2:1", "gpt2:4"], seed=3)


@pytest.mark.parametrize(
    ("columns", "text", "message"),
    [
        ({"arival": "a"}, PHILLY, "Did you mean 'arrival'"),
        ({"arrival": "submitted_time"}, PHILLY, "one of duration, end"),
        ({"arrival": "submitted", "duration": "duration"}, PHILLY, "column submitted"),
        ({"arrival": "jobid", "duration": "duration"}, PHILLY, "row 2, column jobid"),
        ({"arrival": "duration", "end": "num_gpus"}, PHILLY, "above zero"),
        ({"arrival": "a", "duration": "b"}, "a,b\nnan,5\n", "'nan'"),
        ({"arrival": "a", "duration": "b"}, "a,b\n", "no job"),
    ],
)
def test_refusals(columns: dict[str, str], text: str, message: str, written: Callable[[str], Path]) -> None:
    """Bad columns and rows are named."""
    with pytest.raises(InputError, match=message):
        hs.import_jobs(written(text), columns)
