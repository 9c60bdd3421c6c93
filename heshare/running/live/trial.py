"""A live comparison from beginning to end: record, measure, simulate, compare. What was done is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.devices.loading import Loading
from heshare.devices.workers import WARM_S
from heshare.policies.registry import make
from heshare.prediction.covering import learn
from heshare.profiles.protocol import Protocol
from heshare.running import execute
from heshare.running.fingerprint import hash_of
from heshare.running.live import cards as live_cards
from heshare.running.live import jobs, measuring, recording, simulating, starting
from heshare.running.live.cards import LiveCard
from heshare.running.live.journal import Measured
from heshare.running.result import Run
from heshare.world.task import Task

POLICIES = ("random", "sched-only", "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt", "morak", "mu-serve")


@dataclass(frozen=True)
class Asked:
    """What is to be compared, and how long it may take.

    Attributes:
        devices: `nvml` for every GPU, or `nvml:0,nvml:1`.
        policies: names of the registry.
        tasks: how many.
        minutes: size of the task set: what it would take one task after the other, spread over the GPUs, min.
        budget_s: time to record each type of GPU, s.
        seed: of everything random.
        allow_clocks: let recorder and policies lock clocks.
    """

    devices: str = "nvml"
    policies: tuple[str, ...] = POLICIES
    tasks: int = 24
    minutes: float = 6.0
    budget_s: float = 900.0
    seed: int = 0
    allow_clocks: bool = False


@dataclass(frozen=True)
class Ways:
    """How else; what a test may want otherwise.

    Attributes:
        execute: how jobs are run.
        protocol: how the recorder measures.
        opener: opens a GPU for the recorder.
        warm_s: how long workers warm up before they begin, s.
        say: hears what is done next.
        progress: show the recorder's progress on a terminal.
    """

    execute: execute.Ways = field(default_factory=execute.Ways)
    protocol: Protocol | None = None
    opener: recording.Open = recording.open_card
    warm_s: float = WARM_S
    say: Callable[[str], object] = lambda text: None
    progress: bool = True


@dataclass(frozen=True)
class Trial:
    """What was measured, and what was simulated of the same.

    Attributes:
        asked: what was asked for.
        cards: the GPUs.
        played: whether a stand-in played them, so that nothing was measured on a GPU.
        table: the record of the GPUs.
        tasks: the task set.
        loading: what starting and ending processes took, measured before.
        measured: by policy.
        simulated: by device model (`simulating.MODELS`) and policy.
    """

    asked: Asked
    cards: tuple[LiveCard, ...]
    played: bool
    table: pd.DataFrame
    tasks: tuple[Task, ...]
    loading: Loading
    measured: dict[str, Measured]
    simulated: dict[str, dict[str, Run]]


def conduct(asked: Asked, folder: Path, ways: Ways | None = None) -> Trial:
    """Do all of it, or what is left of it.

    Args:
        asked: what to do.
        folder: for records and runs, with everything that was done before.
        ways: how else.

    Raises:
        DeviceError: no GPU, one that cannot be used, or a job that did not complete.
        InputError: an unknown policy or GPU, too few tasks, too short a budget.
        Interrupted: a signal asked for the end; the same call goes on.
    """
    ways = ways or Ways()
    for policy in asked.policies:
        make(policy)
    cards = live_cards.present(asked.devices, allow_clocks=asked.allow_clocks)
    ways.say(f"Recording {', '.join(dict.fromkeys(card.gpu.name for card in cards))}, {asked.budget_s / 60:g} min each")
    table = recording.record(
        cards,
        folder / "profiles",
        budget_s=asked.budget_s,
        seed=asked.seed,
        protocol=ways.protocol,
        opener=ways.opener,
        progress=ways.progress,
    )
    predictor, cluster = learn(table), live_cards.cluster(cards)
    tasks = jobs.task_set(asked.tasks, cluster, table, predictor(), minutes=asked.minutes, seed=asked.seed)
    bench = measuring.Bench(
        folder / "runs",
        asked.devices,
        _about(cards, folder),
        predictor,
        asked.seed,
        asked.allow_clocks,
        ways.execute,
    )
    ways.say("Measuring what starting and ending processes takes")
    loading = starting.measure(bench, cards[0], tasks, predictor(), warm_s=ways.warm_s)
    measured = {}
    for policy in asked.policies:
        ways.say(f"Running {len(tasks)} tasks under {policy}")
        measured[policy] = measuring.of_policy(bench, tasks, policy)
    simulated = {
        model: {
            policy: simulating.simulate(
                tasks,
                cluster,
                policy,
                predictor=predictor(),
                constants=constants,
                loading=loading,
                seed=asked.seed,
            )
            for policy in asked.policies
        }
        for model, constants in simulating.models(table).items()
    }
    return Trial(asked, cards, live_cards.played(), table, tasks, loading, measured, simulated)


def _about(cards: tuple[LiveCard, ...], folder: Path) -> dict[str, Any]:
    """What every run depends on: the GPUs as they are, and what was learned of them."""
    return {
        "cards": [{"uuid": card.uuid, "gpu": asdict(card.gpu), "driver": card.facts.get("driver")} for card in cards],
        "record": hash_of(sorted((folder / "profiles").glob("*/profile.csv"))),
    }
