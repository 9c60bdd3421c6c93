"""Kernel traces: the host that launches them, the gaps that this leaves, the table of the V100's, recorded kernels."""

import numpy as np
import pytest

from heshare.lab.systems.fikit.kernel_rules import Client, FikitRule, share
from heshare.lab.systems.fikit.kernel_table import KernelRow
from heshare.lab.systems.fikit.kernel_trace import KernelTrace, trace_of


def hosted(duration_s, host_s, waits):
    n = len(duration_s)
    return KernelTrace(
        "t", np.array(duration_s), np.ones(n), np.arange(n), np.full(n, float(host_s)), np.array(waits, dtype=bool)
    )


def test_host_ahead():
    """A host that runs ahead leaves gaps only where kernels are shorter than a launch."""
    # Launches at 2, 4, 6; kernels 2..3, 4..9, 9..10: a gap of 1 after the first, of 2 before the next iteration.
    gaps_s, alone_s = hosted([1.0, 5.0, 1.0], 2.0, [0, 0, 1]).alone()
    assert gaps_s.tolist() == [1.0, 0.0, 2.0]
    assert alone_s == 10.0


def test_host_waits():
    """A host that waits launches only after the kernel has ended."""
    # 2..3, launched at 5: 5..10, launched at 12: 12..13.
    gaps_s, alone_s = hosted([1.0, 5.0, 1.0], 2.0, [1, 1, 1]).alone()
    assert gaps_s.tolist() == [2.0, 2.0, 2.0]
    assert alone_s == 13.0


@pytest.mark.parametrize(("waits", "places"), [(1, [7]), (2, [3, 7]), (3, [2, 5, 7]), (8, list(range(8)))])
def test_with_waits(waits, places):
    """`with_waits` spreads waits evenly up to the last kernel."""
    made = hosted([1.0] * 8, 0.5, [0] * 7 + [1]).with_waits(waits)
    assert np.flatnonzero(made.waits).tolist() == places


def row(position, duration_us, gap_us, *, kernels=3, grid="54x2x1", kernel="gemm", size=4):
    place = (position, kernels, kernel, grid, "128x1x1")
    return KernelRow("A100", "measured", "resnet18", size, "fp32", *place, duration_us, 0.0, gap_us, 0.0, 5)


ROWS = (row(0, 10.0, 5.0), row(1, 20.0, -2.0, grid="27x1x1"), row(2, 30.0, 0.0, grid="", kernel="copy"))


def test_time_alone():
    """`trace_of` takes the recorded time alone."""
    trace = trace_of(ROWS)
    gaps_s, alone_s = trace.alone()
    assert 1e6 * gaps_s == pytest.approx([5.0, 0.0, 0.0])
    assert 1e6 * alone_s == pytest.approx(65.0)
    found = share([Client(trace, requests=4)], FikitRule(launch_s=0.0))
    assert 1e6 * found.end_s == pytest.approx(4 * 65.0)


def test_delayed_kernel():
    """A host that runs ahead has launched the next kernel when one is delayed."""
    # The first is delayed by 8 us: the gap of 5 us is gone.
    other = trace_of([row(0, 8.0, 0.0, kernels=1)])
    clients = [Client(other, requests=1), Client(trace_of(ROWS), requests=1, priority=1)]
    found = share(clients, FikitRule(0, 1, 0), pieces=9)
    assert [1e6 * start for one, start, _ in found.pieces.tolist() if one == 1][:2] == pytest.approx([8.0, 18.0])


def test_sms_and_identities():
    """`trace_of` counts SMs and identities."""
    trace = trace_of((row(0, 1.0, 0.0), row(1, 1.0, 0.0), *ROWS[2:]))
    assert trace.sms.tolist() == [1.0, 1.0, 1.0]
    assert trace_of(ROWS).sms[1] == 27 / 108
    assert trace.kernel.tolist() == [0, 0, 1]
    assert trace_of(ROWS).kernel[0] != trace_of(ROWS).kernel[1]
