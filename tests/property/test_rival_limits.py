"""What the rivals' controllers promise, on emulated devices: caps and limits, whatever runs."""

from itertools import groupby

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.devices.device_model import co_run
from heshare.lab.systems.morak.policy import Morak
from heshare.lab.systems.mu_serve.policy import MuServe
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.testing.policy_contract import check_run
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

HOLD, LONG_S = 1.02, 150.0
CLOSE = 1 + 1e-9
KINDS = ("T4", "V100", "A100")
WORKLOADS = st.builds(
    Workload,
    st.sampled_from(("mobilenet", "resnet18", "resnet50", "vgg19", "densenet201", "bert_large", "gpt2")),
    st.sampled_from((4, 8)),
)
TASKS = st.lists(st.tuples(WORKLOADS, st.floats(1.0, 900.0), st.sampled_from((0.0, 0.0, 33.3))), min_size=1, max_size=5)


def made(drawn, kind):
    """Tasks that take the drawn time alone at the top clock."""
    return [
        Task(index, workload, alone_s / co_run(kind, [Resident(workload)]).tasks[0].time_s, arrival_s)
        for index, (workload, alone_s, arrival_s) in enumerate(drawn)
    ]


def go(policy, drawn, name):
    kind = gpu(name)
    result = run(made(drawn, kind), Cluster((kind,)), policy, predictor=DevicePredictor(), rng=np.random.default_rng(0))
    check_run(result)
    return kind, result, sorted(result.record.segments, key=lambda segment: segment.start_s)


def residents(segment, result):
    return tuple(Resident(result.tasks[task].workload, pct) for task, pct, _ in segment.residents)


def limit_s(task, kind, limit, result):
    return limit * co_run(kind, [Resident(result.tasks[task].workload)]).tasks[0].time_s


def longest(segments, broken):
    """The longest time without a break in which `broken` holds, s."""
    runs = [list(group) for holds, group in groupby(segments, key=broken) if holds]
    return max((group[-1].end_s - group[0].start_s for group in runs), default=0.0)


@settings(max_examples=20)
@given(
    TASKS,
    st.sampled_from(KINDS),
    st.integers(1, 4),
    st.floats(0.5, 1.0),
    st.floats(1.0, 2.5),
    st.sampled_from((0.5, 1.0, 3.0)),
    st.booleans(),
)
def test_morak_cap(drawn, name, k, cap, limit, dt_s, elastic):
    """Morak breaks no cap for longer than a period."""
    policy = Morak(k=k, cap=cap, limit=limit, dt_s=dt_s, elastic=elastic)
    kind, result, segments = go(policy, drawn, name)
    cap_w = cap * kind.tdp_w

    def could(segment):
        # Whatever size the batches have: the same mix at the lowest clock.
        sizes = {each.task: each.batch_size for each in result.record.intervals if each.start_s <= segment.start_s}
        mix = [Resident(Workload(result.tasks[task].workload.model, sizes[task]), pct) for task, pct, _ in segment[-1]]
        return bool(mix) and co_run(kind, mix, kind.clocks_mhz[0]).power_w <= cap_w

    assert longest(segments, lambda one: one.power_w > HOLD * cap_w * CLOSE and could(one)) <= dt_s * CLOSE


@settings(max_examples=20)
@given(TASKS, st.sampled_from(KINDS), st.integers(1, 4), st.floats(0.5, 1.0), st.floats(1.0, 2.5))
def test_morak_limit(drawn, name, k, cap, limit):
    """Morak misses no limit that a clock within the cap would meet."""
    kind, result, segments = go(Morak(k=k, cap=cap, limit=limit), drawn, name)
    for mix, group in groupby(segments, key=lambda one: tuple((task, pct) for task, pct, _ in one.residents)):
        stretch = list(group)
        if not mix or stretch[-1].end_s - stretch[0].start_s < LONG_S:
            continue
        limits = [limit_s(task, kind, limit, result) for task, _ in mix]
        missed = any(
            time_s > most_s * CLOSE for (*_, time_s), most_s in zip(stretch[-1].residents, limits, strict=True)
        )
        if missed:
            tried = [co_run(kind, residents(stretch[-1], result), mhz) for mhz in kind.clocks_mhz]
            assert not any(
                one.power_w <= cap * kind.tdp_w
                and all(task.time_s <= most_s for task, most_s in zip(one.tasks, limits, strict=True))
                for one in tried
            )


@settings(max_examples=25)
@given(TASKS, st.sampled_from(KINDS), st.floats(1.0, 2.5), st.sampled_from(("gpu", "task")))
def test_mu_serve_oracle(drawn, name, limit, scope):
    """muServe with the device model never misses a limit."""
    kind, result, segments = go(MuServe(limit=limit, mode="oracle", scope=scope), drawn, name)
    for segment in segments:
        assert all(time_s <= limit_s(task, kind, limit, result) * CLOSE for task, _, time_s in segment.residents)
