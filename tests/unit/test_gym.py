"""The Gymnasium environment: rules, masks, rewards, and equality with a run of the same decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heshare as hs
from heshare.policies.policy import Policy, SetClock, Start, Traits
from heshare.prediction.oracle import DevicePredictor
from heshare.shared.errors import InputError
from heshare.world.catalogue import memory_mib, resident

CLUSTER = "1xT4,1xV100,1xA100"


def make(*arguments: Any, **how: Any) -> Any:
    pytest.importorskip("gymnasium")
    from heshare.gym import SchedulingEnv

    return SchedulingEnv(*arguments, predictor=DevicePredictor(), **how)


def play(env: Any, seed: int | None, choose: np.random.Generator) -> tuple[list[Any], float, Any]:
    """Play one episode with random valid actions; return what was seen, the sum of rewards, and the run."""
    observation, info = env.reset(seed=seed)
    seen, total, ended = [observation], 0.0, False
    while not ended:
        action = choose.choice(np.flatnonzero(info["action_mask"]))
        observation, reward, ended, truncated, info = env.step(action)
        assert observation in env.observation_space
        assert reward <= 0
        assert not truncated
        seen.append((action, observation, reward))
        total += reward
    return seen, total, info["run"]


@pytest.mark.parametrize("arrivals", ["at_once", "exponential"])
def test_env_checker(arrivals: str) -> None:
    """The checker of Gymnasium accepts the environment."""
    pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    check_env(make(6, arrivals=arrivals), skip_render_check=True)


def test_rewards() -> None:
    """The rewards of an episode are the energy and the JCTs of its run."""
    env = make(12, CLUSTER, arrivals="exponential", energy_weight=1e-6, time_weight=1e-3)
    for seed in range(4):
        _, total, run = play(env, seed, np.random.default_rng(seed))
        assert run.tasks == tuple(hs.task_set(12, seed=seed, arrivals="exponential"))
        assert total == pytest.approx(-(1e-6 * run.energy_cluster_j + 1e-3 * run.jct_s.sum()), rel=1e-12)
        assert run.energy_cluster_j == pytest.approx(run.device_energy_j.sum(), rel=1e-12)


def test_seeds() -> None:
    """The same seed and actions give the same episode; without a seed another one follows."""
    one, other = (play(make(8, CLUSTER), 5, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_equal(one[0], other[0])
    assert one[2] == other[2]
    env = make(8, CLUSTER)
    play(env, 5, np.random.default_rng(1))
    assert play(env, None, np.random.default_rng(1))[2].tasks == tuple(hs.task_set(8, seed=5, repetition=1))


class SameDecisions(Policy):
    """A policy: the first waiting task that fits goes to the first GPU with room, at 50 % and 0.8 of the top clock."""

    name = "agent"
    traits = Traits(frequency=True, multi_task=True, heterogeneous=False)
    gangs = False

    def decide(self, event: Any, view: Any) -> Any:
        held = [len(gpu.running) for gpu in view.gpus]
        free_mib = [gpu.free_mib for gpu in view.gpus]
        requested = [gpu.requested_mhz for gpu in view.gpus]
        for task in list(view.waiting)[:8]:
            needed_mib = memory_mib(task.workload)
            gpu = next((at for at in range(len(held)) if held[at] < 2 and needed_mib <= free_mib[at]), None)
            if gpu is not None:
                clocks, top = view.gpus[gpu].gpu.clocks_mhz, view.gpus[gpu].gpu.max_mhz
                wanted = max(mhz for mhz in clocks if mhz <= 0.8 * top)
                if requested[gpu] != wanted:
                    yield SetClock(gpu, wanted)
                yield Start(task.id, gpu, 50)
                requested[gpu], held[gpu], free_mib[gpu] = wanted, held[gpu] + 1, free_mib[gpu] - needed_mib
        for gpu, count in enumerate(held):
            if not count and requested[gpu] is not None:
                yield SetClock(gpu, None)


@pytest.mark.parametrize("arrivals", ["at_once", "exponential", "exponential@1.5"])
def test_same_decisions(arrivals: str) -> None:
    """An episode is the run of a policy with the same decisions."""
    env = make(14, CLUSTER, arrivals=arrivals)
    for seed in range(3):
        _, info = env.reset(seed=seed)
        ended, slot = False, 0
        while not ended:
            # The policy looks at each waiting task once, in order.
            starts = info["action_mask"][1:].reshape(env.shape)[slot:, :, 1, 1]
            places = np.argwhere(starts)
            action = 0
            if len(places):
                slot += int(places[0][0])
                action = 1 + int(np.ravel_multi_index((slot, places[0][1], 1, 1), env.shape))
            else:
                slot = 0
            _, _, ended, _, info = env.step(action)
        tasks = hs.task_set(14, seed=seed, arrivals=arrivals, cluster=CLUSTER)
        assert info["run"] == hs.run(tasks, CLUSTER, SameDecisions(), predictor=DevicePredictor())


def by_what_is_seen(observation: dict[str, Any], mask: Any) -> int:
    """An agent whose valid action depends on every number of its observation."""
    total = sum(float(np.dot(part.ravel(), np.arange(1.0, part.size + 1))) for part in observation.values())
    valid = np.flatnonzero(mask)
    return int(valid[round(1e4 * total) % len(valid)])


@pytest.mark.parametrize("arrivals", ["at_once", "exponential", "exponential@1.5"])
def test_as_policy(arrivals: str) -> None:
    """An agent as a policy sees and does what it does in the environment, in runs and comparisons."""
    env = make(12, CLUSTER, arrivals=arrivals)
    policy = env.as_policy(by_what_is_seen, name="mine")
    runs = []
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        while "run" not in info:
            observation, _, _, _, info = env.step(by_what_is_seen(observation, info["action_mask"]))
        tasks = hs.task_set(12, seed=seed, arrivals=arrivals, cluster=CLUSTER)
        alone = hs.run(tasks, CLUSTER, policy, predictor=DevicePredictor())
        assert alone.record == info["run"].record
        runs.append(alone)
    own = {"arrivals": arrivals, "seeds": 1, "predictor": DevicePredictor()}
    table = hs.compare(12, CLUSTER, [policy, "srtf"], **own)
    assert table["policy"].tolist() == ["mine", "srtf"]
    assert table["avg_jct_s"][0] == runs[0].avg_jct_s


def test_wrong_agent() -> None:
    """An agent of other arguments, actions outside of the space and another cluster are refused."""
    env = make(2, "1xT4")
    for agent in (3, lambda observation: 0):
        with pytest.raises(InputError, match="observation and the mask"):
            env.as_policy(agent)
    for answer in (10_000, -1, None, [1, 2]):
        with pytest.raises(InputError, match="agent: found"):
            hs.run(2, "1xT4", env.as_policy(lambda observation, mask, answer=answer: answer))
    with pytest.raises(InputError, match="1xT4, that of the agent"):
        hs.run(2, "1xA100", env.as_policy(by_what_is_seen))


def test_invalid_action() -> None:
    """An action that is not valid counts as the first valid one."""
    env = make(1, "1xT4", percentages=[30], clocks=[None])
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [0, 1, *[0] * 7]
    assert env.step(0)[1] == 0.0  # starts, since waiting would never end
    _, reward, ended, _, info = env.step(5)  # waits
    assert ended
    assert reward < 0
    assert info["run"].intervals["mps_pct"].tolist() == [30]
    from gymnasium.error import ResetNeeded

    with pytest.raises(ResetNeeded):
        env.step(0)


def test_mask() -> None:
    """The mask of actions respects memory and free places."""
    large = hs.Task(0, resident("resnet152:256").workload, 10.0)
    env = make([large, *(hs.Task(n, large.workload, 10.0) for n in (1, 2))], "1xT4,1xA100", most=3)
    _, info = env.reset(seed=0)
    starts = info["action_mask"][1:].reshape(env.shape)
    on_t4 = memory_mib(large.workload) <= hs.Cluster.parse("1xT4").gpus[0].memory_mib
    assert starts.any(axis=(0, 2, 3)).tolist() == [on_t4, True]
    assert not starts[3:].any()


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({"percentages": (0, 50)}, "percentages"),
        ({"percentages": ()}, "percentages"),
        ({"clocks": (1.2,)}, "clocks"),
        ({"slots": 0}, "slots"),
        ({"most": 0}, "most"),
        ({"tasks": [hs.Task(0, hs.Workload("resnet50", 8), 10.0, gpus=2)]}, "gpus"),
        ({"tasks": [hs.Task(0, hs.Workload("resnet152", 2048), 10.0)]}, "can hold"),
        ({}, "Discrete"),
    ],
)
def test_wrong_use(how: dict[str, Any], found: str) -> None:
    """Wrong arguments, gangs, tasks that no GPU can hold, and actions outside of the space are refused."""

    def step() -> None:
        env = make(**{"tasks": 2, "cluster": "1xT4", **how})
        env.reset(seed=0)
        env.step(10_000)

    with pytest.raises(InputError, match=found):
        step()
