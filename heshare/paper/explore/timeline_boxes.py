"""Boxes of a timeline chart: tasks and clocks of plans as predicted, and of runs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.trace_events import slots
from heshare.scheduling.batch_model import BatchModel
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.plan import Plan
from heshare.shared.arrays import BoolArray
from heshare.world.catalogue import load_class
from heshare.world.cluster import Cluster

PLACED_BY = ["gpu", "batch", "mps_pct", "sm_mhz"]
"""What a plan decides of a task."""
TASKS_UNTIL = 0.70
"""Where the tasks of a GPU's row, which has height 1 and runs downwards, end."""
CLOCK_FROM, CLOCK_UNTIL = 0.74, 0.98
"""Where the strip of the clock begins and ends."""
GAP = 0.04
"""Space above the tasks."""
PLACES = {"begin_s": 1, "end_s": 1, "top": 3, "bottom": 3}
"""Decimals of a box."""


def predicted_timelines(plans: Sequence[Plan], predictor: Predictor, *, piecewise: bool = True) -> list[pd.DataFrame]:
    """Return the timeline of each plan, all of one task set on one cluster, as the scheduler predicts it.

    A GPU's batches follow each other without gaps, and a batch ends with its last task (Eqs. 13 and 15). `piecewise`:
    tasks speed up when others of their batch end.

    Returns:
        For each plan the rows of `Plan.to_frame` with the columns lane (place in the batch, from 0), lanes (tasks in
        the batch), begin_s, end_s and batch_end_s, in s after the start; sm_mhz is the top clock where the plan sets
        none.
    """
    model = BatchModel(make_instance(plans[0].tasks, plans[0].cluster, predictor), predictor)
    return [_predicted_timeline(plan, model, piecewise) for plan in plans]


def _predicted_timeline(plan: Plan, model: BatchModel, piecewise: bool) -> pd.DataFrame:
    found = [(gpu, batch) for gpu, queue in enumerate(plan.queues) for batch in queue]
    batches = model.batches_of([plan])
    done = model.execute(batches, piecewise=piecewise)

    begin_s = []
    now_s = dict.fromkeys(range(len(plan.cluster)), 0.0)
    for (gpu, _), length_s in zip(found, done.end_s.tolist(), strict=True):
        begin_s.append(now_s[gpu])
        now_s[gpu] += length_s

    sizes = [len(batch.tasks) for _, batch in found]
    frame = plan.to_frame()
    frame["sm_mhz"] = np.repeat([batch.sm_mhz or plan.cluster.gpus[gpu].max_mhz for gpu, batch in found], sizes)
    frame["lane"] = np.concatenate([np.arange(size) for size in sizes])
    frame["lanes"] = np.repeat(sizes, sizes)
    frame["begin_s"] = np.repeat(begin_s, sizes)
    frame["end_s"] = frame["begin_s"] + done.time_s[batches.members]
    frame["batch_end_s"] = np.repeat(np.array(begin_s) + done.end_s, sizes)
    return frame


def differs(timelines: pd.DataFrame, reference: pd.DataFrame) -> BoolArray:
    """Return whether a task has another GPU, batch, MPS percentage or clock than in a reference plan, shape (rows,).

    Both are rows as from `predicted_timelines`, the first of one or more plans.
    """
    other = reference.set_index("task").loc[timelines["task"], PLACED_BY]
    changed: BoolArray = (timelines[PLACED_BY].to_numpy() != other.to_numpy()).any(axis=1)
    return changed


def plan_tasks(plan: Plan, predicted: pd.DataFrame, reference: int) -> pd.DataFrame:
    """Return the boxes of the tasks of plans.

    Args:
        plan: any of the plans, all of one task set on one cluster.
        predicted: rows as from `predicted_timelines`, with the number of their plan in the column `plan`.
        reference: the number of the plan with which the others are compared.

    Returns:
        One row a plan and task: plan, task, mps_pct, sm_mhz, begin_s, end_s, workload, kind (load class), differs (from
        the reference), label, top and bottom.
    """
    workloads = {task.id: task.workload for task in plan.tasks}
    boxes = predicted[["plan", "task", "mps_pct", "sm_mhz", "begin_s", "end_s"]].assign(
        workload=predicted["task"].map({task: str(each) for task, each in workloads.items()}),
        kind=predicted["task"].map({task: load_class(each.model) for task, each in workloads.items()}),
        differs=differs(predicted, predicted[predicted["plan"] == reference]),
    )
    return _in_rows(boxes, _row_of(plan.cluster, predicted["gpu"]), predicted["lane"], predicted["lanes"])


def plan_clocks(cluster: Cluster, predicted: pd.DataFrame) -> pd.DataFrame:
    """Return the strips of the clocks of plans, one for each batch: plan, label, begin_s, end_s, top and bottom.

    `predicted` is as for `plan_tasks`.
    """
    rows = predicted.assign(row=_row_of(cluster, predicted["gpu"]))
    batches = rows.drop_duplicates(["plan", "row", "batch"])
    strips = batches[["plan", "row", "sm_mhz", "begin_s"]].assign(end_s=batches["batch_end_s"])
    return _as_strips(cluster, strips)


def run_boxes(runs: Sequence[Run]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the boxes of the tasks and the strips of the clocks of runs on one cluster.

    The columns are those of `plan_tasks`, without sm_mhz, and of `plan_clocks`; `plan` is the run's place in `runs`.
    """
    tasks, strips = [], []
    for number, done in enumerate(runs):
        intervals = done.record.intervals
        for each, lane in zip(intervals, slots(intervals), strict=True):
            workload = done.tasks[each.task].workload
            row: dict[str, object] = {"plan": number, "task": each.task, "workload": str(workload)}
            row |= {"kind": load_class(workload.model), "differs": False, "mps_pct": each.mps_pct}
            row |= {"begin_s": each.start_s, "end_s": each.end_s, "row": each.gpu, "lane": lane}
            tasks.append(row)

        for part in sorted(done.record.segments):
            if part.residents:
                strips.append((number, part.gpu, round(part.sm_mhz), part.start_s, part.end_s))

    boxes = pd.DataFrame(tasks)
    lanes = boxes.groupby(["plan", "row"])["lane"].transform("max") + 1
    placed = _in_rows(boxes.drop(columns=["row", "lane"]), boxes["row"], boxes["lane"], lanes)
    clocks = pd.DataFrame(strips, columns=["plan", "row", "sm_mhz", "begin_s", "end_s"])
    return placed, _as_strips(runs[0].cluster, _joined(clocks))


def _joined(strips: pd.DataFrame) -> pd.DataFrame:
    """Return strips in which neighbours of one clock are one."""
    same = ["plan", "row", "sm_mhz"]
    begins = (strips[same] != strips[same].shift()).any(axis=1) | (strips["begin_s"] > strips["end_s"].shift())
    ends = begins.shift(-1, fill_value=True)
    return strips[begins].assign(end_s=strips["end_s"][ends].to_numpy())


def _in_rows(boxes: pd.DataFrame, row: pd.Series, lane: pd.Series, lanes: pd.Series) -> pd.DataFrame:
    """Return boxes of tasks with their label and place in the GPU's row."""
    height = (TASKS_UNTIL - GAP) / lanes
    top = row + GAP + lane * height
    pct = boxes["mps_pct"].map(lambda share: "" if share == 100 else f": {share} %")
    label = boxes["task"].astype(str) + pct
    return boxes.assign(label=label, top=top, bottom=top + height).round(PLACES)


def _as_strips(cluster: Cluster, strips: pd.DataFrame) -> pd.DataFrame:
    """Return strips of clocks that are as high as the clock's part of the card's top clock."""
    top_mhz = np.array([card.max_mhz for card in cluster.gpus])[strips["row"]]
    bottom = strips["row"] + CLOCK_UNTIL
    height = (CLOCK_UNTIL - CLOCK_FROM) * strips["sm_mhz"] / top_mhz
    label = strips["sm_mhz"].astype(str)
    return strips[["plan", "begin_s", "end_s"]].assign(label=label, top=bottom - height, bottom=bottom).round(PLACES)


def _row_of(cluster: Cluster, labels: pd.Series) -> "pd.Series[int]":
    return labels.map({label: row for row, label in enumerate(cluster.labels)}).astype(int)
