"""Ways in which kernels share a GPU: what each rule is, and every assumption of it as a named parameter."""

from __future__ import annotations

from dataclasses import dataclass

SWITCH = 0.035
"""A switch of two processes as a share of their time: what EaCO measured under time slices."""


@dataclass(frozen=True, slots=True)
class TimeSlices:
    """The default of processes that share a GPU: each has all of it for a slice, in turn, if it has something to run.

    Attributes:
        slice_s: how long a process may keep the GPU while another waits, s; the driver's shortest is about 2 ms.
        switch_s: what a switch costs, s; assumed so that two busy processes lose what EaCO measured.
    """

    slice_s: float = 2e-3
    switch_s: float = SWITCH * 2e-3


@dataclass(frozen=True, slots=True)
class OneQueue:
    """Everybody's kernels in the order of their launch, as in streams of one process: none is overtaken."""


@dataclass(frozen=True, slots=True)
class Mps:
    """Kernels at once: at full speed while the SMs suffice for all of them, else all slowed alike."""


@dataclass(frozen=True, slots=True)
class Fikit:
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


Sharing = TimeSlices | OneQueue | Mps | Fikit
