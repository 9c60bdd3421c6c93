"""A run that is interrupted anywhere goes on from its checkpoint with the same bytes at the end."""

import os
import pickle
import signal

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.policies.heshare import HeShare, Planner
from heshare.policies.registry import make, policies
from heshare.prediction.truth import DevicePredictor
from heshare.running import checkpoint as checkpoints
from heshare.running import run as runs
from heshare.running.clock import WallClock
from heshare.running.draw import draw, venus
from heshare.running.run import run
from heshare.scheduling.settings import Settings
from heshare.testing.toy import Told, ToyDevice, ToyPredictor, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


class Killed(BaseException):
    pass


class Killing(checkpoints.Checkpoints):
    """Saves every few events, and dies at one of them."""

    dies_at = 0
    saves = went_on_after = 0

    def load(self):
        course = super().load()
        type(self).went_on_after = course.loop.events if course else 0
        return course

    def between(self, course):
        self._every = 3
        super().between(course)
        type(self).saves += 1
        if type(self).saves == type(self).dies_at:
            raise Killed


def small():
    return HeShare("trade-off", planner=Planner(Settings(generations=4, population=8)))


WORLDS = {
    "gangs": ("8xV100", lambda: venus(40, rng=np.random.default_rng(1), gpus=8, load=1.2)[0], lambda: make("fifo")),
    "clocks": ("T4,V100", lambda: draw(8, rng=np.random.default_rng(1), arrivals="poisson"), lambda: make("morak")),
    "plans": ("T4,V100", lambda: draw(8, rng=np.random.default_rng(1), arrivals="poisson"), small),
    "lots": ("T4,V100", lambda: draw(8, rng=np.random.default_rng(1), arrivals="poisson"), lambda: make("random")),
}


def go(world, path, record="full"):
    cluster, tasks, policy = WORLDS[world]
    return run(
        tasks(), Cluster.parse(cluster), policy(), predictor=DevicePredictor(), rng=np.random.default_rng(5),
        start_cost_s=2.0, record=record, checkpoint=path,
    )  # fmt: skip


def content(result):
    """A run to the last bit, apart from wall time."""
    times = [result.jct_s, result.waiting_s, result.gpu_energy_active_j, result.gpu_energy_cluster_j]
    summary = {key: value for key, value in result.summary().items() if key != "planning_s"}
    return pickle.dumps([*[each.tobytes() for each in times], result.device_energy_j.tobytes(), repr(summary)]), repr(
        result.record
    )


@pytest.mark.parametrize("record", ["full", "summary"])
@pytest.mark.parametrize("world", WORLDS)
def test_killed_and_resumed_it_ends_with_the_same_bytes(world, record, tmp_path, monkeypatch):
    whole = go(world, None, record)
    monkeypatch.setattr(runs, "Checkpoints", Killing)
    rng = np.random.default_rng(len(world))
    path = tmp_path / "run.checkpoint"
    for _ in range(3):
        Killing.saves, Killing.dies_at = 0, int(rng.integers(3, 12))
        with pytest.raises(Killed):
            go(world, path, record)
        assert path.exists()
    Killing.dies_at = 0
    assert content(go(world, path, record)) == content(whole)
    # It went on, and did not begin anew.
    assert Killing.went_on_after > 0
    assert not path.exists()


def test_streamed_timelines_go_on_too(tmp_path, monkeypatch):
    folders = [tmp_path / "whole", tmp_path / "resumed"]
    go("gangs", None, folders[0])
    monkeypatch.setattr(runs, "Checkpoints", Killing)
    for dies_at in (20, 9):
        Killing.saves, Killing.dies_at = 0, dies_at
        with pytest.raises(Killed):
            go("gangs", tmp_path / "c", folders[1])
    Killing.dies_at = 0
    go("gangs", tmp_path / "c", folders[1])
    for name in ("segments.csv", "intervals.csv"):
        whole, resumed = ((folder / name).read_bytes() for folder in folders)
        assert whole == resumed
        assert whole.count(b"\n") > 40


@pytest.mark.parametrize("name", policies(variants=True))
def test_every_policy_can_be_written_down(name):
    policy = make(name)
    policy.reset(Cluster.parse("T4,V100"), DevicePredictor(), np.random.default_rng(0))
    assert pickle.loads(pickle.dumps(policy)).name == policy.name


class Signals(checkpoints.Checkpoints):
    """Gets a signal in the middle of the tenth event."""

    count = 0

    def between(self, course):
        type(self).count += 1
        if type(self).count == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        super().between(course)


def test_a_signal_waits_for_the_event_and_is_saved(tmp_path, monkeypatch):
    whole = go("gangs", None)
    monkeypatch.setattr(runs, "Checkpoints", Signals)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match=r"SIGTERM; .* goes on from here"):
        go("gangs", tmp_path / "c")
    assert signal.getsignal(signal.SIGTERM) == before
    assert content(go("gangs", tmp_path / "c")) == content(whole)


def test_another_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "Checkpoints", Killing)
    Killing.saves, Killing.dies_at = 0, 5
    with pytest.raises(Killed):
        go("lots", tmp_path / "c")
    with pytest.raises(InputError, match="another run"):
        go("clocks", tmp_path / "c")
    with pytest.raises(InputError, match="another run"):
        go("lots", tmp_path / "c", record="summary")


@pytest.mark.parametrize("damage", [b"", b"no pickle", pickle.dumps("other")])
def test_a_damaged_file_is_named(damage, tmp_path):
    (tmp_path / "c").write_bytes(damage)
    with pytest.raises(InputError, match="checkpoint"):
        go("lots", tmp_path / "c")


def test_real_devices_have_a_journal_instead(tmp_path):
    gpu = toy_gpu()
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), "devices": [ToyDevice(gpu)]}
    with pytest.raises(InputError, match="in virtual time"):
        run(
            [Task(0, Workload("resnet18", 4), 1.0)], Cluster((gpu,)), make("fifo"),
            clock=WallClock(), checkpoint=tmp_path / "c", **options,
        )  # fmt: skip


def test_a_policy_of_a_local_function_cannot_be_written_down(tmp_path):
    gpu = toy_gpu()
    policy = Told(lambda event, view: [])
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), "devices": [ToyDevice(gpu)]}
    with pytest.raises(InputError, match="can be pickled"):
        run(
            [Task(0, Workload("resnet18", 4), 1.0)], Cluster((gpu,)), policy,
            checkpoint=tmp_path / "c", checkpoint_s=0.0, **options,
        )  # fmt: skip
