"""Requests to a language model: read or drawn, as tasks for any policy, and what each request waits for its tokens.

A request arrives with a prompt and gets an output. Its prompt is a task of its own (`prefill_tasks`), at whose end the
first token is there. The other tokens are decoded together with those of further requests: `decode_tasks` groups as
many as are served at a time, in the order in which their prompts are done, and every step of the group's task is one
token of each. Servers that keep their batch full take as many steps as the mean output of the group is long.

Prefill and decode are two runs, on the same GPUs or on others: a task cannot wait for another one. Other tasks may run
beside either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from heshare.running.result import Run
from heshare.shared import files
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.csv_table import Row, date_s, read_table
from heshare.world import catalogue
from heshare.world.arrivals import arrivals_s
from heshare.world.language_model import DECODE, PREFILL
from heshare.world.task import Task
from heshare.world.workload import Workload

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Columns of the traces of Azure's language models (Patel et al., ISCA'24, CC-BY-4.0)."""


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


def read_requests(path: str | Path) -> tuple[Request, ...]:
    """Return the requests of a CSV file, by arrival, the first at 0 s.

    Args:
        path: a file with the columns arrival_s, prompt_tokens and output_tokens, or those of the Azure traces.

    Raises:
        InputError: other columns, a bad cell, or no request.
    """
    with Path(path).open(encoding="utf-8-sig") as stream:
        azure = stream.readline().startswith(AZURE_COLUMNS[0])
    rows = list(read_table(path, AZURE_COLUMNS if azure else COLUMNS))
    require("requests", "no request", bool(rows), "at least one row", "Check that this is the right file.")
    arrival, prompt, output = AZURE_COLUMNS if azure else COLUMNS
    moments_s = [_moment_s(row) if azure else row.number_of(arrival) for row in rows]
    read = [
        Request(at_s - min(moments_s), row.whole(prompt, least=1), row.whole(output, least=1))
        for at_s, row in zip(moments_s, rows, strict=True)
    ]
    return tuple(sorted(read, key=lambda request: request.arrival_s))


def _moment_s(row: Row) -> float:
    text = row.text(AZURE_COLUMNS[0])
    try:
        return date_s(text)
    except ValueError:
        expected = "a time such as 2023-11-16 18:15:46.6805900"
        raise row.error(AZURE_COLUMNS[0], "no time", expected, "Correct the time.") from None


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
    requests: Sequence[Request], model: str, *, precision: str = "fp16", first_id: int = 0
) -> tuple[Task, ...]:
    """Return the task of each request's prompt, with ids from `first_id`; a fraction of an iteration for a short one.

    Raises:
        InputError: `model` is not a language model of the kind `prefill`.
    """
    context = _shape_of(model, PREFILL)
    workload = Workload(model, 1, precision)
    return tuple(
        Task(first_id + place, workload, request.prompt_tokens / context, request.arrival_s)
        for place, request in enumerate(requests)
    )


@dataclass(frozen=True)
class DecodeGroups:
    """Requests whose tokens are decoded together.

    Attributes:
        tasks: the task of each group.
        members: the places of its requests, in the order of `tasks`.
        first_token_s: when each request's first token is there, s, shape (n,).
    """

    tasks: tuple[Task, ...]
    members: tuple[tuple[int, ...], ...]
    first_token_s: FloatArray


def decode_tasks(
    requests: Sequence[Request],
    prefill: Run,
    model: str,
    *,
    concurrency: int,
    precision: str = "fp16",
    prefill_id: int = 0,
    first_id: int = 0,
) -> DecodeGroups:
    """Return the tasks that decode all tokens but the first, `concurrency` requests at a time.

    A group arrives when the last of its prompts is done. Requests with one token have no part in a group.

    Args:
        requests: the requests.
        prefill: the run in which their prompts were processed, as tasks with ids from `prefill_id`.
        model: a language model of the kind `decode`.
        concurrency: the most sequences of a group.
        precision: of the model.
        prefill_id: the id of the first prompt's task in `prefill`.
        first_id: the id of the first task returned.

    Raises:
        InputError: another kind of model, or fewer than one sequence.
    """
    _shape_of(model, DECODE)
    require("concurrency", concurrency, concurrency >= 1, "at least 1 sequence", "Serve more at a time.")
    ready_s = prefill.completion_s[prefill_id : prefill_id + len(requests)]
    order = [int(place) for place in np.argsort(ready_s, kind="stable") if requests[place].output_tokens > 1]
    members = tuple(tuple(order[start : start + concurrency]) for start in range(0, len(order), concurrency))
    tasks: list[Task] = []
    for group in members:
        steps = float(np.mean([requests[place].output_tokens - 1 for place in group]))
        arrival_s = float(ready_s[group[-1]])
        tasks.append(Task(first_id + len(tasks), Workload(model, len(group), precision), steps, arrival_s))
    return DecodeGroups(tuple(tasks), members, ready_s)


def request_times(requests: Sequence[Request], groups: DecodeGroups, decode: Run) -> pd.DataFrame:
    """Return what each request waits for; `decode` is a run that holds the tasks of `groups`.

    Returns:
        One row a request: arrival_s; ttft_s, from its arrival to its first token; wait_s, from then to the start of its
        group; tpot_s, the time of a step of its group, pauses included, in which it gets one token; latency_s, from its
        arrival to its last token. The last three are NaN, NaN and ttft_s for a request of one token.
    """
    arrival_s = np.array([request.arrival_s for request in requests])
    steps = np.array([request.output_tokens - 1.0 for request in requests])
    wait_s, tpot_s = np.full((2, len(requests)), np.nan)
    starts_s: dict[int, float] = {}
    for interval in decode.record.intervals:
        starts_s[interval.task] = min(interval.start_s, starts_s.get(interval.task, interval.start_s))
    for task, group in zip(groups.tasks, groups.members, strict=True):
        own, start_s = list(group), starts_s[task.id]
        wait_s[own] = start_s - groups.first_token_s[own]
        tpot_s[own] = (decode.completion_s[task.id] - start_s) / task.iterations
    ttft_s = groups.first_token_s - arrival_s
    latency_s = ttft_s + np.nan_to_num(wait_s + steps * tpot_s)
    columns = {"arrival_s": arrival_s, "ttft_s": ttft_s, "wait_s": wait_s, "tpot_s": tpot_s, "latency_s": latency_s}
    return pd.DataFrame(columns)


def joules_per_token(requests: Sequence[Request], prefill: Run, decode: Run) -> float:
    """Return the energy of both runs (active account), other tasks' included, over the tokens of all outputs, J."""
    return (prefill.energy_active_j + decode.energy_active_j) / sum(request.output_tokens for request in requests)


def _shape_of(model: str, kind: str) -> float:
    # The context of a language model of that kind.
    facts = catalogue.model(model)
    if facts.language is None or facts.kind != kind:
        action = "Choose one, or describe it (docs/guide.md, Add a language model)."
        found = f"{model} of the kind {facts.kind}" if facts.language else f"{model}, which is no language model"
        raise InputError(found, f"a language model of the kind {kind}", action, column="workload")
    return facts.language.context
