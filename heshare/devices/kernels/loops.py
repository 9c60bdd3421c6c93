"""The exact loops over kernels, compiled: one kernel at a time, and several at once."""

from __future__ import annotations

import numpy as np

from heshare.compiling import compiled
from heshare.devices.kernels.progress import (
    BEGUN,
    GAP,
    LAUNCHED,
    LEFT,
    NOBODY,
    PLACE,
    Requests,
    Traces,
    earliest,
    ended,
    new_state,
    next_event,
    next_launch,
    unfinished,
)
from heshare.devices.kernels.trace import FloatArray, IntArray

TIME_SLICES, ONE_QUEUE, FILLING = 0, 1, 2
_TINY = 1e-12


@compiled
def _sliced(state: FloatArray, now_s: float, owner: int) -> tuple[int, float]:
    """Time slices: whose turn it is if `owner` gives up the GPU now, and the next launch of anybody but `owner`."""
    clients = len(state)
    turn, launch_s = NOBODY, np.inf
    for step in range(1, clients + 1):
        one = (owner + step) % clients
        if one != owner and state[one, LAUNCHED] > now_s:
            launch_s = min(launch_s, state[one, LAUNCHED])
        elif one != owner and turn == NOBODY:
            turn = one
    return turn, launch_s


@compiled
def _turn(
    state: FloatArray, now_s: float, owner: int, until_s: float, slice_s: float, switch_s: float
) -> tuple[int, float, float, int, float]:
    """Time slices: who runs (-1: nobody) and until when at most; then the time, the owner and the end of its slice."""
    ready = owner != NOBODY and state[owner, LAUNCHED] <= now_s
    turn, launch_s = _sliced(state, now_s, owner)
    if turn != NOBODY and (not ready or now_s >= until_s - _TINY):
        # The first owner takes over an idle GPU: nothing is switched.
        now_s += switch_s if owner != NOBODY else 0.0
        owner, until_s, ready = turn, now_s + slice_s, True
        turn, launch_s = _sliced(state, now_s, owner)
    limit_s = until_s if turn != NOBODY else max(until_s, launch_s)
    return owner if ready else NOBODY, limit_s, now_s, owner, until_s


@compiled
def _top(state: FloatArray, now_s: float, priority: IntArray) -> int:
    """The most urgent priority with a request in progress, -1 for none."""
    found = NOBODY
    for one in range(len(state)):
        if state[one, BEGUN] <= now_s and (found == NOBODY or priority[one] < found):
            found = priority[one]
    return found


@compiled
def _best_fit(
    state: FloatArray, now_s: float, priority: IntArray, top: int, expected_s: FloatArray, room_s: float
) -> int:
    """BestPrioFit: of the most urgent class that has a kernel that fits, the longest one; -1 for none."""
    found = NOBODY
    for one in range(len(state)):
        length_s = expected_s[one, int(state[one, PLACE])]
        if priority[one] <= top or state[one, LAUNCHED] > now_s or length_s > room_s + _TINY:
            continue
        longer = found != NOBODY and length_s > expected_s[found, int(state[found, PLACE])]
        if found == NOBODY or priority[one] < priority[found] or (priority[one] == priority[found] and longer):
            found = one
    return found


@compiled
def _gap_end_s(state: FloatArray, now_s: float, priority: IntArray, top: int) -> float:
    """Until when the most urgent class is expected to leave the GPU idle; the earliest where it has several tasks."""
    found = np.inf
    for one in range(len(state)):
        if priority[one] == top and state[one, BEGUN] <= now_s:
            found = min(found, state[one, GAP])
    return found


@compiled
def _chosen(
    state: FloatArray, now_s: float, priority: IntArray, expected_s: FloatArray, feedback: bool, fills: bool
) -> int:
    """FIKIT: whose kernel runs now, -1 to leave the GPU idle."""
    top = _top(state, now_s, priority)
    if top == NOBODY:
        return NOBODY
    ready = earliest(state, now_s, priority, top)
    room_s = _gap_end_s(state, now_s, priority, top) - now_s
    if fills and room_s > _TINY and (ready == NOBODY or not feedback):
        filler = _best_fit(state, now_s, priority, top, expected_s, room_s)
        if filler != NOBODY:
            return filler
    return ready


@compiled
def one_at_a_time(
    rule: int,
    settings: FloatArray,
    priority: IntArray,
    trace: Traces,
    expected: tuple[FloatArray, FloatArray],
    requests: Requests,
    results: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, float, int]:
    """Kernels one at a time until every client with a number of requests has done them.

    Args:
        rule: `TIME_SLICES`, `ONE_QUEUE` (in order of launch) or `FILLING` (FIKIT).
        settings: slice (s), cost of a switch (s), least gap to fill (s), margin on predicted gaps, feedback, filling.
        priority: of each client, 0 the most urgent.
        trace: as in `ended`.
        expected: FIKIT's predictions: each kernel's duration and the gap after it, s, shape (clients, longest).
        requests: as in `ended`.
        results: JCTs and a log of (client, start, end), both filled in as far as they reach.

    Returns:
        The state at the end, the time, s, and how many pieces the log has.
    """
    (arrival_s, arrivals, wanted), (jct_s, log) = requests, results
    slice_s, switch_s, least_s, margin, feedback, fills = settings
    state = new_state(trace[0], trace[1], arrival_s, arrivals)
    now_s, owner, until_s, pieces = 0.0, NOBODY, 0.0, 0
    while unfinished(state, wanted):
        limit_s = np.inf
        if rule == TIME_SLICES:
            one, limit_s, now_s, owner, until_s = _turn(state, now_s, owner, until_s, slice_s, switch_s)
        elif rule == ONE_QUEUE:
            one = earliest(state, now_s, priority, -1)
        else:
            one = _chosen(state, now_s, priority, expected[0], feedback > 0, fills > 0)
        if one == NOBODY:
            now_s = next_launch(state, now_s) if rule != FILLING else next_event(state, now_s)
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


@compiled
def together(
    sms: FloatArray,
    trace: Traces,
    requests: Requests,
    results: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, float, int]:
    """Kernels at once, as under MPS: each at full speed while the SMs suffice for all, else all slowed alike.

    Args:
        sms: share of the SMs that each kernel can use, shape (clients, longest).
        trace: as in `ended`.
        requests: as in `ended`.
        results: as in `one_at_a_time`; each piece is logged for every client that runs in it.
    """
    (arrival_s, arrivals, wanted), (jct_s, log) = requests, results
    state = new_state(trace[0], trace[1], arrival_s, arrivals)
    now_s, pieces = 0.0, 0
    while unfinished(state, wanted):
        demand, shortest_s = 0.0, np.inf
        for one in range(len(state)):
            if state[one, LAUNCHED] <= now_s:
                demand += sms[one, int(state[one, PLACE])]
                shortest_s = min(shortest_s, state[one, LEFT])
        slow = max(1.0, demand)
        stop_s = min(now_s + slow * shortest_s, next_launch(state, now_s))
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
