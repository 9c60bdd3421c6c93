"""Comments of Slurm jobs: the work that a user states, and the place that a plan gave the job.

`heshare like=resnet50:8 iterations=20000` becomes, with its place,
`heshare like=resnet50:8 iterations=20000 gpu=node1/T4a mps_pct=30 sm_mhz=1200`; the prolog reads the last two.
"""

import math
import re
from dataclasses import dataclass

from heshare.devices.task_sizes import time_alone_s
from heshare.ops.jobs.job_file import LOADS, load_workload
from heshare.shared.errors import InputError, require, unknown
from heshare.world.catalogue import resident
from heshare.world.workload import PRECISIONS, Workload

WORD = "heshare"
"""The first word of a comment that is meant for this package."""
_WORK = ("like", "iterations", "expected_time_s", "precision")
_PLACE = ("gpu", "mps_pct", "sm_mhz")
_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_PLACED = re.compile(r"gpu=([\w.-]+/[\w.:-]+)")
_ACTION = "The user corrects it: scontrol update JobId={job} Comment='heshare like=resnet50:8 iterations=20000'."


@dataclass(frozen=True, slots=True)
class JobComment:
    """What the comment of a job states.

    `work` is the user's part of the comment.
    """

    workload: Workload
    iterations: float
    work: str

    def placed(self, gpu: str, mps_pct: int, sm_mhz: int | None) -> str:
        """Return the comment with a place: node/type, share, and clock unless that is the GPU's own."""
        clock = "" if sm_mhz is None else f" sm_mhz={sm_mhz}"
        return f"{self.work} gpu={gpu} mps_pct={mps_pct}{clock}"


def is_ours(text: str) -> bool:
    """Return whether a comment begins with this package's word."""
    return text.split(maxsplit=1)[:1] == [WORD]


def placed_gpu(text: str) -> str:
    """Return the place in a comment, node/type, or nothing; the rest of the comment may be bad."""
    places = [_PLACED.fullmatch(word) for word in text.split()] if is_ours(text) else []
    return next((place[1] for place in places if place), "")


def read_comment(text: str, job: int) -> JobComment:
    """Return what a comment that begins with `heshare` states.

    `job` is its id, for messages.

    Raises:
        InputError: an unknown key, a bad value, or no amount of work.
    """
    column, action = f"comment of job {job}", _ACTION.format(job=job)
    # A line about it is shown on an administrator's terminal.
    require(column, ascii(text[:60]), text.isprintable(), "printable characters", action)
    fields: dict[str, str] = {}
    for word in text.split()[1:]:
        key, equals, value = word.partition("=")
        good = bool(equals and value) and key not in fields
        require(column, ascii(word[:60]), good, "words key=value, each key once", action)
        if key not in (*_WORK, *_PLACE):
            raise unknown(key, _WORK, action, column=column)
        fields[key] = value
    amounts = [key for key in ("iterations", "expected_time_s") if key in fields]
    good = "like" in fields and len(amounts) == 1
    expected = "like, and either iterations or expected_time_s"
    require(column, ", ".join(fields) or "no words after heshare", good, expected, action)
    workload = _workload(fields, column, action)
    amount = _positive(fields[amounts[0]], f"{column}, {amounts[0]}", action)
    iterations = amount if amounts[0] == "iterations" else amount / time_alone_s(workload)
    work = " ".join([WORD, *[f"{key}={fields[key]}" for key in _WORK if key in fields]])
    return JobComment(workload, iterations, work)


def _workload(fields: dict[str, str], column: str, action: str) -> Workload:
    precision = fields.get("precision", PRECISIONS[0])
    require(column, precision, precision in PRECISIONS, f"precision: one of {', '.join(PRECISIONS)}", action)
    like = fields["like"]
    if like in LOADS:
        return load_workload(like, precision)
    expected = f"like: a model and an inference batch size such as resnet50:8, or one of {', '.join(LOADS)}"
    require(column, like[:60], "@" not in like and len(like) <= 60, expected, action)
    try:
        return resident(like, precision=precision).workload
    except InputError as error:
        raise InputError(error.found, error.expected, action, column=column) from None


def _positive(text: str, column: str, action: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    require(column, text[:60], 0 < value <= 1e15, "a number above 0", action)
    return value
