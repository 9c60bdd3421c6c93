"""Runs of policies on toy and on emulated devices, and what tests compare of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heshare.devices.device import Device
from heshare.policies.policy import Policy
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task


def run_on_toys(
    tasks: Sequence[Task],
    policy: Policy | str,
    gpus: Sequence[Gpu] = (toy_gpu(),),
    *,
    devices: Sequence[Device] | None = None,
    predictor: Predictor | None = None,
    seed: int = 0,
    **options: Any,
) -> Run:
    """Run a policy, or that of a name, on a toy device for each GPU or on the given devices."""
    return run(
        tasks,
        Cluster(tuple(gpus)),
        make(policy) if isinstance(policy, str) else policy,
        predictor=ToyPredictor() if predictor is None else predictor,
        rng=np.random.default_rng(seed),
        devices=[ToyDevice(gpu) for gpu in gpus] if devices is None else devices,
        **options,
    )


def run_emulated(
    tasks: Sequence[Task],
    policy: Policy | str,
    cluster: Cluster | str,
    *,
    predictor: Predictor | None = None,
    seed: int = 0,
    **options: Any,
) -> Run:
    """Run a policy, or that of a name, on emulated devices, with the device model as its predictor."""
    return run(
        tasks,
        Cluster.parse(cluster) if isinstance(cluster, str) else cluster,
        make(policy) if isinstance(policy, str) else policy,
        predictor=DevicePredictor() if predictor is None else predictor,
        rng=np.random.default_rng(seed),
        **options,
    )


def starts(result: Run) -> list[tuple[int, int, float]]:
    """Return (task, GPU, start in s) of every interval, in order of time."""
    rows = sorted(result.record.intervals, key=lambda each: (each.start_s, each.task, each.gpu))
    return [(each.task, each.gpu, round(each.start_s, 3)) for each in rows]


def clocks(result: Run) -> list[tuple[float, int | None]]:
    """Return (start in s, requested clock in MHz) of every segment."""
    return [(row.start_s, row.requested_mhz) for row in result.timeline.itertuples()]
