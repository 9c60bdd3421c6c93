"""Requests to a language model: read or drawn, as tasks for any policy, and what each request waits for its tokens.

A request arrives with a prompt and gets an output. Its prompt is a task of its own (`prefill_tasks`), at whose end the
first token is there. The other tokens are decoded by continuous batching: a server has slots, a slot takes the next
request, in the order in which prompts are done, as soon as its sequence has ended, and a step is one token of every
slot. `decode_tasks` makes a task of each stretch of a server that serves some requests, from first to last step.

Approximations: the batch of a stretch is constant, although its slots empty one by one at its end. A stretch begins so
late that every request finds its prompt done when its slot is free; a server would begin earlier, with free slots. A
step takes the mean time of a step in the interval of the timeline that it is in.

Prefill and decode are two runs, on the same GPUs or on others: a task cannot wait for another one. Other tasks may run
with either.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from heshare.running.result import Run
from heshare.running.timeline import Interval
from heshare.shared import files
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import MOST_S
from heshare.shared.inputs.foreign_table import columns_of, read_foreign
from heshare.world import catalogue
from heshare.world.arrivals import arrivals_s
from heshare.world.language_model import DECODE, PREFILL
from heshare.world.task import Task
from heshare.world.workload import Workload

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Columns of the traces of Azure's language models, 2023 and 2024 (Patel et al., ISCA'24, CC-BY-4.0)."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        arrival_s: when it arrives, seconds after the first.
        prompt_tokens: length of its prompt.
        output_tokens: tokens that it gets, at least 1.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


def shipped_requests() -> tuple[Request, ...]:
    """Return the first 300 conversations of the Azure trace of 2023, `data/requests/azure_2023_conv.csv`."""
    return read_requests(files.data("requests", "azure_2023_conv.csv"))


def read_requests(path: str | Path, *, skip_bad: bool = False) -> tuple[Request, ...]:
    """Return the requests of a CSV file, by arrival, the first at 0 s.

    Args:
        path: a file with the columns arrival_s, prompt_tokens and output_tokens, or those of the Azure traces; others
            may hold anything, and rows may have any order.
        skip_bad: leave bad rows out, with a `LeftOutWarning`.

    Raises:
        InputError: other columns, a bad cell, or no request.
    """
    columns = AZURE_COLUMNS if AZURE_COLUMNS[0] in columns_of(path) else COLUMNS
    table = read_foreign(path, columns, skip_bad=skip_bad)
    if columns == AZURE_COLUMNS:
        table.read_moments_s("arrival_s", columns[0])
    else:
        table.read_numbers("arrival_s", columns[0], most=MOST_S)
    for key, column in zip(COLUMNS[1:], columns[1:], strict=True):
        table.read_numbers(key, column, least=1, whole=True)
    table.require_rows("request")

    frame = table.parsed.sort_values("arrival_s", kind="stable")
    table.report(frame["arrival_s"]).warn()
    frame["arrival_s"] -= frame["arrival_s"].iloc[0]
    rows = zip(*(frame[name].tolist() for name in COLUMNS), strict=True)
    return tuple(Request(arrival_s, int(prompt), int(output)) for arrival_s, prompt, output in rows)


def draw_requests(
    n: int, rate_per_s: float, *, rng: np.random.Generator, lengths: Sequence[Request] = ()
) -> tuple[Request, ...]:
    """Return n requests with exponential times between arrivals, prompts and outputs drawn in pairs.

    Args:
        n: how many.
        rate_per_s: mean arrivals per second.
        rng: the source of randomness.
        lengths: requests whose lengths are drawn, with replacement; those of the shipped trace unless given.

    Raises:
        InputError: no request, or a rate that is not a finite number above zero.
    """
    require("n", n, n >= 1, "at least 1", "Ask for more.")
    good = bool(np.isfinite(rate_per_s)) and rate_per_s > 0
    require("rate_per_s", rate_per_s, good, "a finite number above zero", "Correct the rate.")
    known = tuple(lengths) or shipped_requests()
    times_s = arrivals_s(n, rng=rng, arrivals="exponential", interval_s=1.0 / rate_per_s)
    chosen = [known[place] for place in rng.integers(len(known), size=n)]
    return tuple(
        Request(float(at_s - times_s[0]), one.prompt_tokens, one.output_tokens)
        for at_s, one in zip(times_s, chosen, strict=True)
    )


def prefill_tasks(
    requests: Sequence[Request],
    model: str,
    *,
    precision: str = "fp16",
    first_id: int = 0,
    ttft_limit_s: float = math.inf,
) -> tuple[Task, ...]:
    """Return the task of each request's prompt, with ids from `first_id`; a fraction of an iteration for a short one.

    Its deadline is `ttft_limit_s` after its arrival, s.

    Raises:
        InputError: `model` is not a language model of the kind `prefill`, or a limit that is not above zero.
    """
    context = _shape_of(model, PREFILL)
    workload = Workload(model, 1, precision)
    return tuple(
        Task(
            first_id + place,
            workload,
            request.prompt_tokens / context,
            request.arrival_s,
            deadline_s=request.arrival_s + ttft_limit_s,
        )
        for place, request in enumerate(requests)
    )


@dataclass(frozen=True)
class DecodeStretches:
    """Stretches of decoding.

    Attributes:
        tasks: the task of each stretch; an iteration is a step.
        members: the places of its requests, in the order of `tasks`.
        first_token_s: when each request's first token is there, s, shape (n,).
        steps: steps of its stretch that are done when each request starts in its slot, and when it has its last token,
            shape (n, 2); NaN for a request of one token.
    """

    tasks: tuple[Task, ...]
    members: tuple[tuple[int, ...], ...]
    first_token_s: FloatArray
    steps: FloatArray


def decode_tasks(
    requests: Sequence[Request],
    prefill: Run,
    model: str,
    *,
    concurrency: int,
    rounds: int = 2,
    step_s: float = 0.0,
    tpot_limit_s: float = math.inf,
    precision: str = "fp16",
    prefill_id: int = 0,
    first_id: int = 0,
) -> DecodeStretches:
    """Return the tasks that decode all tokens but the first, in stretches of `rounds` times `concurrency` requests.

    A stretch has as many steps as its longest slot, and arrives when every request surely has its first token by the
    time its slot is free. Requests with one token have no part in one.

    Args:
        requests: the requests.
        prefill: the run in which their prompts were processed, as tasks with ids from `prefill_id`.
        model: a language model of the kind `decode`.
        concurrency: the slots, which are the most sequences at a step.
        rounds: requests of a stretch over its slots; with 1, no slot is refilled.
        step_s: a time that no step is shorter than, such as that of one sequence on the fastest GPU, s; with 0 a
            stretch waits for the last of its prompts.
        tpot_limit_s: limit on the time per output token, s: the deadline of a stretch is at its end if every step, from
            its arrival, takes so long.
        precision: of the model.
        prefill_id: the id of the first prompt's task in `prefill`.
        first_id: the id of the first task returned.

    Raises:
        InputError: another kind of model, fewer than one sequence or round, a negative time, or a limit that is not
            above zero.
    """
    _shape_of(model, DECODE)
    require("concurrency", concurrency, concurrency >= 1, "at least 1 sequence", "Serve more at a time.")
    require("rounds", rounds, rounds >= 1, "at least 1 round", "Serve more in a stretch.")
    require("step_s", step_s, 0 <= step_s < math.inf, "finite seconds, at least zero", "Correct the time.")
    ready_s = prefill.completion_s[prefill_id : prefill_id + len(requests)]
    order = [int(place) for place in np.argsort(ready_s, kind="stable") if requests[place].output_tokens > 1]
    served = rounds * concurrency
    members = tuple(tuple(order[start : start + served]) for start in range(0, len(order), served))
    steps = np.full((len(requests), 2), np.nan)
    tasks: list[Task] = []
    for stretch in members:
        own, free = list(stretch), [0] * min(concurrency, len(stretch))
        for place in own:
            start = free[0]
            heapq.heapreplace(free, start + requests[place].output_tokens - 1)
            steps[place] = start, start + requests[place].output_tokens - 1
        arrival_s = float((ready_s[own] - step_s * steps[own, 0]).max())
        workload, whole = Workload(model, len(free), precision), max(free)
        deadline_s = arrival_s + tpot_limit_s * whole
        tasks.append(Task(first_id + len(tasks), workload, whole, arrival_s, deadline_s=deadline_s))
    return DecodeStretches(tuple(tasks), members, ready_s, steps)


def request_times(requests: Sequence[Request], stretches: DecodeStretches, decode: Run) -> pd.DataFrame:
    """Return what each request waits for; `decode` is a run that holds the tasks of `stretches`.

    Returns:
        One row a request: arrival_s; ttft_s, from its arrival to its first token; wait_s, from then to the start in its
        slot; tpot_s, from there to its last token, pauses included, over its steps; latency_s, from its arrival to its
        last token. The last three are NaN, NaN and ttft_s for a request of one token.

    Raises:
        InputError: a request starts before its prompt is done, since `step_s` was longer than a step of the run.
    """
    arrival_s = np.array([request.arrival_s for request in requests])
    spans_s = np.full((len(requests), 2), np.nan)
    intervals = sorted(decode.record.intervals, key=lambda one: (one.task, one.start_s))
    parts = {task: list(each) for task, each in groupby(intervals, key=lambda one: one.task)}
    for task, members in zip(stretches.tasks, stretches.members, strict=True):
        own = list(members)
        spans_s[own] = _moments_s(parts[task.id], stretches.steps[own])
    wait_s = spans_s[:, 0] - stretches.first_token_s
    earliest_s = float(np.nanmin(wait_s, initial=0.0))
    action = "Give decode_tasks a step_s that no step is shorter than."
    require("step_s", f"a start {-earliest_s:.3g} s before the prompt is done", earliest_s > -1e-6, "none", action)
    tpot_s = (spans_s[:, 1] - spans_s[:, 0]) / (stretches.steps[:, 1] - stretches.steps[:, 0])
    ttft_s = stretches.first_token_s - arrival_s
    latency_s = np.where(np.isnan(tpot_s), ttft_s, spans_s[:, 1] - arrival_s)
    columns = {"arrival_s": arrival_s, "ttft_s": ttft_s, "wait_s": wait_s, "tpot_s": tpot_s, "latency_s": latency_s}
    return pd.DataFrame(columns)


def _moments_s(intervals: Sequence[Interval], steps: FloatArray) -> FloatArray:
    # When so many steps of a task are done: for the first column when the next one begins, for the second when it ends.
    begin_s, end_s, done = np.array([(one.start_s, one.end_s, one.iterations) for one in intervals]).T
    after = np.cumsum(done)
    moments_s = np.empty_like(steps)
    for column, nudge in enumerate((1e-6, -1e-6)):
        # Beside a pause, the last digits of a sum do not choose the side.
        chosen = np.minimum(np.searchsorted(after, steps[:, column] + nudge), len(after) - 1)
        share = (steps[:, column] - (after - done)[chosen]) / done[chosen]
        moments_s[:, column] = begin_s[chosen] + np.clip(share, 0.0, 1.0) * (end_s - begin_s)[chosen]
    return moments_s


def share_within(times: pd.DataFrame, ttft_limit_s: float, tpot_limit_s: float) -> float:
    """Return the share of requests within both limits, 0 to 1; `times` as from `request_times`."""
    tpot_s = times["tpot_s"].fillna(0.0)
    within = (times["ttft_s"] <= ttft_limit_s * (1 + 1e-9)) & (tpot_s <= tpot_limit_s * (1 + 1e-9))
    return float(within.mean())


def joules_per_token(requests: Sequence[Request], prefill: Run, decode: Run) -> float:
    """Return the energy of both runs (active account), other tasks' included, over the tokens of all outputs, J."""
    return (prefill.energy_active_j + decode.energy_active_j) / sum(request.output_tokens for request in requests)


def _shape_of(model: str, kind: str) -> float:
    # The context of a language model of that kind.
    facts = catalogue.model(model)
    if facts.language is None or facts.kind != kind:
        action = "Choose one, or describe it (docs/adding.md, Add a language model)."
        found = f"{model} of the kind {facts.kind}" if facts.language else f"{model}, which is no language model"
        raise InputError(found, f"a language model of the kind {kind}", action, column="workload")
    return facts.language.context
