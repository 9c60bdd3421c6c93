"""μ-Serve in the setting of its paper: requests to many models over time, under latency limits.

From the abstract: a homogeneous cluster serves many models; the GPU frequency follows the attainment of latency limits;
models are placed so that those that react to the clock do not share a GPU with those that do not. Recalled and not
confirmed: V100 cards, and latency limits that are multiples of a request's time alone. Load, lengths of requests, that
multiple and inference batch sizes are not in the record: assumed.

A request is a run of iterations of one model. The GPUs have their models loaded all the time, so that none is parked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import repeat
from heshare.policies.predictions import TaskPredictions
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.running.timeline import energy_j
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require
from heshare.world.catalogue import gpu, paper_models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

_PREDICTOR = DevicePredictor()


@dataclass(frozen=True, slots=True)
class ServingSystem:
    """A system that serves requests.

    Attributes:
        policy: its description; `{limit}` is filled in.
        clock: a fixed clock as a share of the top one, 0 for a clock that the policy sets.
        grouped: whether models of similar sensitivity to the clock share a GPU; otherwise groups are random.
        aim: the limit that the controller is given, as a share of the required one.
    """

    policy: str
    clock: float = 0.0
    grouped: bool = True
    aim: float = 1.0


@dataclass(frozen=True, slots=True)
class MuServeSetting:
    """Requests to all models of Table IV on several equal GPUs; all values are assumed.

    Attributes:
        gpu: name of the GPUs.
        cards: number of GPUs.
        load: time that the requests of a GPU need alone at the top clock, as a share of all time.
        limit: latency limit of a request's response, as a multiple of its time alone at the top clock.
        batch_size: inference batch size of all requests.
        request_s: mean time of a request alone at the top clock, s.
        spread: standard deviation of the logarithm of that time.
        window_s: end of the window that is measured, s.
        warm_up_s: its beginning, s.
    """

    gpu: str = "V100"
    cards: int = 3
    load: float = 0.4
    limit: float = 5.0
    batch_size: int = 8
    request_s: float = 0.5
    spread: float = 0.0
    window_s: float = 240.0
    warm_up_s: float = 60.0

    def __post_init__(self) -> None:
        require("window_s", self.window_s, self.window_s > self.warm_up_s, f"more than {self.warm_up_s:g} s")

    def draw_groups(self, *, grouped: bool, rng: np.random.Generator) -> list[list[str]]:
        """Return the models of each GPU, as many on each: in order of their sensitivity to the clock, or as drawn."""
        names = rng.permutation(sorted(paper_models())).tolist()
        if grouped:
            known = TaskPredictions(_PREDICTOR)
            names.sort(key=lambda name: known.sensitivity(Workload(name, self.batch_size), gpu(self.gpu)))
        return [part.tolist() for part in np.array_split(np.array(names), self.cards)]

    def draw_requests(self, *, rng: np.random.Generator) -> list[Task]:
        """Return the requests of all GPUs by arrival (Poisson), until the window's end, each of a model drawn."""
        names = sorted(paper_models())
        mean_gap_s = self.request_s / (self.load * self.cards)
        count = int(2 * self.window_s / mean_gap_s) + 10

        arrivals_s = np.cumsum(rng.gamma(1.0, mean_gap_s, count))
        lengths_s = self.request_s * rng.lognormal(-(self.spread**2) / 2, self.spread, count)
        drawn = rng.integers(len(names), size=count)

        tasks = []
        for index in np.flatnonzero(arrivals_s < self.window_s).tolist():
            workload = Workload(names[drawn[index]], self.batch_size)
            iterations = float(lengths_s[index]) / alone_s(self.gpu, workload)
            tasks.append(Task(index, workload, iterations, float(arrivals_s[index])))
        return tasks


@cache
def alone_s(card: str, workload: Workload) -> float:
    """Return the time of an iteration alone at the top clock of a card, s."""
    return float(_PREDICTOR.solo([workload], gpu(card), gpu(card).max_mhz).time_s[0, 0])


def runs(
    settings: Sequence[MuServeSetting], systems: Mapping[str, ServingSystem], *, seed: int, seeds: int
) -> pd.DataFrame:
    """Run systems on requests that are the same for all, with the same groups of models.

    Returns:
        One row a setting, repetition and system: repetition, load, batch_size, title, power_w (mean of all GPUs
        together in the window), attained_pct (requests that arrived in the window and met their limits), slowdown
        (median response over the time alone), avg_jct_s (of all requests), requests.
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        for setting in settings:
            groups = {way: setting.draw_groups(grouped=way, rng=repetition.rng(0)) for way in (True, False)}
            requests = setting.draw_requests(rng=repetition.rng(1))
            for title, system in systems.items():
                hosted = [
                    [task for task in requests if task.workload.model in models] for models in groups[system.grouped]
                ]
                found = [run_gpu(setting, tasks, system) for tasks in hosted]
                named = {"load": setting.load, "batch_size": setting.batch_size, "title": title}
                yield {**named, **_measures(found, setting)}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def queue_runs(setting: MuServeSetting, systems: Mapping[str, ServingSystem], *, seed: int, seeds: int) -> pd.DataFrame:
    """Run systems on one GPU that serves all models; columns as of `runs`."""

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        tasks = replace(setting, cards=1).draw_requests(rng=repetition.rng())
        for title, system in systems.items():
            named = {"load": setting.load, "batch_size": setting.batch_size, "title": title}
            yield {**named, **_measures([run_gpu(setting, tasks, system)], setting)}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def run_gpu(setting: MuServeSetting, tasks: Sequence[Task], system: ServingSystem) -> Run:
    """Run the requests of one GPU."""
    card = gpu(setting.gpu)
    device = EmulatedDevice(card)
    if system.clock:
        device.set_clock(min(card.clocks_mhz, key=lambda mhz: abs(mhz - system.clock * card.max_mhz)))

    policy = make(system.policy.format(limit=system.aim * setting.limit))
    numbered = [replace(task, id=index) for index, task in enumerate(tasks)]
    rng = np.random.default_rng(0)
    return run(numbered, Cluster((card,)), policy, predictor=_PREDICTOR, rng=rng, devices=[device])


def _measures(found: Sequence[Run], setting: MuServeSetting) -> dict[str, float]:
    power_w = sum(_power_w(result, setting) for result in found)
    slowdowns = np.concatenate([_slowdowns(result, setting) for result in found])
    jct_s = np.concatenate([result.jct_s for result in found])
    return {
        "power_w": power_w,
        "attained_pct": 100.0 * float((slowdowns <= setting.limit * (1 + 1e-9)).mean()),
        "slowdown": float(np.median(slowdowns)),
        "avg_jct_s": float(jct_s.mean()),
        "requests": len(slowdowns),
    }


def _power_w(result: Run, setting: MuServeSetting) -> float:
    until_j = [energy_j(result.record.segments, np.array([at_s])) for at_s in (setting.warm_up_s, setting.window_s)]
    return float((until_j[1] - until_j[0])[0]) / (setting.window_s - setting.warm_up_s)


def _slowdowns(result: Run, setting: MuServeSetting) -> FloatArray:
    counted = np.array([task.arrival_s >= setting.warm_up_s for task in result.tasks])
    alone = np.array([task.iterations * alone_s(setting.gpu, task.workload) for task in result.tasks])
    slowdowns: FloatArray = (result.jct_s / alone)[counted]
    return slowdowns
