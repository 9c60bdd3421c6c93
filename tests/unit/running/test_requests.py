"""Requests to a language model: read and drawn, their tasks, and times that are recomputed from the timeline."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import heshare as hs
from heshare import Task, Workload
from heshare.running import requests as served
from heshare.running.requests import Request
from heshare.shared.errors import InputError
from heshare.shared.inputs.foreign_table import LeftOutWarning

MODEL = "llama3_8b"


@cache
def some_requests() -> tuple[Request, ...]:
    """The first shipped requests."""
    return tuple(served.shipped_requests()[:24])


def h100_step_s() -> float:
    """The time of a decode step of one sequence on an H100, s."""
    return hs.estimate("H100", f"{MODEL}:1", precision="fp16").tasks[0].time_s


@pytest.fixture(scope="module")
def runs():
    prefill = hs.run(served.prefill_tasks(some_requests(), f"{MODEL}_prefill"), "1xH100", "fifo")
    stretches = served.decode_tasks(some_requests(), prefill, MODEL, concurrency=4, rounds=3, step_s=h100_step_s())
    return prefill, stretches, hs.run(stretches.tasks, "1xA100", "fifo")


def test_shipped():
    """Shipped requests are those of the trace."""
    shipped = served.shipped_requests()
    assert (len(shipped), shipped[0]) == (300, Request(0.0, 374, 44))
    assert np.mean([request.output_tokens for request in shipped]) == pytest.approx(256, abs=1)


def test_azure_columns(tmp_path: Path):
    """Requests of the Azure columns are read with their fractions."""
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:46.6805900,374,44\n"
    )
    first, second = served.read_requests(path)
    assert (first, second.prompt_tokens) == (Request(0.0, 374, 44), 396)
    assert second.arrival_s == pytest.approx(4.314579, abs=1e-6)


LAYOUTS = {
    "quoted": (
        '"TIMESTAMP","ContextTokens","GeneratedTokens"\n"2024-05-10 00:00:00.009930+00:00",2162,5\n'
        '"2024-05-10 00:00:01.009930+00:00",2399,6\n'
    ),
    "blank line": (
        "\nTIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n\n"
        "2024-05-10 00:00:01.009930+00:00,2399,6\n"
    ),
    "order": (
        "ContextTokens,other,GeneratedTokens,TIMESTAMP\n2399,,6,2024-05-10 00:00:01.009930+00:00\n"
        "2162,,5,2024-05-10 00:00:00.009930+00:00\n"
    ),
    "ours": "output_tokens,arrival_s,prompt_tokens\n5,3,2162\n6,4,2399\n",
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(tmp_path: Path, text: str):
    """Quotes, blank lines, other columns and any order are read."""
    (tmp_path / "requests.csv").write_text(text)
    read = served.read_requests(tmp_path / "requests.csv")
    assert [(each.arrival_s, each.prompt_tokens, each.output_tokens) for each in read] == [(0, 2162, 5), (1, 2399, 6)]


def test_unreadable(tmp_path: Path):
    """UTF-16, a missing file and a folder are refused; bad rows are left out and told, if that is asked for."""
    path = tmp_path / "requests.csv"
    path.write_text(LAYOUTS["quoted"], encoding="utf-16")
    for each, message in ((path, "UTF-16"), (tmp_path / "absent", "no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(InputError, match=message):
            served.read_requests(each)
    path.write_text(LAYOUTS["ours"] + "7,5,0\n")
    with pytest.warns(LeftOutWarning, match="3 rows read, 2 kept, 1 left out"):
        assert len(served.read_requests(path, skip_bad=True)) == 2


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
def test_bad_file(tmp_path: Path, text: str, message: str):
    """A bad file is refused."""
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        served.read_requests(tmp_path / "bad.csv")


def test_drawn_requests():
    """Drawn requests arrive by a Poisson process of their rate, and are the same for the same seed."""
    drawn = served.draw_requests(4000, 5.0, rng=np.random.default_rng(0))
    gaps_s = np.diff([request.arrival_s for request in drawn])
    assert gaps_s.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.06)
    assert {request.prompt_tokens for request in drawn} <= {one.prompt_tokens for one in served.shipped_requests()}
    assert drawn == served.draw_requests(4000, 5.0, rng=np.random.default_rng(0))
    for n, rate in ((0, 1.0), (5, 0.0), (5, float("inf"))):
        with pytest.raises(InputError):
            served.draw_requests(n, rate, rng=np.random.default_rng(0))


def test_refilled_slots():
    """Slots are refilled as soon as they are free."""
    requests = tuple(Request(0.0, 500, 1 + steps) for steps in (3, 5, 4, 1, 2))
    prefill = hs.run(served.prefill_tasks(requests, f"{MODEL}_prefill"), "1xH100", "fifo")
    stretches = served.decode_tasks(requests, prefill, MODEL, concurrency=2, rounds=2)
    assert stretches.members == ((0, 1, 2, 3), (4,))
    assert stretches.steps.tolist() == [[0, 3], [0, 5], [3, 7], [5, 6], [0, 2]]
    assert [(task.iterations, task.workload.batch_size) for task in stretches.tasks] == [(7, 2), (2, 1)]
    assert [task.arrival_s for task in stretches.tasks] == list(prefill.completion_s[[3, 4]])


def _done_s(parts: list[tuple[float, float, float]], steps: float) -> float:
    """Return when so many steps are done: each interval takes its steps one after another at one speed."""
    for start_s, end_s, done in parts:
        if steps <= done:
            return start_s + steps / done * (end_s - start_s)
        steps -= done
    return parts[-1][1]


def _check_times(prefill, stretches, decode):
    table = served.request_times(some_requests(), stretches, decode)
    ends = {row.task: row.end_s for row in prefill.intervals.itertuples()}
    for place, request in enumerate(some_requests()):
        assert table.ttft_s[place] == pytest.approx(ends[place] - request.arrival_s)
    rows = list(decode.intervals.sort_values("start_s").itertuples())
    for task, members in zip(stretches.tasks, stretches.members, strict=True):
        parts = [(row.start_s, row.end_s, row.iterations) for row in rows if row.task == task.id]
        slots = [0] * task.workload.batch_size
        for place in members:
            slot, own = slots.index(min(slots)), some_requests()[place].output_tokens - 1
            start_s, last_s = _done_s(parts, slots[slot]), _done_s(parts, slots[slot] + own)
            slots[slot] += own
            assert table.wait_s[place] == pytest.approx(start_s - ends[place], abs=1e-6)
            assert table.tpot_s[place] == pytest.approx((last_s - start_s) / own)
            assert table.latency_s[place] == pytest.approx(last_s - some_requests()[place].arrival_s)
        assert max(slots) == pytest.approx(task.iterations)
    assert table.wait_s.min() >= 0
    return table


def test_times(runs):
    """Times of requests are those of the timeline."""
    table = _check_times(*runs)
    estimated = hs.estimate("A100", f"{MODEL}:4", precision="fp16").tasks[0].time_s
    assert table.tpot_s.to_numpy() == pytest.approx(estimated, rel=1e-6)


@pytest.mark.filterwarnings("ignore::heshare.prediction.modelled_references.UnprofiledWarning")
def test_pauses(runs):
    """Times of requests hold the pauses of their stretch."""
    prefill, stretches, _ = runs
    short = Task(len(stretches.tasks), Workload("resnet50", 8), 50, stretches.tasks[0].arrival_s + 2.0)
    decode = hs.run((*stretches.tasks, short), "1xA100", "srtf")
    assert (decode.intervals["outcome"] == "paused").any()
    table = _check_times(prefill, stretches, decode)
    assert table.tpot_s.max() > 1.01 * table.tpot_s.min()


def test_step_time():
    """A step time above that of the run is refused."""
    prefill = hs.run(served.prefill_tasks(some_requests(), f"{MODEL}_prefill"), "1xH100", "fifo")
    stretches = served.decode_tasks(some_requests(), prefill, MODEL, concurrency=8, step_s=3 * h100_step_s())
    decode = hs.run(stretches.tasks, "2xH100", "fifo")
    with pytest.raises(InputError, match="before the prompt is done"):
        served.request_times(some_requests(), stretches, decode)


def test_deadlines():
    """Limits on latency are deadlines."""
    prompts = served.prefill_tasks(some_requests(), f"{MODEL}_prefill", ttft_limit_s=0.5)
    prefill = hs.run(prompts, "1xH100", "fifo")
    late = prefill.completion_s - [request.arrival_s for request in some_requests()] > 0.5
    assert prefill.deadline_misses == late.sum()
    for limit_s, missed in ((1.0, 0), (1e-4, 1)):
        stretches = served.decode_tasks(some_requests()[:8], prefill, MODEL, concurrency=4, tpot_limit_s=limit_s)
        task = stretches.tasks[0]
        assert task.deadline_s == pytest.approx(task.arrival_s + limit_s * task.iterations)
        decode = hs.run(stretches.tasks, "1xH100", "fifo")
        assert decode.deadline_misses == missed
        times = served.request_times(some_requests()[:8], stretches, decode)
        expected = np.mean((times.ttft_s <= 0.5) & (times.tpot_s <= limit_s))
        assert served.share_within(times, 0.5, limit_s) == expected
    assert served.share_within(times, 0.5, 1.0) == np.mean(~late[:8])


def test_joules_per_token(runs):
    """Joules per token are the energy of the segments over all tokens."""
    prefill, _, decode = runs
    energy_j = sum(
        row.power_w * (row.end_s - row.start_s) for run in (prefill, decode) for row in run.timeline.itertuples()
    )
    tokens = sum(request.output_tokens for request in some_requests())
    assert served.joules_per_token(some_requests(), prefill, decode) == pytest.approx(energy_j / tokens, rel=1e-6)


def test_one_token():
    """Requests of one token end with their prompt."""
    requests = (Request(0.0, 500, 1), Request(1.0, 500, 11))
    prefill = hs.run(served.prefill_tasks(requests, f"{MODEL}_prefill"), "1xH100", "fifo")
    stretches = served.decode_tasks(requests, prefill, MODEL, concurrency=8)
    table = served.request_times(requests, stretches, hs.run(stretches.tasks, "1xH100", "fifo"))
    assert stretches.members == ((1,),)
    assert np.isnan(table.tpot_s[0])
    assert table.latency_s[0] == table.ttft_s[0]


def test_other_kinds(runs):
    """A model of another kind is refused."""
    for model in (MODEL, "resnet50"):
        with pytest.raises(InputError, match="a language model of the kind prefill"):
            served.prefill_tasks(some_requests(), model)
    with pytest.raises(InputError, match="kind decode"):
        served.decode_tasks(some_requests(), runs[0], f"{MODEL}_prefill", concurrency=8)
    with pytest.raises(InputError, match="sequence"):
        served.decode_tasks(some_requests(), runs[0], MODEL, concurrency=0)
    with pytest.raises(InputError, match="round"):
        served.decode_tasks(some_requests(), runs[0], MODEL, concurrency=8, rounds=0)
    with pytest.raises(InputError, match="step_s"):
        served.decode_tasks(some_requests(), runs[0], MODEL, concurrency=8, step_s=-1.0)
    with pytest.raises(InputError, match="deadline_s"):
        served.prefill_tasks(some_requests(), f"{MODEL}_prefill", ttft_limit_s=0.0)
