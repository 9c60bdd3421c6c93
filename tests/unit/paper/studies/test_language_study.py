"""The study of language models beside image models: its times and energies are those of the runs' timelines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.lab.sweeps.random_streams import TASKS, Repetition
from heshare.paper.studies import language_study
from heshare.paper.studies.language_study import Serving
from heshare.running.requests import decode_tasks, draw_requests, request_times
from heshare.running.result import Run

SERVING = Serving(
    model="llama3_8b",
    pools=("1xH100", "1xA100"),
    requests=6,
    rate_per_s=2.0,
    concurrency=2,
    ttft_limit_s=0.05,
    tpot_limit_s=0.02,
    image_models=("resnet50:8",),
    image_s=2.0,
)


def _spans(run: Run) -> pd.DataFrame:
    return run.intervals.groupby("task").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that a study makes."""
    made: list[Run] = []
    kept = language_study._run
    monkeypatch.setattr(language_study, "_run", lambda *given: made.append(kept(*given)) or made[-1])
    return made


@pytest.mark.parametrize("policy", ["fifo", "morak"])
def test_row_from_timelines(policy: str, done: list[Run]) -> None:
    """Latencies, energy and JCT of a row follow from the timelines of its runs."""
    row = language_study.serve(SERVING, [2], {"one": policy}, seeds=1).iloc[0]
    prefill, decode = done
    prompts = [task for task in prefill.tasks if task.workload.model == "llama3_8b_prefill"]
    groups = [task for task in decode.tasks if task.workload.model == "llama3_8b"]
    assert len(prompts) == 6
    assert len(prefill.tasks) + len(decode.tasks) == len(prompts) + len(groups) + 2 * 2

    first_s = _spans(prefill)["end_s"][: len(prompts)].to_numpy() - [task.arrival_s for task in prompts]
    assert row["ttft_s"] == pytest.approx(np.median(first_s))
    asked = draw_requests(6, 2.0, rng=Repetition(0, 0).rng(TASKS))
    stretches = decode_tasks(asked, prefill, "llama3_8b", concurrency=2)
    assert [task.iterations for task in groups] == [task.iterations for task in stretches.tasks]
    times = request_times(asked, stretches, decode)
    assert row["tpot_ms"] == pytest.approx(1e3 * times["tpot_s"].median())
    inside = (first_s <= 0.05) & (times["tpot_s"] <= 0.02)
    assert row["within_pct"] == pytest.approx(100 * inside.mean())
    assert [task.deadline_s - task.arrival_s for task in prompts] == pytest.approx([0.05] * 6)

    whole_j = sum((part.power_w * (part.end_s - part.start_s)).sum() for part in (prefill.timeline, decode.timeline))
    assert row["energy_active_j"] <= whole_j * (1 + 1e-9)
    images_s = [
        _spans(run)["end_s"][i] - run.tasks[i].arrival_s
        for run, n in ((prefill, 6), (decode, len(groups)))
        for i in range(n, n + 2)
    ]
    assert row["image_jct_s"] == pytest.approx(np.mean(images_s))


def test_energy_of_token(done: list[Run]) -> None:
    """Energy of a token is that of the segments in which the language model runs."""
    row = language_study.serve(SERVING, [1], {"one": "fifo"}, seeds=1).iloc[0]
    tokens = sum(one.output_tokens for one in draw_requests(6, 2.0, rng=Repetition(0, 0).rng(TASKS)))
    language_j = 0.0
    for run in done:
        own = run.intervals[run.intervals["task"] < len(run.tasks) - 1]  # the image task is the last, and none shares
        for part in run.timeline.itertuples():
            inside = (own["start_s"] <= part.start_s) & (own["end_s"] >= part.end_s) & (own["gpu"] == part.gpu)
            language_j += part.power_w * (part.end_s - part.start_s) * bool(inside.any())
    assert row["token_j"] == pytest.approx(language_j / tokens, rel=1e-6)
