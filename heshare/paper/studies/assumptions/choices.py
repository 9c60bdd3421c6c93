"""Choices that the paper leaves open: each of its numbers under each choice, forward and backward."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from heshare.devices.task_sizes import draw, time_alone_s
from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.lab.sweeps.study_runs import paired_change, repeat
from heshare.ops.recording.budget_plan import CLOCK_MODEL, CLOCK_SIZES
from heshare.paper.claims import motivation_claims
from heshare.paper.claims.verdicts import REPRODUCED, paper_claims, verdict
from heshare.paper.studies import motivation
from heshare.paper.studies import sensitivity_worlds as worlds
from heshare.paper.studies.assumptions.mechanism_worth import REMOVED, WHOLE, plans, promised, without
from heshare.paper.studies.variants import ENERGY, JCT
from heshare.policies import registry
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.world.cluster import Cluster

SIZE, PREDICTOR, GOAL, ADMISSION = "inference batch size", "predictor", "goal of the MPS step", "Morak's admission"
MIXED, MORAK, MU_SERVE, RANDOM = "mixed", "Morak", "μ-Serve", "Random"
ADMISSIONS: Mapping[str, str] = {
    "one at a time": "morak(k=1)",
    "four": "morak(k=4)",
    "all at once": "morak(k=48)",
    "no power cap": "morak(cap=9.0)",
    "cap of 0.6": "morak(cap=0.6)",
}
"""Other settings of Morak: tasks on a GPU at once (48: the clients of MPS), and the cap, which 9 TDPs never reach."""
METRICS = {ENERGY: "energy", JCT: "jct"}
WORTH, PROMISED, OVER = "worth", "worth, promised", "run over promised"
"""Ids of what a mechanism saves when run and by the plans, and of a plan's excess over its promise."""
_TRUE = DevicePredictor()


@dataclass(frozen=True)
class Choice:
    """A choice that the paper leaves open, with the package's own wherever it does not differ.

    Attributes:
        axis, name: what is chosen, and how.
        batch_sizes: inference batch sizes that tasks are drawn with, such as `4 8`.
        size: that of Section II, where there are two; with more it says nothing of Section II.
        world: a world of `sensitivity_worlds.WORLDS`, or none.
        is_true: whether the predictor of all policies is the device model.
        parts: mechanisms of Trade-off that are removed in turn.
    """

    axis: str
    name: str
    batch_sizes: str = "4 8"
    size: int = 8
    world: str = ""
    precision: str = "fp32"
    is_true: bool = False
    goal: str = DEFAULTS.mps_goal
    parts: tuple[str, ...] = REMOVED[:2]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The inference batch sizes of tasks."""
        return tuple(int(each) for each in self.batch_sizes.split())

    @property
    def about(self) -> dict[str, object]:
        """The choice as cells of a table's row."""
        return {"axis": self.axis, "choice": self.name, "batch_sizes": shown(self.batch_sizes)}


def shown(sizes: str) -> str:
    """Return inference batch sizes as tables have them: more than two are mixed."""
    return MIXED if sizes.count(" ") > 1 else sizes


def runs(
    choices: Sequence[Choice], *, tasks: int, cluster: str, seed: int, seeds: int, generations: int
) -> pd.DataFrame:
    """Return the runs of Random, the rivals, HeShare's plans, and Trade-off without each part, by choice.

    Returns:
        One row a choice, repetition and system: repetition, axis, choice, batch_sizes, title, energy, average JCT, and
        what the plan promised: promised_j, promised_s. Morak has its other admissions where all parts are removed.
    """
    gpus = Cluster.parse(cluster)

    def run_one(choice: Choice, drawn: Repetition) -> Iterator[Mapping[str, object]]:
        names = {RANDOM: "random", MU_SERVE: "mu-serve", MORAK: "morak"}
        if choice.axis == SIZE and choice.parts == REMOVED:
            names |= {f"{MORAK} ({each})": policy for each, policy in ADMISSIONS.items()}
        policies = {title: registry.make(name) for title, name in names.items()}
        settings: Any = {"mps_goal": choice.goal, "generations": generations}
        predictor = worlds.predictor(choice.world) if choice.world else load_predictor(shared_cache=True)
        predictor = _TRUE if choice.is_true else predictor
        to_run = []
        for task in draw(tasks, rng=drawn.rng(TASKS), batch_sizes=choice.sizes):
            # Alone on an A100 a task takes as long in every precision.
            workload = replace(task.workload, precision=choice.precision)
            iterations = task.iterations * time_alone_s(task.workload) / time_alone_s(workload)
            to_run.append(replace(task, workload=workload, iterations=iterations))
        for title, policy in (policies | plans(Settings(**settings), choice.parts)).items():
            devices = worlds.devices(choice.world, gpus) if choice.world else None
            done = run(to_run, gpus, policy, predictor=predictor, rng=drawn.rng(POLICY), devices=devices).summary()
            stated = promised(policy, to_run, gpus, predictor, drawn.rng(POLICY))
            row = {"title": title, ENERGY: done[ENERGY], JCT: done[JCT]}
            yield choice.about | row | dict(zip(("promised_j", "promised_s"), stated, strict=True))

    def each_choice(drawn: Repetition) -> Iterator[Mapping[str, object]]:
        for choice in tqdm(choices, desc=f"choices, seed {drawn.number}"):
            yield from run_one(choice, drawn)

    return repeat(each_choice, seed=seed, seeds=seeds).assign(provenance="emulated")


_NUMBERS: Mapping[tuple[str, str], tuple[str, str, str]] = {
    ("H1", "energy"): (WHOLE, MORAK, ENERGY),
    ("H1", "jct"): (WHOLE, MORAK, JCT),
    ("H2", "energy"): (WHOLE, MU_SERVE, ENERGY),
    ("H2", "jct"): (WHOLE, MU_SERVE, JCT),
    ("H3", "Random"): ("En-opt", RANDOM, ENERGY),
    ("H3", "JCT-opt"): ("En-opt", "JCT-opt", ENERGY),
    ("H4", "Random"): ("JCT-opt", RANDOM, JCT),
    ("H4", "En-opt"): ("JCT-opt", "En-opt", JCT),
}
"""The numbers of Fig. 6 by id and part: our plan, what it is compared with, and the metric."""


def values(choices: Sequence[Choice], found: pd.DataFrame) -> pd.DataFrame:
    """Return every number under every choice; `found` as from `runs`.

    Returns:
        One row each: axis, choice, batch_sizes, id, part, value, low, high, n, paper, verdict, holds, provenance. What
        the paper does not have (`WORTH`, `PROMISED`, `OVER`, in %; above zero is what a mechanism saves) has neither
        paper nor verdict. A choice of Morak's admission is a size with that admission.
    """
    rows: list[dict[str, object]] = []
    for choice in choices:
        here = found[(found["axis"] == choice.axis) & (found["choice"] == choice.name)]
        of_section_2 = list(_of_section_2(choice))
        of_fig_6 = [_row(key, paired_change(here, *sides)) for key, sides in _NUMBERS.items()]
        rows += [choice.about | row for row in [*of_section_2, *of_fig_6, *_worth(choice, here)]]
        for admission in [each for each in ADMISSIONS if (here["title"] == f"{MORAK} ({each})").any()]:
            about = choice.about | {"axis": ADMISSION, "choice": f"{admission}, {choice.name}"}
            for number, row in zip(_NUMBERS.items(), of_fig_6, strict=True):
                key, (ours, theirs, metric) = number
                if theirs == MORAK:
                    row = _row(key, paired_change(here, ours, f"{MORAK} ({admission})", metric))
                rows.append(about | row)
            rows += [about | row for row in of_section_2]
    return pd.DataFrame(rows).assign(provenance="emulated")


def _worth(choice: Choice, here: pd.DataFrame) -> Iterator[dict[str, object]]:
    for (metric, word), stated in zip(METRICS.items(), ("promised_j", "promised_s"), strict=True):
        for part in choice.parts:
            for id, column in ((WORTH, metric), (PROMISED, stated)):
                yield _row((id, f"{part}: {word}"), paired_change(here, without(part), WHOLE, column))
        own = here[here["title"] == WHOLE]
        both = pd.concat([own.assign(value=own[metric]), own.assign(title=OVER, value=own[stated])])
        yield _row((OVER, word), paired_change(both, WHOLE, OVER, "value"))


def _row(key: tuple[str, str], size: ConfidenceInterval, held: Mapping[str, bool] | None = None) -> dict[str, object]:
    """Return a number with its verdict, and whether it holds.

    An ordering holds if it is reproduced, a floor if the value is above it, another number if it lies in the interval
    and the value is nearer to it than to no effect, so that a wide interval alone is not enough.
    """
    claim, row = paper_claims().get(key), {"id": key[0], "part": key[1], **size.columns("value")}
    if claim is None:
        return row | {"paper": np.nan, "verdict": "", "holds": False}
    word = verdict(claim, size.value, size.low, size.high, n=size.n, holds=held)
    none = 0.0 if claim.kind == "reduction" else 1.0
    near = size.low <= claim.value <= size.high and abs(size.value - claim.value) < abs(size.value - none)
    holds = {"ordering": word == REPRODUCED, "floor": size.value > claim.value}.get(claim.kind, near)
    return row | {"paper": claim.value, "verdict": word, "holds": holds}


def _of_section_2(choice: Choice) -> Iterator[dict[str, object]]:
    if len(choice.sizes) > 2:
        return
    size = choice.size if len(choice.sizes) > 1 else choice.sizes[0]
    how: Any = {"precision": choice.precision, "constants": worlds.constants(choice.world) if choice.world else None}
    solo, pairs = motivation.solo(batch_sizes=[size], **how), motivation.pairs(batch_size=size, **how)
    # The paper states the sizes of Fig. 3 alone; the axis of sizes changes them as well.
    sizes = [size] if len(choice.sizes) == 1 else CLOCK_SIZES
    table = motivation_claims.ratios(solo, motivation.clocks(CLOCK_MODEL, batch_sizes=sizes, points=12, **how), pairs)
    # The clock of a T4 stands in the notes of M2 and M3 alone, which are not used here.
    found = {
        "M1": motivation_claims.energy_spread(table, size),
        "M2": motivation_claims.time_ratio(table, "resnet50", size, 0.0),
        "M3": motivation_claims.time_ratio(table, "bert_large", size, 0.0),
        "M4": motivation_claims.time_spread(table, size),
        "M5": motivation_claims.clock_effect(table),
        "M6": motivation_claims.pair_degradation(table, pairs),
        "M7": motivation_claims.close_to_alone(table, pairs),
    }
    for id, claim in found.items():
        interval = ConfidenceInterval(*(claim[name] for name in ("measured", "low", "high", "n")))
        yield _row((id, ""), interval, claim.get("holds"))
