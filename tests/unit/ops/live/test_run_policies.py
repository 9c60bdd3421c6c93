"""Which policies a call of a live comparison runs within its time."""

from __future__ import annotations

from types import SimpleNamespace

from heshare.ops.live.live_comparison import run_policies

POLICIES = ("random", "sched-only", "heshare:trade-off", "morak", "mu-serve")


class Runs:
    """Runs of 60 s each, some of which are stored, and the time that is left."""

    def __init__(self, time_s, stored=()):
        self.left_s, self.stored, self.began = time_s, set(stored), []

    def is_stored(self, tasks, policy):
        return policy in self.stored

    def run_policy(self, tasks, policy):
        if policy not in self.stored:
            self.began.append(policy)
            self.stored.add(policy)
            self.left_s -= 60.0
        return SimpleNamespace(before_s=10.0, makespan_s=50.0)

    def call(self, time_s=None):
        self.left_s = self.left_s if time_s is None else time_s
        self.began.clear()
        return list(run_policies(self, (), POLICIES, lambda: self.left_s, lambda text: None))


def test_order():
    """Policies that Fig. 6 compares others with run first; results have the given order."""
    runs = Runs(1000.0)
    assert runs.call() == list(POLICIES)
    assert runs.began == ["heshare:trade-off", "random", "sched-only", "morak", "mu-serve"]


def test_time():
    """No policy begins whose run would take longer than what is left, as the longest so far took."""
    runs = Runs(170.0)
    assert runs.call() == ["random", "heshare:trade-off"]
    assert runs.call(time_s=180.0) == list(POLICIES)
    assert runs.began == ["sched-only", "morak", "mu-serve"]


def test_progress():
    """A call without time runs one policy, and also reads those that are stored later in the order."""
    runs = Runs(0.0, stored=["mu-serve"])
    assert runs.call() == ["heshare:trade-off", "mu-serve"]
    assert runs.call() == ["random", "heshare:trade-off", "mu-serve"]
    assert runs.began == ["random"]


def test_stored():
    """A call with all runs stored begins none."""
    runs = Runs(0.0, stored=POLICIES)
    assert runs.call() == list(POLICIES)
    assert runs.began == []
