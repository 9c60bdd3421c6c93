"""Active nodes and energy of nodes from segments small enough to add up by hand."""

import pytest

from heshare.lab.systems.shared.cluster_nodes import average_active, node_energy_j
from heshare.running.timeline import Segment

ONE, TWO = ((0, 100, 2.0),), ((0, 100, 2.0), (1, 100, 2.0))


def busy(gpu, start_s, end_s, residents, power_w=100.0):
    return Segment(gpu, start_s, end_s, None, 1000.0, power_w, residents)


def idle(gpu, start_s, end_s):
    return Segment(gpu, start_s, end_s, None, 1000.0, 10.0, ())


# Two nodes of two GPUs. Node 0 is awake 0-4 (GPU 0: 0-2, GPU 1: 1-4) and 6-8; node 1 never.
SEGMENTS = (
    busy(0, 0.0, 2.0, ONE), idle(0, 2.0, 6.0), busy(0, 6.0, 8.0, TWO),
    idle(1, 0.0, 1.0), busy(1, 1.0, 4.0, ONE), idle(1, 4.0, 8.0),
    idle(2, 0.0, 8.0), idle(3, 0.0, 8.0),
)  # fmt: skip


def test_average_active():
    """The average number of active GPUs or nodes is as added up by hand."""
    assert average_active(SEGMENTS, 8.0) == pytest.approx(7 / 8)
    assert average_active(SEGMENTS, 8.0, gpus_per_node=2) == pytest.approx(6 / 8)
    assert average_active(SEGMENTS[-2:], 8.0) == 0.0


def test_node_energy():
    """The energy of GPUs, hosts and sleeping nodes is as added up by hand."""
    gpus = [(2 + 2) * 100 + 4 * 10 + 3 * 100 + (1 + 4) * 10, 160]
    assert node_energy_j(SEGMENTS, 4, 8.0, gpus_per_node=2).tolist() == gpus
    with_hosts = node_energy_j(SEGMENTS, 4, 8.0, gpus_per_node=2, host_w=50.0)
    assert with_hosts.tolist() == [gpus[0] + 400, 160 + 400]
    # Asleep at 3 W: node 0 from 4 to 6 (two idle GPUs less, 40 J), node 1 always.
    asleep = node_energy_j(SEGMENTS, 4, 8.0, gpus_per_node=2, host_w=50.0, sleep_w=3.0)
    assert asleep.tolist() == [gpus[0] - 40 + 300 + 6, 24.0]
    # Until 5 s, GPU 0 had 2 s busy and 3 s idle, GPU 1 1 s idle, 3 s busy, 1 s idle; asleep from 4 to 5.
    early = node_energy_j(SEGMENTS, 4, 5.0, gpus_per_node=2, sleep_w=0.0)
    assert early.tolist() == [500 + 20 + 10, 0.0]
