"""Language models and image models on shared GPUs: energy a token, latency, and the benefit of sharing.

Two pools of GPUs serve one set of requests: the first their prompts, the second decodes. Image tasks run on both, under
the same policy. All numbers are emulated. The model of language models is fitted to records of one H100 and of
times on one A100; for power on other GPUs, and for sharing with image models, it is an assumption.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from heshare.devices.task_sizes import iterations
from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.paper import harness
from heshare.paper.harness import PROVENANCE, REPETITION, TITLE
from heshare.policies.policy import Policy
from heshare.policies.registry import make
from heshare.prediction.load import load_predictor
from heshare.prediction.modelled_references import UnprofiledWarning
from heshare.prediction.predictor import Predictor
from heshare.running.requests import Request, decode_tasks, draw_requests, prefill_tasks, request_times, share_within
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require
from heshare.world.catalogue import resident
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

ALONE = ", one at a time"
"""The ending of the title of a policy that runs one task a GPU at a time."""
IMAGES = "images"
"""The column of the number of image tasks in each pool."""
MEASURES: Mapping[str, str] = {
    "token_j": "Energy a token (J)",
    "ttft_s": "Time to the first token (s)",
    "tpot_ms": "Time per output token (ms)",
    "latency_s": "Time to the last token (s)",
    "image_jct_s": "Average JCT, image tasks (s)",
    "energy_active_j": "Energy of all tasks (J)",
}
"""Measures of a run: times of requests are medians over them; energy is the active account."""
WITHIN = "within_pct"
AXES: Mapping[str, str] = {**MEASURES, WITHIN: "Requests within both limits (%)"}
"""Labels of what can be an axis."""


@dataclass(frozen=True, slots=True)
class ImageTask:
    """An image task: its workload, such as `resnet50:8`, its iterations, and when it arrives, s."""

    workload: str
    iterations: float
    arrival_s: float


@dataclass(frozen=True, slots=True)
class Serving:
    """Requests to a language model, and the image tasks that run on the same GPUs.

    Attributes:
        model: the language model that decodes; `{model}_prefill` is that of its prompts.
        pools: two clusters, for prompts and for decoding.
        requests: number of requests.
        rate_per_s: their mean arrivals per second.
        concurrency: the most requests that are decoded at a time.
        ttft_limit_s: deadline of the first token, s after the arrival.
        tpot_limit_s: deadline of decoding, s per output token.
        image_models: workloads that image tasks are drawn from.
        image_s: mean time of an image task alone on an A100, s.
    """

    model: str
    pools: tuple[str, str]
    requests: int
    rate_per_s: float
    concurrency: int
    ttft_limit_s: float
    tpot_limit_s: float
    image_models: tuple[str, ...]
    image_s: float

    @property
    def clusters(self) -> tuple[Cluster, Cluster]:
        """The GPUs for prompts, and those that decode."""
        first, second = self.pools
        return Cluster.parse(first), Cluster.parse(second)

    @property
    def shortest_step_s(self) -> float:
        """A time that no step of decoding is shorter than, s: one sequence alone on the fastest GPU."""
        workload = Workload(self.model, 1, "fp16")
        return min(1.0 / iterations(workload, 1.0, card) for card in self.clusters[1].gpus)

    def draw_images(self, n: int, *, rng: np.random.Generator) -> list[ImageTask]:
        """Return n image tasks of a pool: exponential times alone, Poisson arrivals while requests arrive."""
        places = rng.integers(len(self.image_models), size=n)
        names = [self.image_models[place] for place in places]
        alone_s = rng.exponential(self.image_s, n)
        arrivals_s = np.sort(rng.uniform(0.0, self.requests / self.rate_per_s, n))
        return [
            ImageTask(name, iterations(name, float(time_s)), float(at_s))
            for name, time_s, at_s in zip(names, alone_s, arrivals_s, strict=True)
        ]


def serve(
    serving: Serving, images: Sequence[int], policies: Mapping[str, str | Policy], *, seeds: int, seed: int = 0
) -> pd.DataFrame:
    """Return the runs of policies on the same requests and image tasks.

    Args:
        serving: requests and GPUs.
        images: numbers of image tasks in each pool; fewer are a part of the tasks of the largest number.
        policies: policies, or their descriptions, by title.
        seeds: number of repetitions.
        seed: the seed of all repetitions.

    Returns:
        One row a repetition, number of image tasks and policy: repetition, images, title, the `MEASURES`, within_pct
        (requests within both limits), and provenance.

    Raises:
        InputError: a number of image tasks below 1.
    """
    fewest = min(images, default=0)
    require("images", f"{fewest} image tasks", fewest >= 1, "at least 1 in each pool", "Correct the numbers.")
    predictor = load_predictor()
    most = max(images)
    rows = []

    for streams in [Repetition(number, seed) for number in range(seeds)]:
        rng = streams.rng(TASKS)
        requests = draw_requests(serving.requests, serving.rate_per_s, rng=rng)
        drawn = [serving.draw_images(most, rng=rng) for _ in serving.pools]

        for count in images:
            places = np.linspace(0, most - 1, count).astype(int)
            kept = [[tasks[place] for place in places] for tasks in drawn]
            for title, policy in policies.items():
                names = {REPETITION: streams.number, IMAGES: count, TITLE: title}
                rows.append({**names, **_measures(serving, requests, kept, policy, predictor, streams)})

    return pd.DataFrame(rows).assign(**{PROVENANCE: "emulated"})


def _measures(
    serving: Serving,
    requests: Sequence[Request],
    images: Sequence[Sequence[ImageTask]],
    policy: str | Policy,
    predictor: Predictor,
    streams: Repetition,
) -> dict[str, float]:
    """Return the measures of one policy: a run of the prompts, then one of the decoding."""
    first, second = serving.clusters
    prompts = prefill_tasks(requests, f"{serving.model}_prefill", ttft_limit_s=serving.ttft_limit_s)
    prefill = _run(prompts, images[0], first, policy, predictor, streams)

    stretches = decode_tasks(
        requests,
        prefill,
        serving.model,
        concurrency=serving.concurrency,
        step_s=serving.shortest_step_s,
        tpot_limit_s=serving.tpot_limit_s,
    )
    decode = _run(stretches.tasks, images[1], second, policy, predictor, streams)

    times = request_times(requests, stretches, decode)
    middle = times.median()
    parts = [(prefill, len(prompts)), (decode, len(stretches.tasks))]
    tokens = sum(request.output_tokens for request in requests)
    return {
        "token_j": sum(_language_j(done, number) for done, number in parts) / tokens,
        "ttft_s": float(middle["ttft_s"]),
        "tpot_ms": 1e3 * float(middle["tpot_s"]),
        "latency_s": float(middle["latency_s"]),
        "image_jct_s": float(np.concatenate([_image_jct_s(done, number) for done, number in parts]).mean()),
        "energy_active_j": prefill.energy_active_j + decode.energy_active_j,
        WITHIN: 100.0 * share_within(times, serving.ttft_limit_s, serving.tpot_limit_s),
    }


def _language_j(done: Run, tasks: int) -> float:
    """Return the energy of the first tasks of a run, which are those of the language model, J."""
    return float(done.energy_by_task()["energy_j"][:tasks].sum())


def _image_jct_s(done: Run, tasks: int) -> FloatArray:
    return done.jct_s[tasks:]


def _run(
    language: Sequence[Task],
    images: Sequence[ImageTask],
    cluster: Cluster,
    policy: str | Policy,
    predictor: Predictor,
    streams: Repetition,
) -> Run:
    """Run the tasks of the language model, which have the first ids, and the image tasks."""
    others = [
        Task(len(language) + place, resident(image.workload).workload, image.iterations, image.arrival_s)
        for place, image in enumerate(images)
    ]
    chosen = make(policy) if isinstance(policy, str) else policy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnprofiledWarning)  # no language model and no H100 has a shipped profile
        return run((*language, *others), cluster, chosen, predictor=predictor, rng=streams.rng(POLICY))


def worth(runs: pd.DataFrame, titles: Sequence[str]) -> pd.DataFrame:
    """Return the changes by sharing, against the same policy with one task a GPU at a time, paired by repetition.

    Returns:
        One row each: images, title, metric, change_pct, low_pct, high_pct, n, provenance.
    """
    rows = []
    for count, part in runs.groupby(IMAGES, sort=False):
        for title in titles:
            for metric in MEASURES:
                size = harness.change(part, title, title + ALONE, metric)
                names = {IMAGES: count, TITLE: title, "metric": metric}
                rows.append({**names, **size.columns("change_pct", "low_pct", "high_pct")})
    return pd.DataFrame(rows).assign(**{PROVENANCE: "emulated"})
