"""Ways in which kernels share a GPU: what each rule is, and every assumption of it as a named parameter.

Clients that share one GPU, kernel by kernel: under time slices, in one queue, under MPS, and filled by FIKIT.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heshare.arrays import FloatArray, IntArray
from heshare.errors import InputError
from heshare.systems.fikit import kernel_loops
from heshare.systems.fikit.kernel_trace import KernelTrace, predictions

SWITCH = 0.035
"""A switch of two processes as a share of their time: what EaCO measured under time slices."""


@dataclass(frozen=True, slots=True)
class TimeSliceRule:
    """The default of processes that share a GPU: each has all of it for a slice, in turn, if it has something to run.

    Attributes:
        slice_s: how long a process may keep the GPU while another waits, s; the driver's shortest is about 2 ms.
        switch_s: what a switch costs, s; assumed so that two busy processes lose what EaCO measured.
    """

    slice_s: float = 2e-3
    switch_s: float = SWITCH * 2e-3


@dataclass(frozen=True, slots=True)
class OneQueueRule:
    """Everybody's kernels in the order of their launch, as in streams of one process: none is overtaken."""


@dataclass(frozen=True, slots=True)
class MpsRule:
    """Kernels at once: at full speed while the SMs suffice for all of them, else all slowed alike."""


@dataclass(frozen=True, slots=True)
class FikitRule:
    """FIKIT (Wu, 2023): the most urgent task's kernels, and in the gaps between them what fits of the others.

    The gaps are those that each kernel identity is expected to leave, from the trace alone. The filling kernel is the
    longest that fits of the most urgent class that has one (BestPrioFit); none is interrupted.

    Attributes:
        least_gap_s: gaps that are expected to be this short are not filled, s (assumed: 0.1 ms).
        margin: how much of an expected gap may be filled (assumed: all of it).
        launch_s: what it costs to intercept one launch, s of host time (assumed).
        feedback: stop filling once the urgent task has work; without it, what was expected to fit still goes first.
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
    """One task that shares the GPU.

    Attributes:
        trace: what an iteration launches; a request is one iteration.
        requests: how many it is to do; 0 goes on until the others are done.
        priority: its class, 0 the most urgent.
        arrivals_s: when its requests arrive, s, ascending; None: each when the one before has ended.
    """

    trace: KernelTrace
    requests: int = 0
    priority: int = 0
    arrivals_s: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class ClientResult:
    """What came of it.

    Attributes:
        jct_s: of each client, the JCT of each request done, s.
        rate: of each client, kernel time done over the time until the end: the share of the GPU that it had.
        end_s: when the last of the wanted requests ended, s.
        pieces: rows (client, start in s, end in s) of the timeline, as many as were asked for.
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
        clients: who shares it.
        how: the way of sharing.
        rng: draws the jitter; needed if there is any.
        jitter: coefficient of variation of each kernel's duration and each launch, from iteration to iteration.
        pieces: how much of the timeline to keep.

    Raises:
        InputError: no client that ends, fewer arrivals than requests, or jitter without `rng`.
    """
    _check(clients, jitter, rng)
    traces = [one.trace.with_host(each_s=how.launch_s) if isinstance(how, FikitRule) else one.trace for one in clients]
    jittered = [_iterations(trace, jitter, rng) for trace in traces]
    longest = max(len(duration_s) for duration_s, _ in jittered)
    padded = tuple(_padded(rows, longest) for rows in zip(*jittered, strict=True))
    times = [longest // len(trace) for trace in traces]
    flags = _padded([np.tile(trace.waits, many) for trace, many in zip(traces, times, strict=True)], longest)
    ends = [np.tile(np.arange(len(trace)) == len(trace) - 1, many) for trace, many in zip(traces, times, strict=True)]
    kernels = np.array([len(duration_s) for duration_s, _ in jittered])
    trace = (padded[0], padded[1], flags.astype(np.bool_), _padded(ends, longest).astype(np.bool_), kernels)
    most = max(one.requests for one in clients)
    jct_s, log = np.full((len(clients), most), np.nan), np.full((pieces, 3), np.nan)
    requests = _requests(clients)
    if isinstance(how, MpsRule):
        sms = _padded([np.tile(one.sms, many) for one, many in zip(traces, times, strict=True)], longest)
        state, end_s, logged = kernel_loops.together(sms, trace, requests, (jct_s, log))
    else:
        rule, settings = _rule(how)
        expected = [predictions(one) for one in traces]
        lengths_s, gaps_s = (
            _padded([np.tile(each[at], many) for each, many in zip(expected, times, strict=True)], longest)
            for at in (0, 1)
        )
        priority = np.array([one.priority for one in clients])
        state, end_s, logged = kernel_loops.one_at_a_time(
            rule, settings, priority, trace, (lengths_s, gaps_s), requests, (jct_s, log)
        )
    done = tuple(row[np.isfinite(row)] for row in jct_s)
    return ClientResult(done, state[:, kernel_loops.WORK] / end_s, end_s, log[: min(logged, pieces)])


def _rule(how: Sharing) -> tuple[int, FloatArray]:
    if isinstance(how, TimeSliceRule):
        return kernel_loops.TIME_SLICES, np.array([how.slice_s, how.switch_s, 0.0, 0.0, 0.0, 0.0])
    if isinstance(how, FikitRule):
        return kernel_loops.FILLING, np.array([0.0, 0.0, how.least_gap_s, how.margin, how.feedback, how.fills])
    return kernel_loops.ONE_QUEUE, np.zeros(6)


def _iterations(trace: KernelTrace, jitter: float, rng: np.random.Generator | None) -> tuple[FloatArray, FloatArray]:
    """Durations and host times, s: of one iteration; with jitter, of many."""
    if rng is None or jitter == 0:
        return trace.duration_s, trace.host_s
    many = max(1, _DRAWN // len(trace))
    sigma = np.sqrt(np.log1p(jitter**2))
    factors = rng.lognormal(-0.5 * sigma**2, sigma, size=(2, many * len(trace)))
    return np.tile(trace.duration_s, many) * factors[0], np.tile(trace.host_s, many) * factors[1]


_DRAWN = 8192


def _padded(rows: Sequence[np.ndarray], longest: int) -> FloatArray:
    filled = np.zeros((len(rows), longest))
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row[:longest]
    return filled


def _requests(clients: Sequence[Client]) -> tuple[FloatArray, IntArray, IntArray]:
    arrivals = [np.array(one.arrivals_s or ()) for one in clients]
    counts = np.array([len(row) for row in arrivals])
    return _padded(arrivals, max(1, int(counts.max()))), counts, np.array([one.requests for one in clients])


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
