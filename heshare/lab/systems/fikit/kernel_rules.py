"""Clients that share one GPU, kernel by kernel: under time slices, in one queue, under MPS, and filled by FIKIT.

Every assumption of a rule is a parameter of it. The exact loops over the kernels are compiled: one kernel at a time,
and several at once. Clients are rows of padded arrays. A client's kernels run in order; the next one can start once the
host has launched it (`launched`). A request begins when it arrives and the one before has ended;
without a list of arrivals it arrives when the last has ended. Times are in seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heshare.lab.systems.fikit.kernel_trace import KernelTrace, predictions
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiled import njit

SWITCH = 0.035
"""A switch of two processes as a share of their time: what EaCO measured under time slices."""


@dataclass(frozen=True, slots=True)
class TimeSliceRule:
    """The default of processes that share a GPU: each has all of it for a slice, in turn, if it has a kernel to run.

    `slice_s` is how long a process may hold the GPU while another waits; the driver's least is about 2 ms. `switch_s`
    is the time of a switch, assumed so that two busy processes lose as much as EaCO measured.
    """

    slice_s: float = 2e-3
    switch_s: float = SWITCH * 2e-3


@dataclass(frozen=True, slots=True)
class OneQueueRule:
    """All kernels in the order of their launch, as in streams of one process."""


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
    """A task that shares the GPU with others, kernel by kernel; a request is one iteration of its trace.

    With 0 requests it continues until the others are done. Its priority is a class, 0 the most urgent. Requests arrive
    at `arrivals_s`, ascending; None: each when the one before has ended.
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
    """Let clients, at least one with a number of requests, share a GPU until each with such a number has done them.

    Clients with arrivals have at least as many as requests. `rng` draws the `jitter`, the coefficient of variation of
    each kernel's duration and each launch; `pieces` is the number of rows of the timeline to record.
    """
    rows = [_columns(client.trace, how, jitter, rng) for client in clients]
    duration_s, host_s, waits, last, sms, expected_s, gap_s = (_padded(column) for column in zip(*rows, strict=True))
    trace = (duration_s, host_s, waits, last, np.array([len(row[0]) for row in rows]))
    most = max(client.requests for client in clients)
    jct_s, log = np.full((len(clients), most), np.nan), np.full((pieces, 3), np.nan)
    if isinstance(how, MpsRule):
        state, end_s, logged = together(sms, trace, _requests(clients), (jct_s, log))
    else:
        rule, settings = _rule(how)
        priority = np.array([client.priority for client in clients])
        state, end_s, logged = one_at_a_time(
            rule, settings, priority, trace, (expected_s, gap_s), _requests(clients), (jct_s, log)
        )
    done = tuple(row[np.isfinite(row)] for row in jct_s)
    return ClientResult(done, state[:, WORK] / end_s, end_s, log[: min(logged, pieces)])


def _rule(how: Sharing) -> tuple[int, FloatArray]:
    if isinstance(how, TimeSliceRule):
        return TIME_SLICES, np.array([how.slice_s, how.switch_s, 0.0, 0.0, 0.0, 0.0])
    if isinstance(how, FikitRule):
        return FILLING, np.array([0.0, 0.0, how.least_gap_s, how.margin, how.feedback, how.fills])
    return ONE_QUEUE, np.zeros(6)


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
    filled = np.zeros((len(rows), max(1, *map(len, rows))), dtype=rows[0].dtype)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    return filled


def _requests(clients: Sequence[Client]) -> tuple[FloatArray, IntArray, IntArray]:
    arrivals = [np.array(one.arrivals_s or ()) for one in clients]
    counts = np.array([len(row) for row in arrivals])
    return _padded(arrivals), counts, np.array([one.requests for one in clients])


NONE = -1
# Columns of the state: when the request arrived and began, when the next kernel was launched, its remaining time, its
# index in the trace, requests done, kernel time done, end of the predicted gap.
ARRIVED, BEGUN, LAUNCHED, LEFT, PLACE, DONE, WORK, GAP = range(8)

Traces = tuple[FloatArray, FloatArray, BoolArray, BoolArray, IntArray]
"""Durations (s), host times (s), whether the host waits, whether a kernel ends an iteration, kernels of each client."""
Requests = tuple[FloatArray, IntArray, IntArray]
"""Arrivals (s), how many of them each client has (0: one after the other), how many requests it has (0: endless)."""


@njit(cache=True)
def new_state(duration_s: FloatArray, host_s: FloatArray, arrival_s: FloatArray, arrivals: IntArray) -> FloatArray:
    """Return the state of the clients at the start, shape (clients, 8): see the columns above."""
    clients = len(host_s)
    state = np.zeros((clients, 8))
    for one in range(clients):
        first = arrival_s[one, 0] if arrivals[one] else 0.0
        state[one, BEGUN] = state[one, ARRIVED] = first
        state[one, LAUNCHED] = first + host_s[one, 0]
        state[one, LEFT] = duration_s[one, 0]
    return state


@njit(cache=True)
def ended(one: int, now_s: float, state: FloatArray, trace: Traces, requests: Requests, jct_s: FloatArray) -> None:
    """End a client's kernel at `now_s`: launch its next one, and record a request that ends with it in `jct_s`.

    `jct_s` has the JCT of each request, shape (clients, most requests).
    """
    duration_s, host_s, waits, last, kernels = trace
    arrival_s, arrivals, counts = requests
    place = int(state[one, PLACE])
    following = (place + 1) % kernels[one]
    begin_s = now_s if waits[one, place] else state[one, LAUNCHED]
    state[one, WORK] += duration_s[one, place]
    if last[one, place]:
        done = int(state[one, DONE])
        if done < jct_s.shape[1]:
            jct_s[one, done] = now_s - state[one, ARRIVED]
        state[one, DONE] = done + 1
        if counts[one] and done + 1 >= counts[one]:
            begin_s = np.inf
        elif arrivals[one]:
            state[one, ARRIVED] = arrival_s[one, done + 1] if done + 1 < arrivals[one] else np.inf
            begin_s = max(now_s, state[one, ARRIVED])
        else:
            state[one, ARRIVED] = begin_s = now_s
        state[one, BEGUN] = begin_s
    state[one, PLACE] = following
    state[one, LAUNCHED] = begin_s + host_s[one, following]
    state[one, LEFT] = duration_s[one, following]


@njit(cache=True)
def unfinished(state: FloatArray, counts: IntArray) -> bool:
    left = False
    for one in range(len(state)):
        left = left or (counts[one] > 0 and state[one, DONE] < counts[one])
    return left


@njit(cache=True)
def next_after(state: FloatArray, column: int, now_s: float) -> float:
    found = np.inf
    for one in range(len(state)):
        if now_s < state[one, column] < found:
            found = state[one, column]
    return found


@njit(cache=True)
def earliest(state: FloatArray, now_s: float, priority: IntArray, among: int) -> int:
    """Return the client whose kernel was launched first of those launched by now, of a priority or (-1) of all."""
    found = NONE
    for one in range(len(state)):
        meant = (among < 0 or priority[one] == among) and state[one, LAUNCHED] <= now_s
        if meant and (found == NONE or state[one, LAUNCHED] < state[found, LAUNCHED]):
            found = one
    return found


TIME_SLICES, ONE_QUEUE, FILLING = 0, 1, 2
_TINY = 1e-12


@njit(cache=True)
def _sliced(state: FloatArray, now_s: float, owner: int) -> tuple[int, float]:
    """Time slices: the client whose turn it is if `owner` releases the GPU now, and the next launch of the others."""
    clients = len(state)
    turn, launch_s = NONE, np.inf
    for step in range(1, clients + 1):
        one = (owner + step) % clients
        if one != owner and state[one, LAUNCHED] > now_s:
            launch_s = min(launch_s, state[one, LAUNCHED])
        elif one != owner and turn == NONE:
            turn = one
    return turn, launch_s


@njit(cache=True)
def _turn(
    state: FloatArray, now_s: float, owner: int, until_s: float, slice_s: float, switch_s: float
) -> tuple[int, float, float, int, float]:
    """Time slices: the client that runs (-1: none), until when at most, the time, the owner, and its slice's end."""
    ready = owner != NONE and state[owner, LAUNCHED] <= now_s
    turn, launch_s = _sliced(state, now_s, owner)
    if turn != NONE and (not ready or now_s >= until_s - _TINY):
        # The first owner takes over an idle GPU: nothing is switched.
        now_s += switch_s if owner != NONE else 0.0
        owner, until_s, ready = turn, now_s + slice_s, True
        turn, launch_s = _sliced(state, now_s, owner)
    limit_s = until_s if turn != NONE else max(until_s, launch_s)
    return owner if ready else NONE, limit_s, now_s, owner, until_s


@njit(cache=True)
def _top(state: FloatArray, now_s: float, priority: IntArray) -> int:
    """Return the most urgent priority with a request in progress, -1 for none."""
    found = NONE
    for one in range(len(state)):
        if state[one, BEGUN] <= now_s and (found == NONE or priority[one] < found):
            found = priority[one]
    return found


@njit(cache=True)
def _best_fit(
    state: FloatArray, now_s: float, priority: IntArray, top: int, expected_s: FloatArray, room_s: float
) -> int:
    """BestPrioFit: the client with the longest kernel of the most urgent class that has one that fits; -1 for none."""
    found = NONE
    for one in range(len(state)):
        length_s = expected_s[one, int(state[one, PLACE])]
        if priority[one] <= top or state[one, LAUNCHED] > now_s or length_s > room_s + _TINY:
            continue
        longer = found != NONE and length_s > expected_s[found, int(state[found, PLACE])]
        if found == NONE or priority[one] < priority[found] or (priority[one] == priority[found] and longer):
            found = one
    return found


@njit(cache=True)
def _gap_end_s(state: FloatArray, now_s: float, priority: IntArray, top: int) -> float:
    """Return until when the most urgent class is expected to leave the GPU idle; the earliest of its tasks."""
    found = np.inf
    for one in range(len(state)):
        if priority[one] == top and state[one, BEGUN] <= now_s:
            found = min(found, state[one, GAP])
    return found


@njit(cache=True)
def _chosen(
    state: FloatArray, now_s: float, priority: IntArray, expected_s: FloatArray, feedback: bool, fills: bool
) -> int:
    """FIKIT: the client whose kernel runs now, -1 to leave the GPU idle."""
    top = _top(state, now_s, priority)
    if top == NONE:
        return NONE
    ready = earliest(state, now_s, priority, top)
    room_s = _gap_end_s(state, now_s, priority, top) - now_s
    if fills and room_s > _TINY and (ready == NONE or not feedback):
        filler = _best_fit(state, now_s, priority, top, expected_s, room_s)
        if filler != NONE:
            return filler
    return ready


@njit(cache=True)
def one_at_a_time(
    rule: int,
    settings: FloatArray,
    priority: IntArray,
    trace: Traces,
    expected: tuple[FloatArray, FloatArray],
    requests: Requests,
    results: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, float, int]:
    """Run kernels one at a time until every client with a number of requests has done them.

    Args:
        rule: `TIME_SLICES`, `ONE_QUEUE` (in order of launch) or `FILLING` (FIKIT).
        settings: slice (s), cost of a switch (s), least gap to fill (s), margin on predicted gaps, feedback, filling.
        priority: of each client, 0 the most urgent.
        trace: the clients' kernels.
        expected: FIKIT's predictions: each kernel's duration and the gap after it, s, shape (clients, longest).
        requests: the clients' requests.
        results: JCTs and a log of (client, start, end), both filled in as far as they reach.

    Returns:
        The state at the end, the time, s, and how many pieces the log has.
    """
    (arrival_s, arrivals, counts), (jct_s, log) = requests, results
    slice_s, switch_s, least_s, margin, feedback, fills = settings
    state = new_state(trace[0], trace[1], arrival_s, arrivals)
    now_s, owner, until_s, pieces = 0.0, NONE, 0.0, 0

    while unfinished(state, counts):
        limit_s = np.inf
        if rule == TIME_SLICES:
            one, limit_s, now_s, owner, until_s = _turn(state, now_s, owner, until_s, slice_s, switch_s)
        elif rule == ONE_QUEUE:
            one = earliest(state, now_s, priority, -1)
        else:
            one = _chosen(state, now_s, priority, expected[0], feedback > 0, fills > 0)

        if one == NONE:
            event_s = next_after(state, LAUNCHED, now_s)
            # An idle GPU may also have a kernel to run once a request begins.
            now_s = min(event_s, next_after(state, BEGUN, now_s)) if rule == FILLING else event_s
            continue

        left_s = state[one, LEFT]
        ends = now_s + left_s <= limit_s + _TINY
        stop_s = now_s + left_s if ends else limit_s
        if pieces < len(log):
            log[pieces, 0], log[pieces, 1], log[pieces, 2] = one, now_s, stop_s
        pieces += 1
        if ends:
            place = int(state[one, PLACE])
            gap_s = margin * expected[1][one, place]
            ended(one, stop_s, state, trace, requests, jct_s)
            state[one, GAP] = stop_s + gap_s if gap_s > least_s else stop_s
        else:
            state[one, LEFT] -= stop_s - now_s
        now_s = stop_s
    return state, now_s, pieces


@njit(cache=True)
def together(
    sms: FloatArray,
    trace: Traces,
    requests: Requests,
    results: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, float, int]:
    """Run kernels at once, as under MPS: each at full speed while the SMs suffice for all, else all slowed alike.

    `sms` is the share of the SMs that each kernel can use, shape (clients, longest). The rest is as in `one_at_a_time`,
    but a piece is logged for every client that runs in it.
    """
    (arrival_s, arrivals, counts), (jct_s, log) = requests, results
    state = new_state(trace[0], trace[1], arrival_s, arrivals)
    now_s, pieces = 0.0, 0

    while unfinished(state, counts):
        demand, shortest_s = 0.0, np.inf
        for one in range(len(state)):
            if state[one, LAUNCHED] <= now_s:
                demand += sms[one, int(state[one, PLACE])]
                shortest_s = min(shortest_s, state[one, LEFT])
        slow = max(1.0, demand)
        stop_s = min(now_s + slow * shortest_s, next_after(state, LAUNCHED, now_s))
        for one in range(len(state)):
            if state[one, LAUNCHED] > now_s:
                continue
            if pieces < len(log):
                log[pieces, 0], log[pieces, 1], log[pieces, 2] = one, now_s, stop_s
            pieces += 1
            state[one, LEFT] -= (stop_s - now_s) / slow
        for one in range(len(state)):
            if state[one, LAUNCHED] <= now_s and state[one, LEFT] <= _TINY:
                # `ended` changes what is launched; those launched at this very moment wait for the next round.
                ended(one, stop_s, state, trace, requests, jct_s)
        now_s = stop_s
    return state, now_s, pieces
