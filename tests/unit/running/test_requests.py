"""Requests to a language model: read and drawn, their tasks, and times that are recomputed from the timeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import heshare as hs
from heshare import Task, Workload
from heshare.running import requests as served
from heshare.running.requests import Request
from heshare.shared.errors import InputError

MODEL = "llama3_8b"
REQUESTS = served.shipped_requests()[:24]


@pytest.fixture(scope="module")
def runs():
    prefill = hs.run(served.prefill_tasks(REQUESTS, f"{MODEL}_prefill"), "1xH100", "fifo")
    groups = served.decode_tasks(REQUESTS, prefill, MODEL, concurrency=8)
    return prefill, groups, hs.run(groups.tasks, "1xA100", "fifo")


def test_shipped_requests_are_those_of_the_trace():
    shipped = served.shipped_requests()
    assert (len(shipped), shipped[0]) == (300, Request(0.0, 374, 44))
    assert np.mean([request.output_tokens for request in shipped]) == pytest.approx(256, abs=1)


def test_requests_of_the_azure_columns_are_read_with_their_fractions(tmp_path: Path):
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:46.6805900,374,44\n"
    )
    first, second = served.read_requests(path)
    assert (first, second.prompt_tokens) == (Request(0.0, 374, 44), 396)
    assert second.arrival_s == pytest.approx(4.314579, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_s,prompt_tokens,output_tokens\n", "no request"),
        ("arrival_s,prompt_tokens,output_tokens\n0,0,5\n", "prompt_tokens"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,1,5\n", "arrival_s"),
        ("arrival_s,prompt_tokens\n0,5\n", "output_tokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,5,5\n", "TIMESTAMP"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        served.read_requests(tmp_path / "bad.csv")


def test_drawn_requests_arrive_by_a_poisson_process_of_their_rate():
    drawn = served.draw_requests(4000, 5.0, rng=np.random.default_rng(0))
    gaps_s = np.diff([request.arrival_s for request in drawn])
    assert gaps_s.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.06)
    assert {request.prompt_tokens for request in drawn} <= {one.prompt_tokens for one in served.shipped_requests()}
    assert drawn == served.draw_requests(4000, 5.0, rng=np.random.default_rng(0))
    for n, rate in ((0, 1.0), (5, 0.0), (5, float("inf"))):
        with pytest.raises(InputError):
            served.draw_requests(n, rate, rng=np.random.default_rng(0))


def test_tasks_hold_all_tokens_of_all_requests(runs):
    prefill, groups, _ = runs
    assert 1024 * sum(task.iterations for task in prefill.tasks) == pytest.approx(
        sum(r.prompt_tokens for r in REQUESTS)
    )
    tokens = sum(task.iterations * task.workload.batch_size for task in groups.tasks)
    assert tokens == pytest.approx(sum(request.output_tokens - 1 for request in REQUESTS))
    assert sorted(place for group in groups.members for place in group) == list(range(len(REQUESTS)))
    assert max(task.workload.batch_size for task in groups.tasks) == 8


def test_times_of_requests_are_those_of_the_timeline(runs):
    prefill, groups, decode = runs
    table = served.request_times(REQUESTS, groups, decode)
    ends = {row.task: row.end_s for row in prefill.intervals.itertuples()}
    for place, request in enumerate(REQUESTS):
        assert table.ttft_s[place] == pytest.approx(ends[place] - request.arrival_s)
    spans = decode.intervals.groupby("task").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    for task, group in zip(groups.tasks, groups.members, strict=True):
        start_s, end_s = spans.loc[task.id, ["start_s", "end_s"]]
        step_s = (end_s - start_s) / task.iterations
        for place in group:
            assert table.tpot_s[place] == pytest.approx(step_s)
            last_s = start_s + (REQUESTS[place].output_tokens - 1) * step_s
            assert table.latency_s[place] == pytest.approx(last_s - REQUESTS[place].arrival_s)
            assert table.wait_s[place] == pytest.approx(start_s - ends[place])
    assert table.wait_s.min() >= 0
    estimated = hs.estimate("A100", f"{MODEL}:8", precision="fp16").tasks[0].time_s
    assert table.tpot_s.min() == pytest.approx(estimated, rel=1e-6)


def test_joules_a_token_are_the_energy_of_the_segments(runs):
    prefill, _, decode = runs
    energy_j = sum(
        row.power_w * (row.end_s - row.start_s) for run in (prefill, decode) for row in run.timeline.itertuples()
    )
    tokens = sum(request.output_tokens for request in REQUESTS)
    assert served.joules_per_token(REQUESTS, prefill, decode) == pytest.approx(energy_j / tokens, rel=1e-6)


def test_requests_of_one_token_end_with_their_prompt():
    requests = (Request(0.0, 500, 1), Request(1.0, 500, 11))
    prefill = hs.run(served.prefill_tasks(requests, f"{MODEL}_prefill"), "1xH100", "fifo")
    groups = served.decode_tasks(requests, prefill, MODEL, concurrency=8)
    table = served.request_times(requests, groups, hs.run(groups.tasks, "1xH100", "fifo"))
    assert groups.members == ((1,),)
    assert np.isnan(table.tpot_s[0])
    assert table.latency_s[0] == table.ttft_s[0]


@pytest.mark.filterwarnings("ignore::heshare.lab.plus.physics.physics_predictor.UnprofiledWarning")
@pytest.mark.parametrize("policy", ["srtf", "marginal", "heshare:trade-off"])
def test_groups_run_beside_other_tasks_under_policies(runs, policy: str):
    prefill, _, _ = runs
    groups = served.decode_tasks(REQUESTS, prefill, MODEL, concurrency=8, first_id=1)
    run = hs.run((Task(0, Workload("resnet50", 8), 500), *groups.tasks), "1xA100,1xH100", policy)
    table = served.request_times(REQUESTS, groups, run)
    assert (table.latency_s > table.ttft_s).all()


def test_a_model_of_another_kind_is_refused(runs):
    for model in (MODEL, "resnet50"):
        with pytest.raises(InputError, match="a language model of the kind prefill"):
            served.prefill_tasks(REQUESTS, model)
    with pytest.raises(InputError, match="kind decode"):
        served.decode_tasks(REQUESTS, runs[0], f"{MODEL}_prefill", concurrency=8)
    with pytest.raises(InputError, match="sequence"):
        served.decode_tasks(REQUESTS, runs[0], MODEL, concurrency=0)
