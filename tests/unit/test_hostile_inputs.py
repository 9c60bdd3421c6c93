"""Hostile inputs: damaged files and texts that no user would write are refused with one message."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.run_entries import ended, run_of, session, started

import heshare as hs
from heshare.lab.advice.meter_log import read_meter
from heshare.lab.sweeps.grid import read_grid
from heshare.lab.sweeps.plan_file import read_plan
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import encode
from heshare.ops.jobs.job_file import read_jobs
from heshare.paper.notebooks import parameters
from heshare.profiles import store
from heshare.running.requests import read_requests
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.shared.journal import journal_line
from heshare.world.job_trace import read_trace
from heshare.world.task_file import read_tasks

pytestmark = pytest.mark.filterwarnings("ignore::heshare.shared.inputs.foreign_table.LeftOutWarning")
TASKS = (
    "id,workload,batch_size,iterations,arrival_s,precision,engine,phase,gpus,widths,priority,deadline_s,epochs\n"
    "0,resnet50,8,1000,0,fp32,eager,inference,1,,0,500,2\n1,vgg19,4,500,3,fp16,tensorrt,inference,1,1 2,1,,\n"
)
TRACE = (
    "job_id,submit_time,duration_s,gpu_num\n1,2020-09-01 00:00:52,300,1\n2,2020-09-01 00:01:00,900.5,1\n"
    "3,2020-09-01 00:05:00,90,0\n5,2020-09-01 00:05:00,4000,1\n6,2020-09-02 10:00:00,120,2\n"
)
JOBS = """\
jobs:
  - {name: train, command: [python, train.py, --seed, 7], like: low, iterations: 2e3, environment: {DATA: /d}}
  - {name: serve, workload: 'bert_large:4', expected_time_s: 500, count: 2, retries: 2, arrival_s: 0}
"""
GRID = "policies: [random, 'morak(cap=0.7,k=3)']\nclusters: [1xA100]\ntasks: [2]\nloads: [low]\nseeds: 1\nseed: 0\n"
CELLS = (("seed = 0", ["parameters"]), ("ctx = setup('a', outputs=[])", []))
NOTEBOOK = {"cells": [{"cell_type": "code", "source": [source], "metadata": {"tags": tags}} for source, tags in CELLS]}
FOREIGN = (
    "job,submit,start,end,gpus,n\n1,1601510400000,1601510401000,1601514000000,50,2\n"
    "2,1601510460000,1601510461000,1601514060000,100,1\n3,1601510470000,1601510471000,1601514070000,200,1\n"
)
FOREIGN_COLUMNS = {"arrival": "submit", "start": "start", "end": "end", "gpus": "gpus", "instances": "n", "id": "job"}
REQUESTS = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
METER = (
    "timestamp, index, power.draw [W], clocks.sm [MHz], utilization.gpu [%]\n"
    "2018/10/10 13:06:03.419, 0, 53.48 W, 1410 MHz, 0 %\n2018/10/10 13:06:04.419, 0, 153.48 W, [N/A], 90 %\n"
)
ATTEMPT = {"start_time": "2017-10-07 01:12:00", "end_time": "2017-10-07 01:22:00", "detail": [{"gpus": ["gpu0"]}]}
PHILLY = [{"jobid": name, "submitted_time": "2017-10-07 01:11:39", "attempts": [ATTEMPT]} for name in "abc"]
ENTRIES = (run_of(1, devices=("GPU-0",), file="/j"), session(0.0), started("a"), ended("a", exit_code=0))
READERS = {
    "t.csv": read_tasks,
    "trace.csv": read_trace,
    "foreign.csv": lambda path: hs.import_jobs(path, FOREIGN_COLUMNS, gpu_unit=100),
    "philly.json": lambda path: hs.import_jobs(path, recipe="philly"),
    "requests.csv": read_requests,
    "smi.csv": read_meter,
    "jobs.yaml": read_jobs,
    "grid.yaml": read_grid,
    "plan.json": read_plan,
    "profile.csv": store.read,
    "n.ipynb": parameters.read,
    "journal.jsonl": lambda path: run_journal.read_state(path.parent),
}
ODD = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\n",
    b",",
    b'"',
    b": ",
    b"[",
    b"{",
    b"&a [*a]",
    b"null",
    b"-1",
    b"0",
    b"1e308",
    b"-1e999",
    b"nan",
    b"9" * 4400,
    "\u0663".encode(),
    b"../x",
]
"""What damaged files have in the place of some bytes."""


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The content of a valid file for each reader, by name."""
    plan = hs.write_plan(tmp_path_factory.mktemp("valid") / "plan.json", hs.plan(3, "1xT4,1xA100").trade_off)
    profile = files.data("profiles", "emulated", "T4", "profile.csv").read_bytes().splitlines(keepends=True)[:25]
    texts = {"t.csv": TASKS, "trace.csv": TRACE, "jobs.yaml": JOBS, "grid.yaml": GRID, "n.ipynb": json.dumps(NOTEBOOK)}
    texts |= {"foreign.csv": FOREIGN, "requests.csv": REQUESTS, "smi.csv": METER}
    texts["philly.json"] = json.dumps(PHILLY)
    made = {"plan.json": plan.read_bytes(), "profile.csv": b"".join(profile)}
    lines = b"".join(journal_line(encode(entry)) for entry in ENTRIES)
    return {**{name: text.encode() for name, text in texts.items()}, **made, "journal.jsonl": lines}


def checksummed(content: bytes) -> bytes:
    """Return a damaged journal whose lines have the checksums of what they are now."""
    texts = [line.rpartition(b"\t")[0] or line for line in content.split(b"\n") if line]
    return b"".join(text + b"\t%08x\n" % zlib.crc32(text) for text in texts)


@pytest.mark.parametrize("name", READERS)
def test_valid_files(name, valid, tmp_path):
    """The files are read before they are damaged."""
    (tmp_path / name).write_bytes(valid[name])
    assert READERS[name](tmp_path / name) is not None


@pytest.mark.parametrize("name", READERS)
@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 40), st.sampled_from(ODD) | st.binary(max_size=4)),
        min_size=1,
        max_size=3,
    )
)
@settings(suppress_health_check=list(HealthCheck))
def test_damaged_files(name, valid, tmp_path, damages):
    """A damaged file is read, or refused with one line that names the file."""
    content = valid[name]
    for place, length, new in damages:
        begin = int(place * len(content))
        content = content[:begin] + new + content[begin + length :]
    path = tmp_path / name
    path.write_bytes(checksummed(content) if name == "journal.jsonl" else content)
    message = name
    try:
        READERS[name](path)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert name in message


@pytest.mark.parametrize(
    ("column", "cell"), [("iterations", "1e300"), ("arrival_s", "1e300"), ("batch_size", "9999999")]
)
def test_upper_bounds(column, cell, tmp_path):
    """Numbers of a task file have upper bounds."""
    cells = {"id": "0", "workload": "resnet50", "batch_size": "8", "iterations": "1", "arrival_s": "0", column: cell}
    path = tmp_path / "t.csv"
    path.write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    with pytest.raises(InputError, match=f"row 2, column {column}"):
        read_tasks(path)
