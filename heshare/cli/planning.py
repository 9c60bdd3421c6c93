"""`heshare plan` and `run`: from a task set to a plan, and a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heshare.cli.common import (
    PAPER_CLUSTER,
    Arrivals,
    ClusterText,
    Json,
    Load,
    Out,
    Profiles,
    Seed,
    TasksText,
    Trace,
    emit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from heshare.prediction.predictor import Predictor
    from heshare.scheduling.pareto import Front
    from heshare.world.cluster import Cluster
    from heshare.world.task import Task


def plan(
    cluster: ClusterText = PAPER_CLUSTER,
    tasks: TasksText = "60",
    load: Load = "mixed",
    arrivals: Arrivals = "at_once",
    trace: Trace = None,
    profiles: Profiles = None,
    seed: Seed = 0,
    improved: Annotated[bool, typer.Option("--improved", help="Search near the optimum instead (HeShare+).")] = False,
    budget_s: Annotated[
        float | None, typer.Option("--budget", min=0, help="With --improved: seconds to search.")
    ] = None,
    bound: Annotated[
        bool, typer.Option("--bound", help="With --improved: prove a lower bound, and print each plan's gap to it.")
    ] = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Plan a task set with HeShare: print its Pareto front and the three plans named in the paper."""
    from heshare.world.cluster import Cluster

    gpus = Cluster.parse(cluster)
    drawn = _tasks(tasks, seed, load, arrivals, trace)
    predictor = _predictor(profiles)()
    front = _front(drawn, gpus, predictor, _rng(seed, 1), improved, budget_s)
    frame = front.to_frame()
    if bound:
        frame["gap_pct"] = _gaps_pct(front, drawn, gpus, predictor, improved)
    if out is not None:
        from heshare import files
        from heshare.reporting.tables import to_csv
        from heshare.world.taskfile import write_tasks

        files.write_text(out / "front.csv", to_csv(frame))
        write_tasks(out / "tasks.csv", drawn)
        for name, chosen in (("trade-off", front.trade_off), ("en-opt", front.en_opt), ("jct-opt", front.jct_opt)):
            files.write_text(out / f"plan-{name}.csv", to_csv(_batches(chosen)))
    if json:
        emit(frame, True, cluster=str(gpus), tasks=len(drawn), predictor_rows=front.predictor_rows)
        return
    named = frame[frame["choice"] != ""].reset_index(drop=True)
    shown = ["choice", "energy_j", "jct_s", *(["gap_pct"] if bound else [])]
    emit(named[shown], False, plans=len(front), predictor_rows=front.predictor_rows)


def _gaps_pct(front: Front, tasks: Sequence[Task], gpus: Cluster, predictor: Predictor, improved: bool) -> Any:
    """How far each plan is from the proven bound, %; the bound's freedom is that of the improved search."""
    from heshare.errors import InputError
    from heshare.scheduling.bound import along, lower_bound
    from heshare.scheduling.costs import BatchCosts
    from heshare.scheduling.objectives import instance

    if not improved:
        raise InputError(
            column="--bound",
            found="--bound without --improved",
            expected="both",
            action="Add --improved: the bound holds for the batches and clocks that it may choose.",
        )
    costs = BatchCosts(instance(tasks, gpus, predictor), predictor)
    return lower_bound(costs, along(front.objectives)).gap_pct(front.objectives)


def _front(
    tasks: Sequence[Task], gpus: Cluster, predictor: Predictor, rng: Any, improved: bool, budget_s: float | None
) -> Front:
    from heshare.errors import InputError
    from heshare.scheduling.improved import optimise
    from heshare.scheduling.planner import plan as plan_tasks

    if improved:
        return optimise(tasks, gpus, predictor, rng=rng, budget_s=budget_s)
    if budget_s is not None:
        raise InputError(
            column="--budget",
            found="a budget without --improved",
            expected="both",
            action="Add --improved: HeShare as published searches a fixed number of generations.",
        )
    return plan_tasks(tasks, gpus, predictor, rng=rng)


def _batches(plan: Any) -> pd.DataFrame:
    """One row a task of a plan: where, in which batch, with which share and clock."""
    import pandas as pd

    by_id = {task.id: task for task in plan.tasks}
    rows = [
        {
            "gpu": label,
            "batch": number,
            "task": task,
            "workload": by_id[task].workload.model,
            "batch_size": by_id[task].workload.batch_size,
            "mps_pct": pct,
            "sm_mhz": batch.sm_mhz,
        }
        for label, queue in zip(plan.cluster.labels, plan.queues, strict=True)
        for number, batch in enumerate(queue)
        for task, pct in zip(batch.tasks, batch.mps_pct, strict=True)
    ]
    return pd.DataFrame(rows).astype({"sm_mhz": "Int64"})


def _rng(seed: int, stream: int) -> Any:
    import numpy as np

    return np.random.default_rng(np.random.SeedSequence(seed).spawn(stream + 1)[stream])


def _is_count(text: str) -> bool:
    return text.lstrip("+-").isdigit()


def _tasks(text: str, seed: int, load: str, arrivals: str, trace: Path | None) -> Sequence[Task]:
    """The tasks of a file, or that many drawn."""
    if not _is_count(text):
        return _from_file(text, trace)
    return _drawer(int(text), load, arrivals, trace)(rng=_rng(seed, 0))


def _drawer(n: int, load: str, arrivals: str, trace: Path | None) -> Callable[..., Sequence[Task]]:
    from functools import partial

    from heshare.running.draw import draw

    return partial(draw, n, load=load, arrivals=arrivals, trace=trace)


def _from_file(text: str, trace: Path | None) -> Sequence[Task]:
    from heshare.errors import InputError
    from heshare.world.taskfile import read_tasks

    if trace is not None:
        raise InputError(
            column="--trace",
            found="a trace and a file of tasks",
            expected="one of the two",
            action="Give --tasks a number to draw tasks from the trace.",
        )
    return read_tasks(Path(text))


def _predictor(profiles: Path | None) -> Callable[[], Predictor]:
    """Makes predictors: of the committed profiles, or of the given ones (read and checked at once)."""
    from heshare.prediction.covering import learn
    from heshare.prediction.forest import load_predictor
    from heshare.profiles import store

    return load_predictor if profiles is None else learn(store.read(profiles))
