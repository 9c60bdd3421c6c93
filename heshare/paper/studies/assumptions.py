"""Choices that the paper leaves open: each of its numbers under each choice, forward and backward.

A `Choice` differs from the package's defaults in one thing. Section II is evaluated by the device model, Fig. 6 and the
worth of each mechanism (`mechanism_worth`) by runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
from tqdm import tqdm

from heshare.devices.task_sizes import draw, time_alone_s
from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.lab.sweeps.study_runs import paired_change
from heshare.ops.recording.budget_plan import CLOCK_MODEL, CLOCK_SIZES
from heshare.paper.claims import motivation_claims
from heshare.paper.claims.verdicts import REPRODUCED, paper_claims, verdict
from heshare.paper.studies import mechanism_worth, motivation
from heshare.paper.studies import sensitivity_worlds as worlds
from heshare.paper.studies.variants import ENERGY, JCT
from heshare.policies import registry
from heshare.policies.policy import Policy
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.running.run import run
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.errors import require
from heshare.world.cluster import Cluster
from heshare.world.task import Task

SIZE, PREDICTOR = "inference batch size", "predictor"
MIXED, DEFAULT = "mixed", "default"
TRUE = "never wrong"
MORAK, MU_SERVE, RANDOM = "Morak", "μ-Serve", "Random"
ADMISSIONS: Mapping[str, str] = {
    DEFAULT: "morak",
    "one at a time": "morak(k=1)",
    "four": "morak(k=4)",
    "all at once": "morak(k=48)",
    "no power cap": "morak(cap=9.0)",
    "cap of 0.6": "morak(cap=0.6)",
}
"""Morak's settings: tasks on a GPU at once (48: as many as MPS has clients), and the cap, which 9 TDPs never reach."""
_PART = {ENERGY: "energy", JCT: "jct"}


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice under which the paper's numbers are evaluated.

    Attributes:
        axis: what is chosen.
        name: the choice.
        batch_sizes: inference batch sizes that tasks are drawn with.
        size: that of Section II; None where there is more than one.
        world: a world of `sensitivity_worlds.WORLDS`, or none.
        precision: of all workloads.
        is_true: whether the predictor of all policies is the device model itself.
        goal: what MPS percentages minimise, `Settings.mps_goal`.
        admissions: settings of Morak, names of `ADMISSIONS`.
        parts: parts of Trade-off that are removed, names of `mechanism_worth.PARTS`.
    """

    axis: str
    name: str
    batch_sizes: tuple[int, ...] = (4, 8)
    size: int | None = 8
    world: str = ""
    precision: str = "fp32"
    is_true: bool = False
    goal: str = DEFAULTS.mps_goal
    admissions: tuple[str, ...] = (DEFAULT,)
    parts: tuple[str, ...] = mechanism_worth.REMOVED[:2]


def size_choices(names: Sequence[str], worth: Sequence[str], size: int) -> Iterator[Choice]:
    """Yield the choices of the inference batch size, `worth` also with a predictor that is never wrong.

    A name is the sizes that tasks are drawn with, such as `4 8`. For `worth` all parts are removed in turn and Morak
    has all admissions. `size` is that of Section II for the package's own choice.
    """
    for name in names:
        sizes = tuple(int(each) for each in name.split())
        shown = name if len(sizes) < 3 else MIXED
        own = sizes[0] if len(sizes) == 1 else size if sizes == Choice.batch_sizes else None
        choice = Choice(SIZE, shown, sizes, own)
        if name in worth:
            choice = replace(choice, parts=mechanism_worth.REMOVED)
            yield replace(choice, axis=PREDICTOR, name=f"{TRUE}, {shown}", is_true=True)
            choice = replace(choice, admissions=tuple(ADMISSIONS))
        yield choice


def other_choices(axes: Sequence[str]) -> list[Choice]:
    """Return the choices of axes other than the inference batch size."""
    every = [
        Choice("precision", "FP16", precision="fp16", is_true=True),
        Choice("host time", "x0", world="host-x0"),
        Choice("host time", "x2", world="host-x2"),
        Choice("T4 over A100", "the paper's 2.5", world="t4-published-ratio"),
    ]
    for goal in get_args(get_type_hints(Settings)["mps_goal"]):
        if goal not in (DEFAULTS.mps_goal, "none", "queue"):
            every.append(Choice("goal of the MPS step", goal, goal=goal))
    for axis in axes:
        known = list(dict.fromkeys(choice.axis for choice in every))
        require("axes", axis, axis in known, "one of " + ", ".join(known))
    return [choice for choice in every if choice.axis in axes]


def runs(
    choices: Sequence[Choice], *, tasks: int, cluster: str, seed: int, seeds: int, generations: int
) -> pd.DataFrame:
    """Return the runs of Random, Morak, μ-Serve, HeShare's plans, and Trade-off without each part, by choice.

    Returns:
        One row a choice, repetition and system: axis, choice, batch_sizes, is_true, repetition, title, energy
        (`ENERGY`) and average JCT, and what a plan promised: promised_j, promised_s (NaN for systems without plans).
    """
    rows = []
    for choice in tqdm(choices, desc=f"choices, {tasks} tasks"):
        about = {"axis": choice.axis, "choice": choice.name, "batch_sizes": _sizes(choice), "is_true": choice.is_true}
        predictor, gpus = _predictor(choice), Cluster.parse(cluster)
        for number in range(seeds):
            streams = Repetition(number, seed)
            drawn = [
                _in_precision(task, choice)
                for task in draw(tasks, rng=streams.rng(TASKS), batch_sizes=choice.batch_sizes)
            ]
            settings = Settings(mps_goal=choice.goal, generations=generations)  # type: ignore[arg-type]
            plans = mechanism_worth.plans(settings, choice.parts)
            for title, policy in (_others(choice) | plans).items():
                devices = worlds.devices(choice.world, gpus) if choice.world else None
                done = run(drawn, gpus, policy, predictor=predictor, rng=streams.rng(POLICY), devices=devices)
                kept = {name: value for name, value in done.summary().items() if name in (ENERGY, JCT)}
                stated = mechanism_worth.promised(policy, drawn, gpus, predictor, streams.rng(POLICY))
                rows.append({**about, "repetition": number, "title": title, **kept, **stated})
    return pd.DataFrame(rows).assign(provenance="emulated")


def _sizes(choice: Choice) -> str:
    return MIXED if len(choice.batch_sizes) > 2 else " ".join(map(str, choice.batch_sizes))


def _others(choice: Choice) -> dict[str, Policy]:
    names = {_morak(each): ADMISSIONS[each] for each in choice.admissions}
    return {title: registry.make(name) for title, name in {RANDOM: "random", MU_SERVE: "mu-serve", **names}.items()}


def _morak(admission: str) -> str:
    return MORAK if admission == DEFAULT else f"{MORAK} ({admission})"


_TRUE = DevicePredictor()


def _predictor(choice: Choice) -> Predictor:
    if choice.is_true:
        return _TRUE
    return worlds.predictor(choice.world) if choice.world else load_predictor(shared_cache=True)


def _in_precision(task: Task, choice: Choice) -> Task:
    """Return the task in the choice's precision, which takes as long alone on an A100."""
    workload = replace(task.workload, precision=choice.precision)
    scale = time_alone_s(task.workload) / time_alone_s(workload)
    return replace(task, workload=workload, iterations=task.iterations * scale)


_NUMBERS: Sequence[tuple[str, str, str, str, str]] = (
    ("H1", "energy", "Trade-off", MORAK, ENERGY),
    ("H1", "jct", "Trade-off", MORAK, JCT),
    ("H2", "energy", "Trade-off", MU_SERVE, ENERGY),
    ("H2", "jct", "Trade-off", MU_SERVE, JCT),
    ("H3", "Random", "En-opt", RANDOM, ENERGY),
    ("H3", "JCT-opt", "En-opt", "JCT-opt", ENERGY),
    ("H4", "Random", "JCT-opt", RANDOM, JCT),
    ("H4", "En-opt", "JCT-opt", "En-opt", JCT),
)
"""The numbers of Fig. 6: id, part, our plan, what it is compared with, metric."""


def values(choices: Sequence[Choice], found: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return every number under every choice, and under every admission of Morak; `found` as from `runs`.

    Returns:
        One row each: axis, choice, admission, batch_sizes, id, part, value, low, high, n, paper, verdict, holds,
        provenance. The worth of a mechanism has the id `worth`, and neither paper nor verdict.
    """
    rows: list[dict[str, object]] = []
    for choice in choices:
        here = found[(found["axis"] == choice.axis) & (found["choice"] == choice.name)]
        about = {"axis": choice.axis, "choice": choice.name, "admission": DEFAULT, "batch_sizes": _sizes(choice)}
        rows += [about | row for row in _of_section_2(choice, rng)]
        for (id, part, ours, theirs, metric), admission in (
            (number, each) for number in _NUMBERS for each in choice.admissions
        ):
            if theirs == MORAK or admission == DEFAULT:
                rival = _morak(admission) if theirs == MORAK else theirs
                size = paired_change(here, ours, rival, metric, rng)
                rows.append(about | {"admission": admission} | _row(id, part, size))
        for part in choice.parts:
            for metric, word in _PART.items():
                size = paired_change(here, mechanism_worth.without(part), "Trade-off", metric, rng)
                rows.append(about | _row("worth", f"{part}: {word}", size))
    table = pd.DataFrame(rows)
    return table.assign(holds=[_holds(row) for row in table.to_dict("records")], provenance="emulated")


def _row(id: str, part: str, size: ConfidenceInterval, holds: Mapping[str, bool] | None = None) -> dict[str, object]:
    claim = paper_claims().get((id, part))
    row: dict[str, object] = {"id": id, "part": part, **size.columns("value")}
    if claim is None:
        return row | {"paper": np.nan, "verdict": ""}
    word = verdict(claim, size.value, size.low, size.high, n=size.n, holds=holds)
    return row | {"paper": claim.value, "verdict": word}


def _of_section_2(choice: Choice, rng: np.random.Generator) -> Iterator[dict[str, object]]:
    """Yield M1 to M7 at the inference batch size of Section II."""
    if choice.size is None:
        return
    size = choice.size
    how: Any = {"precision": choice.precision, "constants": worlds.constants(choice.world) if choice.world else None}
    solo = motivation.solo(batch_sizes=[size], **how)
    # The paper states the sizes of Fig. 3 alone; an axis of sizes changes them as well.
    sizes = [size] if choice.axis == SIZE and len(choice.batch_sizes) == 1 else CLOCK_SIZES
    clocks = motivation.clocks(CLOCK_MODEL, batch_sizes=sizes, points=12, **how)
    pairs = motivation.pairs(batch_size=size, **how)
    table = motivation_claims.ratios(solo, clocks, pairs, rng)
    t4_mhz = float(solo[solo["gpu"] == "T4"]["sm_mhz"].median())
    found = {
        "M1": motivation_claims.energy_spread(table, size),
        "M2": motivation_claims.time_ratio(table, "resnet50", size, t4_mhz),
        "M3": motivation_claims.time_ratio(table, "bert_large", size, t4_mhz),
        "M4": motivation_claims.time_spread(table, size),
        "M5": motivation_claims.clock_effect(table),
        "M6": motivation_claims.pair_degradation(table, pairs),
        "M7": motivation_claims.close_to_alone(table, pairs),
    }
    for id, claim in found.items():
        interval = ConfidenceInterval(claim["measured"], claim["low"], claim["high"], claim["n"])
        yield _row(id, "", interval, claim.get("holds"))


def backward(table: pd.DataFrame) -> pd.DataFrame:
    """Return, for each number of the paper, the choices in which it holds (`_holds`); `table` as from `values`."""
    rows = []
    for (id, part), each in table[table["verdict"] != ""].groupby(["id", "part"], sort=False):
        claim = paper_claims()[id, part]
        places = {axis: ", ".join(_named(rows_)) for axis, rows_ in each[each["holds"]].groupby("axis", sort=False)}
        rows.append(
            {
                "id": id,
                "part": part,
                "paper": claim.paper,
                "holds": int(each["holds"].sum()),
                "of": len(each),
                "where": "; ".join(f"{axis}: {names}" for axis, names in places.items()),
                "reproduced": int((each["verdict"] == REPRODUCED).sum()),
            }
        )
    return pd.DataFrame(rows).assign(provenance="emulated")


def _holds(row: Mapping[str, Any]) -> bool:
    """Return whether an ordering is reproduced, a value above the paper's floor, another number in the interval.

    The value must also be nearer to the paper's than to no effect, so that a wide interval alone is not enough.
    """
    if not row["verdict"]:
        return False
    kind = paper_claims()[row["id"], row["part"]].kind
    if kind in ("ordering", "floor"):
        return bool(row["verdict"] == REPRODUCED if kind == "ordering" else row["value"] > row["paper"])
    near = abs(row["value"] - row["paper"]) < abs(row["value"] - (0.0 if kind == "reduction" else 1.0))
    return bool(near and row["low"] <= row["paper"] <= row["high"])


def _named(rows: pd.DataFrame) -> list[str]:
    return [
        choice if admission == DEFAULT else f"{choice} ({admission})"
        for choice, admission in zip(rows["choice"], rows["admission"], strict=True)
    ]


def joint_worlds(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many of the paper's numbers hold in each world that was run, the most first.

    A world is a choice with an admission of Morak, which changes H1 alone.

    Returns:
        Columns axis, choice, admission, holds, of, fails (the numbers that do not hold), provenance.
    """
    stated = table[table["verdict"] != ""]
    stated = stated.assign(name=(stated["id"] + " " + stated["part"]).str.strip())
    rows = []
    for (axis, choice), every in stated.groupby(["axis", "choice"], sort=False):
        for admission in every["admission"].unique():
            own = every[every["admission"] == admission]
            world = pd.concat([every[(every["admission"] == DEFAULT) & ~every["name"].isin(own["name"])], own])
            fails = world[~world["holds"]]["name"].tolist()
            row = {"axis": axis, "choice": choice, "admission": admission, "holds": len(world) - len(fails)}
            rows.append({**row, "of": len(world), "fails": ", ".join(fails)})
    # Worlds without Section II have fewer numbers; they are not the best for that.
    return pd.DataFrame(rows).sort_values("holds", ascending=False, kind="stable").assign(provenance="emulated")


def bounds(found: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return what the paper's ratios imply of its own Fig. 6, and what was found by choice; `found` as from `runs`.

    Trade-off's JCT lies between those of JCT-opt and En-opt, which the paper gives against Random's. With Trade-off's
    lead over a rival this bounds the rival's. In energy, Random is poorest, so that Trade-off takes no more than each
    rival's lead below Random, and no less than En-opt.

    Returns:
        Columns axis, choice, quantity, implied_low, implied_high, value, low, high, n, holds, provenance.
    """
    rows = []
    for (axis, choice), here in found.groupby(["axis", "choice"], sort=False):
        for quantity, (ours, theirs, metric, low, high) in _implied().items():
            size = paired_change(here, ours, theirs, metric, rng)
            ends = {name: 1 + getattr(size, name) / 100 for name in ("value", "low", "high")}
            row = {"axis": axis, "choice": choice, "quantity": quantity, "implied_low": low, "implied_high": high}
            rows.append({**row, **ends, "n": size.n, "holds": low <= ends["high"] and ends["low"] <= high})
    return pd.DataFrame(rows).assign(provenance="emulated")


def _implied() -> dict[str, tuple[str, str, str, float, float]]:
    left = {key: 1 + claim.value / 100 for key, claim in paper_claims().items() if key[0] in ("H1", "H2", "H3", "H4")}
    fastest = left["H4", "Random"]
    slowest = fastest / left["H4", "En-opt"]
    most = min(left["H1", "energy"], left["H2", "energy"]) / left["H3", "Random"]
    found = {
        f"{rival}'s JCT over Random's": (rival, RANDOM, JCT, fastest / left[id, "jct"], slowest / left[id, "jct"])
        for rival, id in ((MORAK, "H1"), (MU_SERVE, "H2"))
    }
    return found | {"Trade-off's energy over En-opt's": ("Trade-off", "En-opt", ENERGY, 1.0, most)}
