"""The same runs in virtual time: the same jobs, policies, beliefs and random numbers, on device models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from heshare.devices.calibration.forms import fit
from heshare.devices.constants import Constants, default
from heshare.devices.emulated import EmulatedDevice
from heshare.devices.loading import Loading, LoadingDevice
from heshare.policies.guarded import Guarded
from heshare.policies.registry import make
from heshare.prediction.predictor import Predictor
from heshare.profiles.halves import settings
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task

MODELS = ("fitted", "shipped")
"""The device models: fitted to the record of the very GPUs, and as the package brings it."""


def models(table: pd.DataFrame) -> dict[str, Constants]:
    """The constants of each of `MODELS`; workloads that the record lacks keep the shipped ones.

    Args:
        table: what was recorded of the GPUs.
    """
    shipped = default()
    fitted = shipped
    plain = table[table["precision"] == "fp32"]
    for name, part in plain.groupby("gpu"):
        own = fit(find_gpu(str(name)), settings(part.reset_index(drop=True)), float(part["idle_w"].mean()))
        fitted = replace(
            fitted,
            timing={**fitted.timing, **own.timing},
            power={**fitted.power, **own.power},
            contention={**fitted.contention, **own.contention},
        )
    return {"fitted": fitted, "shipped": shipped}


def simulate(
    tasks: Sequence[Task],
    cluster: Cluster,
    policy: str,
    *,
    predictor: Predictor,
    constants: Constants,
    loading: Loading,
    seed: int,
) -> Run:
    """Run what the executor runs, in virtual time.

    Args:
        tasks: the task set.
        cluster: the GPUs as the executor's policies see them.
        policy: a name of the registry.
        predictor: what the policy believes.
        constants: of the device model.
        loading: what starting and ending processes takes.
        seed: the run's.
    """
    # The executor draws from the first of its seed's children in its first session.
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    devices = [LoadingDevice(EmulatedDevice(gpu, constants=constants), loading) for gpu in cluster.gpus]
    return run(tasks, cluster, Guarded(make(policy)), predictor=predictor, rng=rng, devices=devices)
