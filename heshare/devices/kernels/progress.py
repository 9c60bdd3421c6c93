"""How far clients of a shared GPU are, compiled: what is launched, what is left, which requests are done.

Clients are rows of padded arrays. A client's kernels run in order; the next one can start once the host has launched it
(`launched`). A request begins when it arrives, or when the one before has ended if that is later; without a list of
arrivals the next one arrives when the last has ended. Times are in seconds.
"""

from __future__ import annotations

import numpy as np

from heshare.compiling import compiled
from heshare.devices.kernels.trace import BoolArray, FloatArray, IntArray

NOBODY = -1
# Columns of the state: when the request arrived and began, when the next kernel was launched, what is left of it, its
# place in the trace, requests done, kernel time done, end of the predicted gap.
ARRIVED, BEGUN, LAUNCHED, LEFT, PLACE, DONE, WORK, GAP = range(8)

Traces = tuple[FloatArray, FloatArray, BoolArray, BoolArray, IntArray]
"""Durations (s), host times (s), whether the host waits, whether a kernel ends an iteration, kernels of each client."""
Requests = tuple[FloatArray, IntArray, IntArray]
"""Arrivals (s), how many of them each client has (0: one after the other), how many it is to do (0: endless)."""


@compiled
def new_state(duration_s: FloatArray, host_s: FloatArray, arrival_s: FloatArray, arrivals: IntArray) -> FloatArray:
    """Where each client is, shape (clients, 8): see the columns above."""
    clients = len(host_s)
    state = np.zeros((clients, 8))
    for one in range(clients):
        first = arrival_s[one, 0] if arrivals[one] else 0.0
        state[one, BEGUN] = state[one, ARRIVED] = first
        state[one, LAUNCHED] = first + host_s[one, 0]
        state[one, LEFT] = duration_s[one, 0]
    return state


@compiled
def ended(
    one: int,
    now_s: float,
    state: FloatArray,
    trace: Traces,
    requests: Requests,
    jct_s: FloatArray,
) -> None:
    """A client's kernel has ended: launch its next one, and note a request that ends with it.

    Args:
        one: the client.
        now_s: when.
        state: as from `new_state`.
        trace: what they launch.
        requests: what they are asked.
        jct_s: JCT of each request, filled in, shape (clients, most requests).
    """
    duration_s, host_s, waits, last, kernels = trace
    arrival_s, arrivals, wanted = requests
    place = int(state[one, PLACE])
    following = (place + 1) % kernels[one]
    begin_s = now_s if waits[one, place] else state[one, LAUNCHED]
    state[one, WORK] += duration_s[one, place]
    if last[one, place]:
        done = int(state[one, DONE])
        if done < jct_s.shape[1]:
            jct_s[one, done] = now_s - state[one, ARRIVED]
        state[one, DONE] = done + 1
        if wanted[one] and done + 1 >= wanted[one]:
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


@compiled
def unfinished(state: FloatArray, wanted: IntArray) -> bool:
    """Whether a client has requests to do."""
    left = False
    for one in range(len(state)):
        left = left or (wanted[one] > 0 and state[one, DONE] < wanted[one])
    return left


@compiled
def next_launch(state: FloatArray, now_s: float) -> float:
    """The next launch after now, s."""
    found = np.inf
    for one in range(len(state)):
        if now_s < state[one, LAUNCHED] < found:
            found = state[one, LAUNCHED]
    return found


@compiled
def earliest(state: FloatArray, now_s: float, priority: IntArray, among: int) -> int:
    """Of the kernels launched by now, the one launched first; `among` is a priority, or -1 for everybody."""
    found = NOBODY
    for one in range(len(state)):
        meant = (among < 0 or priority[one] == among) and state[one, LAUNCHED] <= now_s
        if meant and (found == NOBODY or state[one, LAUNCHED] < state[found, LAUNCHED]):
            found = one
    return found


@compiled
def next_event(state: FloatArray, now_s: float) -> float:
    """The next launch or beginning of a request after now, s: an empty GPU may then have something to run."""
    found = next_launch(state, now_s)
    for one in range(len(state)):
        if now_s < state[one, BEGUN] < found:
            found = state[one, BEGUN]
    return found
