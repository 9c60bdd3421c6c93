"""Predicted timelines of plans: when each task begins and ends by the predictor, and where two plans differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import DEFAULT_CLOCK, EMPTY, Batches, BatchModel
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.plan import Plan
from heshare.shared.arrays import IntArray

PLACED_BY = ["gpu", "batch", "mps_pct", "sm_mhz"]
"""What a plan decides of a task."""


def predicted_timelines(plans: Sequence[Plan], predictor: Predictor, *, piecewise: bool = True) -> list[pd.DataFrame]:
    """Return the timeline of each plan, all of one task set on one cluster, as the scheduler predicts it.

    A GPU's batches follow each other without gaps, and a batch ends with its last task (Eqs. 13 and 15).

    Args:
        plans: at least one.
        predictor: of the scheduler.
        piecewise: whether tasks speed up when others of their batch end.

    Returns:
        For each plan the rows of `Plan.to_frame` with the columns lane (place in the batch, from 0), lanes (tasks in
        the batch), begin_s, end_s and batch_end_s, in s after the start; sm_mhz is the top clock where the plan sets
        none.
    """
    instance = make_instance(plans[0].tasks, plans[0].cluster, predictor)
    model = BatchModel(instance, predictor)
    return [_timeline(plan, model, instance.kind_of, piecewise) for plan in plans]


def _timeline(plan: Plan, model: BatchModel, kind_of: IntArray, piecewise: bool) -> pd.DataFrame:
    place = {task.id: index for index, task in enumerate(plan.tasks)}
    found = [(gpu, batch) for gpu, queue in enumerate(plan.queues) for batch in queue]
    shape = (len(found), max(len(batch.tasks) for _, batch in found))
    tasks, pct = np.full(shape, EMPTY), np.full(shape, 100)
    for row, (_, batch) in enumerate(found):
        tasks[row, : len(batch.tasks)] = [place[task] for task in batch.tasks]
        pct[row, : len(batch.tasks)] = batch.mps_pct
    kind = kind_of[[gpu for gpu, _ in found]]
    clocks = np.array([batch.sm_mhz or DEFAULT_CLOCK for _, batch in found])
    done = model.execute(Batches(kind, tasks, pct, clocks), piecewise=piecewise)
    begin_s, now_s = [], dict.fromkeys(range(len(plan.cluster)), 0.0)
    for (gpu, _), length_s in zip(found, done.end_s.tolist(), strict=True):
        begin_s.append(now_s[gpu])
        now_s[gpu] += length_s
    sizes = [len(batch.tasks) for _, batch in found]
    frame = plan.to_frame()
    frame["sm_mhz"] = np.repeat([batch.sm_mhz or plan.cluster.gpus[gpu].max_mhz for gpu, batch in found], sizes)
    frame["lane"] = np.concatenate([np.arange(size) for size in sizes])
    frame["lanes"] = np.repeat(sizes, sizes)
    frame["begin_s"] = np.repeat(begin_s, sizes)
    frame["end_s"] = frame["begin_s"] + done.time_s[tasks != EMPTY]
    frame["batch_end_s"] = np.repeat(np.array(begin_s) + done.end_s, sizes)
    return frame


def differing_tasks(timeline: pd.DataFrame, reference: pd.DataFrame) -> set[int]:
    """Return the tasks whose GPU, batch, MPS percentage or clock is another one than in a reference plan."""
    one, other = (frame.set_index("task")[PLACED_BY].sort_index() for frame in (timeline, reference))
    return set(one.index[(one != other).any(axis=1)].tolist())
