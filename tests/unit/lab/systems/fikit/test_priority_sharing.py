"""FIKIT's filling for whole tasks: by hand, against the kernel loop, and on the emulated device."""

import math
from dataclasses import replace

import numpy as np
import pytest

from heshare.devices.device_model import co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.systems.fikit.kernel_rules import Client, FikitRule, share
from heshare.lab.systems.fikit.kernel_trace import traces
from heshare.lab.systems.fikit.priority_sharing import GpuDemand, demand_of_trace, speeds
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

HIGH = GpuDemand(0, busy=0.4, idle=0.5, gap_s=10.0, residual_s=1.0, longest_s=3.0, iteration_s=8.0)
LOW = GpuDemand(1, busy=1.0, idle=0.0, gap_s=0.0, residual_s=2.0, longest_s=4.0, iteration_s=50.0)


def test_one_filler():
    """The speed of one filler is as computed by hand."""
    # Half the time lies in gaps of 10 s; of each, 2 s stay empty: 0.5 x 0.8 = 0.4 of the GPU, of which it wants all.
    assert speeds([HIGH, LOW]) == pytest.approx([1.0, 0.4])
    assert speeds([LOW, HIGH]) == pytest.approx([0.4, 1.0])


def test_own_pace():
    """A filler may continue at its own pace."""
    # 4 of 10 s are waiting work, the other 6 at half pace: 7 of 10; times 0.8 of the gap and half the time; wants 0.5.
    short = replace(LOW, busy=0.5, iteration_s=4.0)
    assert speeds([HIGH, short]) == pytest.approx([1.0, 0.5 * 0.7 * 0.8 / 0.5])


def test_long_kernel():
    """Speeds are zero with a kernel longer than the gaps."""
    assert speeds([HIGH, replace(LOW, longest_s=10.5)]) == [1.0, 0.0]


def test_classes():
    """Fillers of one class share the gaps; the next class has what is left."""
    small = replace(LOW, busy=0.1)
    # 0.4 for two that want 0.1 and 1.0: both at 0.4 / 1.1 of their speed; nothing of the idle time is counted twice.
    paced = (10.0 * 1.0) / 10.0
    assert speeds([HIGH, LOW, small]) == pytest.approx([1.0, 0.4 * paced / 1.1, 0.4 / 1.1])
    last = replace(LOW, priority=2)
    found = speeds([HIGH, small, last])
    assert found[1] == 1.0
    assert found[2] == pytest.approx((0.5 - 0.1) * 0.8)


@pytest.mark.slow
def test_kernel_loop():
    """Speeds agree with the kernel loop, over all pairs of traces and gaps of 0 to 10 ms before an iteration."""
    rule, off, found = FikitRule(), [], []
    for first_s in (0.0, 1e-3, 3e-3, 10e-3):
        for high in traces().values():
            for low in traces().values():
                urgent, filler = high.with_host(first_s=first_s), low
                outcome = share([Client(urgent, requests=40), Client(filler, priority=1)], rule)
                launched = [one.with_host(each_s=rule.launch_s) for one in (urgent, filler)]
                demands = [demand_of_trace(one, place) for place, one in enumerate(launched)]
                speed = speeds(demands)
                off.append(abs(speed[1] * demands[1].busy - outcome.rate[1]))
                found.append(outcome.rate[1])
                assert outcome.jct_s[0].mean() == pytest.approx(launched[0].alone()[1], rel=0.01)
    assert len(off) == 100
    assert max(found) > 0.6
    assert np.mean(off) < 0.01
    assert np.max(off) < 0.06


def test_emulated_gpu():
    """The urgent task on an emulated GPU runs as if alone and the filler takes the rest."""
    # One sample of mobilenet is host-bound on an A100: most of its time the GPU is idle.
    pair = Workload("mobilenet", 1), Workload("resnet50", 8)
    urgent, filler = (Resident(one, sharing=f"priority-{level}") for level, one in enumerate(pair))
    alone, other = (co_run(gpu("A100"), [one]).tasks[0].time_s for one in (urgent, filler))
    both = co_run(gpu("A100"), [filler, urgent])
    assert both.tasks[1].time_s == pytest.approx(alone)
    assert other < both.tasks[0].time_s < 3 * other
    # Interception is all that it costs: a few percent of a task that is bound by its host.
    plain = co_run(gpu("A100"), [Resident(urgent.workload)]).tasks[0].time_s
    assert 1.0 < alone / plain < 1.05


def test_starving_task():
    """A task that starves makes no progress and goes on once it can."""
    device = EmulatedDevice(gpu("V100"))
    device.start_as(0, Resident(Workload("bert_large", 8), sharing="priority-0"), 100.0)
    device.start_as(1, Resident(Workload("vgg19", 8), sharing="priority-4"), 100.0)
    reading = device.read()
    assert math.isinf(reading.residents[1].time_s)
    end_s = device.next_event_s()
    assert end_s == pytest.approx(100.0 * reading.residents[0].time_s)
    assert device.advance(end_s) == [0]
    assert device.read().residents[1].done == 0.0
    assert device.advance(device.next_event_s()) == [1]
