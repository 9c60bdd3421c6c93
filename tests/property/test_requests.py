"""Continuous batching: slots, tokens and prompts of any set of requests."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import heshare as hs
from heshare.prediction.oracle import DevicePredictor
from heshare.running import requests as served
from heshare.running.requests import Request

MODEL = "llama3_8b"
asked = st.lists(
    st.builds(Request, st.floats(0.0, 20.0), st.integers(1, 4000), st.integers(1, 300)), min_size=1, max_size=12
)


@cache
def step_s() -> float:
    """The time of a decode step of one sequence on an H100, s."""
    return hs.estimate("H100", f"{MODEL}:1", precision="fp16").tasks[0].time_s


@settings(max_examples=15)
@given(asked, st.integers(1, 5), st.integers(1, 4), st.booleans(), st.sampled_from(["fifo", "srtf"]))
def test_slots(requests, concurrency: int, rounds: int, early: bool, policy: str):
    """Slots, tokens and prompts of any requests are complete."""
    prefill = hs.run(served.prefill_tasks(requests, f"{MODEL}_prefill"), "1xH100", "fifo")
    batching = {"concurrency": concurrency, "rounds": rounds, "step_s": step_s() if early else 0.0}
    stretches = served.decode_tasks(requests, prefill, MODEL, **batching)
    longer = [place for place, request in enumerate(requests) if request.output_tokens > 1]
    assert sorted(place for members in stretches.members for place in members) == longer
    for task, members in zip(stretches.tasks, stretches.members, strict=True):
        own = stretches.steps[list(members)].astype(int)
        assert (own[:, 1] - own[:, 0]).tolist() == [requests[place].output_tokens - 1 for place in members]
        at_a_step = np.zeros(own[:, 1].max(), dtype=int)
        for start, end in own:
            at_a_step[start:end] += 1
        assert at_a_step.min() >= 1
        assert at_a_step.max() <= task.workload.batch_size <= concurrency
        assert len(at_a_step) == task.iterations
        assert len(members) <= rounds * concurrency
    if not longer:
        return
    times = served.request_times(
        requests, stretches, hs.run(stretches.tasks, "1xA100,1xH100", policy, predictor=DevicePredictor())
    )
    assert (times["wait_s"].dropna() >= -1e-6).all()
    assert (times["tpot_s"].dropna() >= step_s() * (1 - 1e-9)).all()
