"""Sharing kernel by kernel, against timelines worked out by hand (times in ms)."""

import numpy as np
import pytest
from support.kernel_chain import chain

from heshare.lab.systems.fikit.kernel_rules import Client, FikitRule, MpsRule, OneQueueRule, TimeSliceRule, share
from heshare.lab.systems.fikit.kernel_trace import KernelTrace, traces

MS = 1e-3


def made(duration_ms, gap_ms, kernel=None, sms=1.0):
    """A chain in ms; each kernel has an identity of its own unless told otherwise."""
    ids = np.arange(len(duration_ms)) if kernel is None else np.array(kernel)
    return chain("made", MS * np.array(duration_ms), MS * np.array(gap_ms), sms, ids)


def timeline(found):
    """Pieces as (client, start, end) in ms."""
    return [(int(one), round(start / MS, 6), round(end / MS, 6)) for one, start, end in found.pieces]


HIGH = made([1.0, 1.0], [2.0, 2.0])
FREE = FikitRule(least_gap_s=0.0, launch_s=0.0)


def test_fill():
    """FIKIT fills a gap with what fits and holds back what does not."""
    # High: launched at 2, runs 2..3, gap 3..5, runs 5..6. Low kernels of 0.8 and 1.5 ms, no gaps of their own.
    low = made([0.8, 1.5], [0.0, 0.0])
    found = share([Client(HIGH, requests=1), Client(low, priority=1)], FREE, pieces=20)
    # 0..2: no prediction before the first kernel, so nothing is filled. 3..3.8: 0.8 fits 2. 1.2 left: 1.5 does not fit.
    assert timeline(found) == [(0, 2.0, 3.0), (1, 3.0, 3.8), (0, 5.0, 6.0)]
    assert found.jct_s[0].tolist() == pytest.approx([6 * MS])
    assert found.rate[1] == pytest.approx(0.8 / 6)


def test_best_fit():
    """Best fit takes the most urgent class first and its longest kernel that fits."""
    clients = [
        Client(HIGH, requests=1),
        Client(made([1.9], [0.1]), priority=2),
        Client(made([0.3], [100.0]), priority=1),
        Client(made([0.7], [100.0]), priority=1),
        Client(made([2.5], [0.1]), priority=1),
    ]
    # Gap 3..5: of class 1 only the kernel of 2.5 is launched, and does not fit; so class 2 has its turn.
    found = share(clients, FREE, pieces=20)
    assert timeline(found) == [(0, 2.0, 3.0), (1, 3.0, 4.9), (0, 5.0, 6.0)]
    ready = [Client(chain("r", [each * MS], [0.0]), priority=1) for each in (0.3, 0.7, 2.5)]
    found = share([Client(HIGH, requests=1), Client(chain("r", [1.9 * MS], [0.0]), priority=2), *ready], FREE, pieces=9)
    # 0.7 is the longest of class 1 that fits 2.0, again 1.3; then 0.6 are left: 0.3 twice; class 2 never gets a turn.
    assert timeline(found) == [
        (0, 2.0, 3.0),
        (3, 3.0, 3.7),
        (3, 3.7, 4.4),
        (2, 4.4, 4.7),
        (2, 4.7, 5.0),
        (0, 5.0, 6.0),
    ]


def test_short_gap():
    """A gap below the threshold is left empty."""
    high, low = made([1.0, 1.0], [0.09, 0.11]), chain("low", [0.01 * MS], [0.0])
    found = share([Client(high, requests=2), Client(low, priority=1)], FikitRule(launch_s=0.0), pieces=99)
    gaps = [start for one, start, _ in timeline(found) if one == 1]
    # High: 0.11..1.11, gap of 0.09, 1.2..2.2, gap of 0.11 (filled with eleven kernels), 2.31..
    assert len(gaps) == 11
    assert min(gaps) == 2.2
    assert max(gaps) == pytest.approx(2.3)


def test_early_kernel():
    """When the urgent kernel comes early it waits for one kernel at most."""
    # Two kernels of one identity, gaps of 1 and 3: both are expected to leave 2, so the first gap is over-filled.
    high = made([1.0, 1.0], [1.0, 3.0], kernel=[0, 0])
    low = chain("low", [0.6 * MS], [0.0])
    found = share([Client(high, requests=1), Client(low, priority=1)], FREE, pieces=20)
    # High 3..4; 0.6 at 4.0 and 4.6 fit 2; at 5.2 the next would fit 0.8, but the high kernel is there since 5.
    assert timeline(found) == [(0, 3.0, 4.0), (1, 4.0, 4.6), (1, 4.6, 5.2), (0, 5.2, 6.2)]
    blind = share(
        [Client(high, requests=1), Client(low, priority=1)], FikitRule(0.0, 1.0, 0.0, feedback=False), pieces=20
    )
    assert timeline(blind)[-2:] == [(1, 5.2, 5.8), (0, 5.8, 6.8)]


def test_between_requests():
    """Between requests the others run freely and a request waits for one kernel."""
    high, low = chain("high", [1.0 * MS], [0.0]), chain("low", [0.8 * MS], [0.0])
    found = share([Client(high, 2, 0, (1.0 * MS, 3.0 * MS)), Client(low, priority=1)], FREE, pieces=20)
    assert timeline(found) == [
        (1, 0.0, 0.8),
        (1, 0.8, 1.6),
        (0, 1.6, 2.6),
        (1, 2.6, 3.4),
        (0, 3.4, 4.4),
    ]
    assert found.jct_s[0] == pytest.approx([1.6 * MS, 1.4 * MS])


def test_equal_priorities():
    """Equal priorities run in order of launch."""
    clients = [Client(made([1.0], [0.5]), 2, 3), Client(made([1.0], [0.2]), 2, 3)]
    found = share(clients, FREE, pieces=20)
    # Launched at 0.5 and 0.2; then 1.2 + 0.2 and 2.2 + 0.5.
    assert timeline(found) == [(1, 0.2, 1.2), (0, 1.2, 2.2), (1, 2.2, 3.2), (0, 3.2, 4.2)]


def test_interception():
    """Interception costs host time with each launch."""
    plain = KernelTrace(
        "t", np.full(4, MS), np.ones(4), np.zeros(4, int), np.full(4, 2 * MS), np.array([0, 0, 0, 1], bool)
    )
    found = share([Client(plain, requests=3)], FikitRule(launch_s=0.1 * MS))
    assert found.jct_s[0] == pytest.approx([9.4 * MS] * 3)


def test_time_slices():
    """Time slices take turns and interrupt kernels."""
    a, b = chain("a", [3.0 * MS], [0.0]), chain("b", [5.0 * MS], [0.0])
    found = share([Client(a, requests=1), Client(b, requests=1)], TimeSliceRule(2 * MS, 0.5 * MS), pieces=20)
    assert timeline(found) == [(0, 0.0, 2.0), (1, 2.5, 4.5), (0, 5.0, 6.0), (1, 6.5, 9.5)]


def test_gap_and_slice():
    """A process with a gap loses the GPU for a whole slice."""
    # The host of a waits after each kernel: every gap of 0.1 ms costs it a slice of b.
    a, b = made([0.5, 0.5], [0.1, 0.1]), chain("b", [10.0 * MS], [0.0])
    found = share([Client(a, requests=1), Client(b)], TimeSliceRule(2 * MS, 0.0), pieces=20)
    assert timeline(found) == [(1, 0.0, 2.0), (0, 2.0, 2.5), (1, 2.5, 4.5), (0, 4.5, 5.0)]


def test_mps():
    """Under MPS kernels that fit run at full speed and others are slowed alike."""
    a, b = made([2.0], [0.0], sms=0.75), made([3.0], [0.0], sms=0.75)
    found = share([Client(a, requests=1), Client(b, requests=1)], MpsRule(), pieces=20)
    # Together they want 1.5 of the GPU: 2 ms take 3; the other has 1 ms left and the GPU alone.
    assert timeline(found) == [(0, 0.0, 3.0), (1, 0.0, 3.0), (1, 3.0, 4.0)]
    small = [Client(made([2.0], [0.0], sms=0.5), requests=1), Client(made([3.0], [0.0], sms=0.5), requests=1)]
    assert share(small, MpsRule()).end_s == pytest.approx(3 * MS)


@pytest.mark.parametrize(
    "how", [TimeSliceRule(), OneQueueRule(), MpsRule(), FikitRule(launch_s=0.0)], ids=lambda how: type(how).__name__
)
@pytest.mark.parametrize("name", ["mobilenetv2", "resnet50"])
def test_one_client(how, name):
    """One client takes its time alone."""
    trace = traces()[name]
    found = share([Client(trace, requests=3)], how)
    assert found.jct_s[0] == pytest.approx([trace.alone()[1]] * 3)
    assert found.rate[0] == pytest.approx(trace.busy_s / trace.alone()[1])
