"""Study of language models beside image models on shared GPUs: energy a token, latency, and what sharing is worth.

Two pools of GPUs serve one set of requests: their prompts on the one, the stretches that decode on the other, each
beside image tasks of its own, under the same policy. Every number is emulated. The law of language models is fitted to
a record of one H100; on other GPUs, and beside image models, it is an assumption.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.devices.task_sizes import iterations
from heshare.lab.plus.physics.physics_predictor import UnprofiledWarning
from heshare.lab.sweeps import resolve
from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.lab.sweeps.study_runs import paired_change, repeat
from heshare.lab.tenants.tenant_energy import tenant_energy
from heshare.paper.figures import direct_labels, plots
from heshare.paper.figures.rows import interval_rows
from heshare.paper.figures.series_styles import FAINT, category_style
from heshare.policies.policy import Policy
from heshare.policies.registry import make
from heshare.prediction.predictor import LazyPredictor, Predictor
from heshare.running.requests import decode_tasks, draw_requests, prefill_tasks, request_times, share_within
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared.errors import require
from heshare.world.catalogue import resident
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

ALONE = ", one at a time"
"""The ending of the title of a policy that runs one task a GPU at a time."""
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
AXES = {**MEASURES, WITHIN: "Requests within both limits (%)"}
"""Labels of what can be an axis."""


def draw_images(
    models: Sequence[str], n: int, mean_s: float, window_s: float, *, rng: np.random.Generator
) -> tuple[tuple[str, float, float], ...]:
    """Return n image tasks as workload, iterations and arrival in s: Poisson arrivals in the window.

    Their times alone on an A100 are exponential with mean `mean_s`.
    """
    names = [models[place] for place in rng.integers(len(models), size=n)]
    sizes = [iterations(name, float(alone_s)) for name, alone_s in zip(names, rng.exponential(mean_s, n), strict=True)]
    return tuple(zip(names, sizes, np.sort(rng.uniform(0.0, window_s, n)).tolist(), strict=True))


def mixed_runs(
    policies: Mapping[str, str | Policy],
    images: Mapping[str, int],
    *,
    model: str,
    pools: Sequence[str],
    requests: int,
    rate_per_s: float,
    concurrency: int,
    ttft_limit_s: float,
    tpot_limit_s: float,
    image_models: Sequence[str],
    image_s: float,
    seed: int,
    seeds: int,
) -> pd.DataFrame:
    """Run policies over requests beside image tasks.

    `policies` and `images`, the image tasks of each pool, are by title and by name of a load. `model` has the prompts
    `{model}_prefill`; the first of the `pools` serves them, the second decodes. `requests` arrive at `rate_per_s`, and
    `concurrency` of them are decoded at a time. The limits on times to the first token and per output token are
    deadlines. `image_models` are workloads such as `resnet50:8`; `image_s` is the mean time of an image task alone on
    an A100, s.

    Returns:
        Columns repetition, load, title, the `MEASURES`, within_pct (requests within both limits), and provenance.

    Raises:
        InputError: no load, one without image tasks, or another number of pools than two.
    """
    fewest = min(images.values(), default=0)
    require("images", f"{fewest} image tasks", fewest >= 1, "at least 1 a load", "Correct the loads.")
    require("pools", pools, len(pools) == 2, "two pools, for prompts and for decoding", "Name two, equal or not.")
    first, second = (Cluster.parse(pool) for pool in pools)
    predictor = LazyPredictor(resolve.predictor_maker(resolve.KEPT))
    # No step is shorter than that of one sequence, alone on the fastest GPU at its top clock.
    step_s = min(1.0 / iterations(Workload(model, 1, "fp16"), 1.0, card) for card in second.gpus)

    def rows(streams: Repetition) -> Iterator[dict[str, object]]:
        rng = streams.rng(TASKS)
        asked = draw_requests(requests, rate_per_s, rng=rng)
        prompts = prefill_tasks(asked, f"{model}_prefill", ttft_limit_s=ttft_limit_s)
        tokens = sum(one.output_tokens for one in asked)
        window_s = requests / rate_per_s
        most = max(images.values())
        drawn = [draw_images(image_models, most, image_s, window_s, rng=rng) for _ in pools]
        for load, count in images.items():
            # A lower load is a part of the higher one's tasks.
            kept = [[each[place] for place in np.linspace(0, most - 1, count).astype(int)] for each in drawn]
            for title, name in policies.items():
                prefill = _run(prompts, kept[0], first, name, predictor, streams)
                batching: dict[str, Any] = {"concurrency": concurrency, "step_s": step_s}
                stretches = decode_tasks(asked, prefill, model, tpot_limit_s=tpot_limit_s, **batching)
                decode = _run(stretches.tasks, kept[1], second, name, predictor, streams)
                each = request_times(asked, stretches, decode)
                times = each.median()
                language = {prefill: len(prompts), decode: len(stretches.tasks)}
                images_s = np.concatenate([done.jct_s[place:] for done, place in language.items()])
                token_j = sum(tenant_energy(done)["energy_model_j"][:end].sum() for done, end in language.items())
                yield {
                    "load": load,
                    "title": title,
                    "token_j": token_j / tokens,
                    "ttft_s": times["ttft_s"],
                    "tpot_ms": 1e3 * times["tpot_s"],
                    "latency_s": times["latency_s"],
                    "image_jct_s": images_s.mean(),
                    "energy_active_j": prefill.energy_active_j + decode.energy_active_j,
                    WITHIN: 100.0 * share_within(each, ttft_limit_s, tpot_limit_s),
                }

    return repeat(rows, seed=seed, seeds=seeds).assign(provenance="emulated")


def _run(
    language: Sequence[Task],
    images: Sequence[tuple[str, float, float]],
    cluster: Cluster,
    policy: str | Policy,
    predictor: Predictor,
    streams: Repetition,
) -> Run:
    beside = [
        Task(len(language) + place, resident(name).workload, size, arrival_s)
        for place, (name, size, arrival_s) in enumerate(images)
    ]
    chosen = make(policy) if isinstance(policy, str) else policy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnprofiledWarning)  # no language model and no H100 has a shipped profile
        return run((*language, *beside), cluster, chosen, predictor=predictor, rng=streams.rng(POLICY))


def worth(runs: pd.DataFrame, titles: Sequence[str]) -> pd.DataFrame:
    """Return what sharing changes, against the same policy with one task a GPU at a time, paired by repetition.

    Returns:
        Columns load, title, metric, change_pct, low, high, n, provenance.
    """
    found = [
        {"load": load, "title": title, "metric": metric}
        | paired_change(part, title, title + ALONE, metric).columns("change_pct")
        for load, part in runs.groupby("load", sort=False)
        for title in titles
        for metric in MEASURES
    ]
    return pd.DataFrame(found).assign(provenance="emulated")


def draw_plane(ax: Axes, found: pd.DataFrame, over: str) -> None:
    """Draw energy a token over one of `AXES`, a point a policy; `found` as from `median_intervals`, one load."""
    parts = []
    for axis, metric in {"x": over, "y": "token_j"}.items():
        rows = found[found["metric"] == metric].set_index("title")[["median", "low", "high"]]
        parts.append(rows.set_axis([axis, f"{axis}_low", f"{axis}_high"], axis=1))
    frame = pd.concat(parts, axis=1).reset_index()
    if over != WITHIN:
        plots.log_axis(ax, "x")
    ax.set(xlabel=AXES[over], ylabel=MEASURES["token_j"])
    ax.grid(visible=True, axis="both")
    direct_labels.draw_points(ax, frame)
    direct_labels.label_frame(ax, frame)


def draw_worth(ax: Axes, changes: pd.DataFrame, metric: str, *, names: bool) -> None:
    """Draw what sharing changes in one measure: a row a policy, a mark a load."""
    part = changes[changes["metric"] == metric]
    loads = list(dict.fromkeys(part["load"]))
    how: dict[str, Any] = {"series": "load", "style": lambda load: category_style(loads.index(load)), "names": names}
    interval_rows(ax, part, row="title", value="change_pct", low="low", high="high", **how)
    ax.axvline(0.0, color=FAINT, linewidth=0.7, zorder=0)
    name = MEASURES[metric].partition(" (")[0]
    for word in (" of ", " to ", " per ", " image "):
        name = name.replace(word, "\n" + word.lstrip())
    ax.set_xlabel(f"{name} (%)", fontsize=7)
