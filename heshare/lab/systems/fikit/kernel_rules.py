"""Clients that share one GPU, kernel by kernel: under time slices, in one queue, under MPS, and filled by FIKIT.

Every assumption of a rule is a parameter of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heshare.lab.systems.fikit import kernel_loops
from heshare.lab.systems.fikit.kernel_trace import KernelTrace, predictions
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import InputError

SWITCH = 0.035
"""A switch of two processes as a share of their time: what EaCO measured under time slices."""


@dataclass(frozen=True, slots=True)
class TimeSliceRule:
    """The default of processes that share a GPU: each has all of it for a slice, in turn, if it has a kernel to run.

    Attributes:
        slice_s: how long a process may keep the GPU while another waits, s; the driver's shortest is about 2 ms.
        switch_s: time that a switch takes, s; assumed so that two busy processes lose as much as EaCO measured.
    """

    slice_s: float = 2e-3
    switch_s: float = SWITCH * 2e-3


@dataclass(frozen=True, slots=True)
class OneQueueRule:
    """All kernels in the order of their launch, as in streams of one process: none is overtaken."""


@dataclass(frozen=True, slots=True)
class MpsRule:
    """Kernels at once: at full speed while the SMs suffice for all of them, else all slowed alike."""


@dataclass(frozen=True, slots=True)
class FikitRule:
    """FIKIT (Wu, 2023): the most urgent task's kernels, and in the gaps between them kernels of the others that fit.

    The gaps are those that each kernel identity is expected to leave, from the trace alone. The filling kernel is the
    longest that fits of the most urgent class that has one (BestPrioFit); none is interrupted.

    Attributes:
        least_gap_s: gaps that are expected to be this short are not filled, s (assumed: 0.1 ms).
        margin: how much of an expected gap may be filled (assumed: all of it).
        launch_s: host time that it takes to intercept one launch, s (assumed).
        feedback: stop filling once the urgent task has work; without it, a kernel that was expected to fit goes first.
        fills: without it the others run only when no request of a more urgent task is in progress.
    """

    least_gap_s: float = 1e-4
    margin: float = 1.0
    launch_s: float = 1e-6
    feedback: bool = True
    fills: bool = True


Sharing = TimeSliceRule | OneQueueRule | MpsRule | FikitRule


@dataclass(frozen=True, slots=True)
class Client:
    """A task that shares the GPU with others, kernel by kernel.

    Attributes:
        trace: the kernels of an iteration; a request is one iteration.
        requests: number of its requests; 0 continues until the others are done.
        priority: its class, 0 the most urgent.
        arrivals_s: when its requests arrive, s, ascending; None: each when the one before has ended.
    """

    trace: KernelTrace
    requests: int = 0
    priority: int = 0
    arrivals_s: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class ClientResult:
    """Result of clients that shared a GPU.

    Attributes:
        jct_s: of each client, the JCT of each request done, s.
        rate: of each client, kernel time done over the time until the end: the share of the GPU that it had.
        end_s: when the last of the requests ended, s.
        pieces: rows (client, start in s, end in s) of the timeline, as many as were requested.
    """

    jct_s: tuple[FloatArray, ...]
    rate: FloatArray
    end_s: float
    pieces: FloatArray


def share(
    clients: Sequence[Client],
    how: Sharing,
    *,
    rng: np.random.Generator | None = None,
    jitter: float = 0.0,
    pieces: int = 0,
) -> ClientResult:
    """Let clients share a GPU until each with a number of requests has done them.

    Args:
        clients: the clients.
        how: the way of sharing.
        rng: draws the jitter; needed if there is any.
        jitter: coefficient of variation of each kernel's duration and each launch, from iteration to iteration.
        pieces: number of rows of the timeline to keep.

    Raises:
        InputError: no client that ends, fewer arrivals than requests, or jitter without `rng`.
    """
    _check(clients, jitter, rng)
    rows = [_columns(client.trace, how, jitter, rng) for client in clients]
    duration_s, host_s, waits, last, sms, expected_s, gap_s = (_padded(column) for column in zip(*rows, strict=True))
    trace = (duration_s, host_s, waits, last, np.array([len(row[0]) for row in rows]))
    most = max(client.requests for client in clients)
    jct_s, log = np.full((len(clients), most), np.nan), np.full((pieces, 3), np.nan)
    if isinstance(how, MpsRule):
        state, end_s, logged = kernel_loops.together(sms, trace, _requests(clients), (jct_s, log))
    else:
        rule, settings = _rule(how)
        priority = np.array([client.priority for client in clients])
        state, end_s, logged = kernel_loops.one_at_a_time(
            rule, settings, priority, trace, (expected_s, gap_s), _requests(clients), (jct_s, log)
        )
    done = tuple(row[np.isfinite(row)] for row in jct_s)
    return ClientResult(done, state[:, kernel_loops.WORK] / end_s, end_s, log[: min(logged, pieces)])


def _rule(how: Sharing) -> tuple[int, FloatArray]:
    if isinstance(how, TimeSliceRule):
        return kernel_loops.TIME_SLICES, np.array([how.slice_s, how.switch_s, 0.0, 0.0, 0.0, 0.0])
    if isinstance(how, FikitRule):
        return kernel_loops.FILLING, np.array([0.0, 0.0, how.least_gap_s, how.margin, how.feedback, how.fills])
    return kernel_loops.ONE_QUEUE, np.zeros(6)


def _columns(trace: KernelTrace, how: Sharing, jitter: float, rng: np.random.Generator | None) -> list[np.ndarray]:
    """Return a client's kernels, of one iteration or, with jitter, of many.

    Columns: duration, host time, whether the host waits, whether it is the last, SMs, expected duration and gap.
    """
    if isinstance(how, FikitRule):
        trace = trace.with_host(each_s=how.launch_s)
    last = np.arange(1, len(trace) + 1) == len(trace)
    columns = [trace.duration_s, trace.host_s, trace.waits, last, trace.sms, *predictions(trace)]
    if rng is None or jitter == 0:
        return columns
    many = max(1, _DRAWN // len(trace))
    sigma = np.sqrt(np.log1p(jitter**2))
    factors = rng.lognormal(-0.5 * sigma**2, sigma, size=(2, many * len(trace)))
    columns = [np.tile(column, many) for column in columns]
    return [columns[0] * factors[0], columns[1] * factors[1], *columns[2:]]


_DRAWN = 8192


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return rows of different lengths as one array, filled with zeros."""
    filled = np.zeros((len(rows), max(1, *map(len, rows))), dtype=rows[0].dtype)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    return filled


def _requests(clients: Sequence[Client]) -> tuple[FloatArray, IntArray, IntArray]:
    arrivals = [np.array(one.arrivals_s or ()) for one in clients]
    counts = np.array([len(row) for row in arrivals])
    return _padded(arrivals), counts, np.array([one.requests for one in clients])


def _check(clients: Sequence[Client], jitter: float, rng: np.random.Generator | None) -> None:
    ends = any(one.requests for one in clients)
    enough = all(one.arrivals_s is None or 0 < one.requests <= len(one.arrivals_s) for one in clients)
    ascending = all(one.arrivals_s is None or bool((np.diff(one.arrivals_s) >= 0).all()) for one in clients)
    if not (ends and enough and ascending) or jitter < 0 or (jitter > 0 and rng is None):
        raise InputError(
            f"{len(clients)} clients with {[one.requests for one in clients]} requests, jitter {jitter:g}",
            "one that ends, at least as many ascending arrivals as requests, and an rng with jitter",
            "Correct the clients.",
            column="clients",
        )
