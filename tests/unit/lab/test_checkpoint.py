"""Checkpoints: a run that is interrupted anywhere continues and ends with the same bytes."""

import os
import pickle
import signal

import numpy as np
import pytest

from heshare.devices.task_sizes import draw
from heshare.lab import checkpoint
from heshare.lab.checkpoint import run_with_checkpoint
from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.policies.cached_planner import CachedPlanner
from heshare.policies.heshare import HeShare
from heshare.policies.registry import make, policies
from heshare.prediction.oracle import DevicePredictor
from heshare.scheduling.settings import Settings
from heshare.shared.errors import InputError
from heshare.testing.toy import ScriptedPolicy, ToyDevice, ToyPredictor, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


class Killed(BaseException):
    pass


class KillingCheckpoints(checkpoint.Checkpoints):
    """Saves every few events, and kills the run at one of them."""

    killed_at = 0
    events = loaded_events = 0

    def load(self):
        state = super().load()
        type(self).loaded_events = state.loop.events if state else 0
        return state

    def after_event(self, state):
        self._every = 3
        super().after_event(state)
        type(self).events += 1
        if type(self).events == type(self).killed_at:
            raise Killed


def small_heshare():
    return HeShare("trade-off", planner=CachedPlanner(Settings(generations=4, population=8)))


SCENARIOS = {
    "gangs": (
        "8xV100",
        lambda: venus_tasks(40, rng=np.random.default_rng(1), gpus=8, load=1.2)[0],
        lambda: make("fifo"),
    ),
    "clocks": ("T4,V100", lambda: draw(8, rng=np.random.default_rng(1), arrivals="poisson"), lambda: make("morak")),
    "plans": ("T4,V100", lambda: draw(8, rng=np.random.default_rng(1), arrivals="poisson"), small_heshare),
    "marginal": (
        "4xT4,8xV100",
        lambda: venus_tasks(40, rng=np.random.default_rng(1), gpus=8, load=1.2)[0],
        lambda: make("marginal"),
    ),
    "lots": ("T4,V100", lambda: draw(8, rng=np.random.default_rng(1), arrivals="poisson"), lambda: make("random")),
}


def run_scenario(scenario, path):
    cluster, tasks, policy = SCENARIOS[scenario]
    return run_with_checkpoint(
        tasks(), Cluster.parse(cluster), policy(), predictor=DevicePredictor(), rng=np.random.default_rng(5),
        start_cost_s=2.0, checkpoint=path,
    )  # fmt: skip


def content(result):
    """Return a run to the last bit, without wall time."""
    times = [result.jct_s, result.waiting_s, result.gpu_energy_active_j, result.gpu_energy_cluster_j]
    summary = {key: value for key, value in result.summary().items() if key != "planning_s"}
    return pickle.dumps([*[time.tobytes() for time in times], result.device_energy_j.tobytes(), repr(summary)]), repr(
        result.record
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_run_continues_after_a_kill_and_ends_with_the_same_bytes(scenario, tmp_path, monkeypatch):
    whole = run_scenario(scenario, None)
    monkeypatch.setattr(checkpoint, "Checkpoints", KillingCheckpoints)
    rng = np.random.default_rng(len(scenario))
    path = tmp_path / "run.checkpoint"
    for _ in range(3):
        KillingCheckpoints.events, KillingCheckpoints.killed_at = 0, int(rng.integers(3, 12))
        with pytest.raises(Killed):
            run_scenario(scenario, path)
        assert path.exists()
    KillingCheckpoints.killed_at = 0
    assert content(run_scenario(scenario, path)) == content(whole)
    # It continued from a checkpoint and did not begin again.
    assert KillingCheckpoints.loaded_events > 0
    assert not path.exists()


@pytest.mark.parametrize("name", policies(variants=True))
def test_every_policy_can_be_pickled(name):
    policy = make(name)
    policy.reset(Cluster.parse("T4,V100"), DevicePredictor(), np.random.default_rng(0))
    assert pickle.loads(pickle.dumps(policy)).name == policy.name


class SignallingCheckpoints(checkpoint.Checkpoints):
    """Sends a signal after the tenth event."""

    count = 0

    def after_event(self, state):
        type(self).count += 1
        if type(self).count == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        super().after_event(state)


def test_a_run_writes_a_checkpoint_when_a_signal_ends_it(tmp_path, monkeypatch):
    whole = run_scenario("gangs", None)
    monkeypatch.setattr(checkpoint, "Checkpoints", SignallingCheckpoints)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match=r"SIGTERM; .* continues from here"):
        run_scenario("gangs", tmp_path / "c")
    assert signal.getsignal(signal.SIGTERM) == before
    assert content(run_scenario("gangs", tmp_path / "c")) == content(whole)


def test_a_run_refuses_a_checkpoint_of_another_run(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "Checkpoints", KillingCheckpoints)
    KillingCheckpoints.events, KillingCheckpoints.killed_at = 0, 5
    with pytest.raises(Killed):
        run_scenario("lots", tmp_path / "c")
    with pytest.raises(InputError, match="another run"):
        run_scenario("clocks", tmp_path / "c")


@pytest.mark.parametrize("damage", [b"", b"no pickle", pickle.dumps("other")])
def test_a_run_refuses_a_damaged_checkpoint(damage, tmp_path):
    (tmp_path / "c").write_bytes(damage)
    with pytest.raises(InputError, match="checkpoint"):
        run_scenario("lots", tmp_path / "c")


def test_a_run_refuses_a_policy_that_cannot_be_pickled(tmp_path):
    gpu = toy_gpu()
    policy = ScriptedPolicy(lambda event, view: [])
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), "devices": [ToyDevice(gpu)]}
    with pytest.raises(InputError, match="can be pickled"):
        run_with_checkpoint(
            [Task(0, Workload("resnet18", 4), 1.0)], Cluster((gpu,)), policy,
            checkpoint=tmp_path / "c", checkpoint_s=0.0, **options,
        )  # fmt: skip


class Evil:
    def __reduce__(self):
        return os.mkdir, (os.environ["HESHARE_TEST_EVIL"],)


def interrupted(folder):
    """Return the checkpoint of a run that was killed after five events."""
    KillingCheckpoints.events, KillingCheckpoints.killed_at = 0, 5
    with pytest.raises(Killed):
        run_scenario("lots", folder / "c")
    return folder / "c"


@pytest.mark.parametrize(
    ("what", "mode", "found"),
    [("file", 0o666, "the file"), ("file", 0o620, "the file"), ("folder", 0o777, "its folder")],
)
def test_a_run_refuses_a_checkpoint_that_others_can_have_written(what, mode, found, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "Checkpoints", KillingCheckpoints)
    path = interrupted(tmp_path)
    (path if what == "file" else tmp_path).chmod(mode)
    with pytest.raises(InputError, match=rf"others can have written \({found} of the user .*mode {mode:o}"):
        run_scenario("lots", path)
    assert path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_run_refuses_a_checkpoint_of_another_user(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "Checkpoints", KillingCheckpoints)
    path = interrupted(tmp_path)
    os.chown(path, 12345, 12345)
    with pytest.raises(InputError, match=r"others can have written .*the file of the user 12345"):
        run_scenario("lots", path)


def test_a_run_unpickles_nothing_of_a_checkpoint_of_another_run_or_a_damaged_one(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "Checkpoints", KillingCheckpoints)
    monkeypatch.setenv("HESHARE_TEST_EVIL", str(tmp_path / "made"))
    path = interrupted(tmp_path)
    header, _, _ = path.read_bytes().partition(b"\n")
    for content in (pickle.dumps(Evil()), header + b"\n" + pickle.dumps(Evil())):
        path.write_bytes(content)
        with pytest.raises(InputError, match="checkpoint"):
            run_scenario("lots", path)
    assert not (tmp_path / "made").exists()


def test_a_run_refuses_a_pipe_as_checkpoint_at_once(tmp_path):
    os.mkfifo(tmp_path / "c")
    with pytest.raises(OSError, match="not a file"):
        run_scenario("lots", tmp_path / "c")
