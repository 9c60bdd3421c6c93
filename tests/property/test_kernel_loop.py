"""What holds for any tasks that share a GPU kernel by kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.lab.systems.fikit.kernel_rules import (
    Client,
    FikitRule,
    MpsRule,
    OneQueueRule,
    Sharing,
    TimeSliceRule,
    share,
)
from heshare.lab.systems.fikit.kernel_trace import KernelTrace, predictions

FREE = FikitRule(least_gap_s=0.0, launch_s=0.0)
SERIAL = (TimeSliceRule(2.0, 0.25), OneQueueRule(), FREE, replace(FREE, feedback=False), replace(FREE, fills=False))


@st.composite
def trace(draw: st.DrawFn, *, own: bool = False) -> KernelTrace:
    """A trace with times in eighths of a second; with `own` every kernel has an identity of its own."""
    n = draw(st.integers(1, 6))
    eighths = st.integers(0, 24).map(lambda value: value / 8)
    numbers = st.lists(st.integers(1, 24).map(lambda value: value / 8), min_size=n, max_size=n)
    waits = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    waits[-1] = True
    kernel = range(n) if own else draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    sms = draw(st.lists(st.integers(1, 8).map(lambda value: value / 8), min_size=n, max_size=n))
    host_s = draw(st.lists(eighths, min_size=n, max_size=n))
    return KernelTrace(
        "drawn", np.array(draw(numbers)), np.array(sms), np.array(kernel), np.array(host_s), np.array(waits)
    )


def longest_s(trace: KernelTrace) -> float:
    return float(trace.duration_s.max())


@given(trace(own=True), trace(own=True), trace(own=True))
def test_exact_predictions(high: KernelTrace, low: KernelTrace, lower: KernelTrace) -> None:
    """With exact predictions the urgent task runs as if alone."""
    found = share([Client(high, 4), Client(low, priority=1), Client(lower, priority=2)], FREE)
    assert found.jct_s[0] == pytest.approx([high.alone()[1]] * 4)


@given(trace(), trace())
def test_any_predictions(high: KernelTrace, low: KernelTrace) -> None:
    """With any predictions each urgent kernel waits for one filler at most."""
    found = share([Client(high, 4), Client(low, priority=1)], FREE)
    assert found.jct_s[0].max() <= high.alone()[1] + len(high) * longest_s(low) + 1e-9


@given(trace(), trace(), st.lists(st.integers(0, 80), min_size=3, max_size=3))
def test_requests(high: KernelTrace, low: KernelTrace, steps: list[int]) -> None:
    """A request waits for its predecessors and for fillers."""
    arrivals_s = tuple(np.cumsum(np.array(steps) / 8).tolist())
    found = share([Client(high, 3, 0, arrivals_s), Client(low, priority=1)], FREE)
    each_s = high.alone()[1] + len(high) * longest_s(low)
    end_s = 0.0
    for arrival_s, jct_s in zip(arrivals_s, found.jct_s[0], strict=True):
        assert high.busy_s - 1e-9 <= jct_s <= max(end_s, arrival_s) + each_s - arrival_s + 1e-9
        end_s = arrival_s + jct_s


@given(st.sampled_from(SERIAL), st.tuples(trace(), trace(), trace()))
def test_one_at_a_time(how: Sharing, traces: tuple[KernelTrace, ...]) -> None:
    """One kernel runs at a time, and nothing is lost."""
    found = share([Client(one, 3, place) for place, one in enumerate(traces)], how, pieces=10_000)
    starts, ends = found.pieces[:, 1], found.pieces[:, 2]
    assert (starts[1:] >= ends[:-1] - 1e-9).all()
    for place, one in enumerate(traces):
        rows = found.pieces[found.pieces[:, 0] == place]
        assert (rows[:, 2] - rows[:, 1]).sum() == pytest.approx(3 * one.busy_s)
    assert found.end_s == pytest.approx(ends.max())
    assert (found.rate * found.end_s).tolist() == pytest.approx([3 * one.busy_s for one in traces])


@given(trace(), trace())
def test_mps(one: KernelTrace, other: KernelTrace) -> None:
    """Under MPS no client is faster than alone, and two that fit are as fast."""
    found = share([Client(one, 3), Client(other, 3)], MpsRule())
    for place, each in enumerate((one, other)):
        assert found.jct_s[place].min() >= each.alone()[1] - 1e-9
    halves = [replace(each, sms=np.minimum(each.sms, 0.5)) for each in (one, other)]
    together = share([Client(each, 3) for each in halves], MpsRule())
    for place, each in enumerate((one, other)):
        assert together.jct_s[place] == pytest.approx([each.alone()[1]] * 3)


@given(trace())
def test_sums(one: KernelTrace) -> None:
    """Predictions keep the sums."""
    duration_s, gap_s = predictions(one)
    assert duration_s.sum() == pytest.approx(one.busy_s)
    assert duration_s.sum() + gap_s.sum() == pytest.approx(one.alone()[1])
