"""FIKIT in a cluster: when and in which class tasks start, by hand; and JCTs of urgent tasks on emulated GPUs."""

from support.policy_runs import run_on_toys

from heshare.lab.systems.fikit.policy import Fikit
from heshare.testing.toy import toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
WORK = Workload("resnet18", 4)


class Noted(Fikit):
    """Notes the class in which each task was started."""

    def reset(self, cluster, predictor, rng):
        super().reset(cluster, predictor, rng)
        self.sharing = {}

    def decide(self, event, view):
        for action in super().decide(event, view):
            self.sharing[action.task] = action.sharing
            yield action


def go(tasks, policy=None, gpus=1, gpu=GPU):
    policy = policy or Noted()
    found = run_on_toys(tasks, policy, (gpu,) * gpus)
    return {each.task: (each.start_s, each.end_s, policy.sharing[each.task]) for each in found.record.intervals}


def test_first_fifth():
    """FIKIT takes the first fifth as urgent and runs one task of a class, or as many as it may."""
    # On the toy card n tasks take turns. Task 0 is the urgent one of four; 1 runs beside it, 2 and 3 follow 1.
    found = go([Task(at, WORK, 10.0) for at in range(4)])
    assert found[0] == (0.0, 20.0, "priority-0")
    assert found[1] == (0.0, 20.0, "priority-1")
    assert found[2] == (20.0, 30.0, "priority-1")
    assert found[3] == (30.0, 40.0, "priority-1")

    several = go([Task(at, WORK, 10.0) for at in range(4)], Noted(each=2))
    assert [several[at][0] for at in range(3)] == [0.0, 0.0, 0.0]
    assert several[3][0] > 0.0


def test_given_classes():
    """FIKIT keeps the classes that tasks have."""
    tasks = [Task(0, WORK, 10.0, priority=3), Task(1, WORK, 10.0, priority=12), Task(2, WORK, 10.0, 5.0, priority=0)]
    found = go(tasks)
    assert [found[at][2] for at in range(3)] == ["priority-3", "priority-9", "priority-0"]
    assert found[2][0] == 5.0, "an urgent newcomer starts at once beside the others"


def test_memory():
    """FIKIT lets no task overtake one that waits for memory."""
    # 623 and 1542 MiB do not fit together into 2000: the urgent one waits, and so does who comes behind it.
    small = toy_gpu(memory_mib=2000.0)
    large = Workload("vgg19", 8)
    tasks = [Task(0, WORK, 10.0, priority=1), Task(1, large, 10.0, 1.0), Task(2, WORK, 10.0, 2.0, priority=2)]
    found = go(tasks, gpu=small)
    assert found[1][0] == found[0][1]
    assert found[2][0] >= found[1][0]


def test_gang():
    """FIKIT starts a gang on all its GPUs in its class."""
    tasks = [Task(0, WORK, 10.0, gpus=2, priority=1), Task(1, WORK, 4.0, gpus=3, priority=1), Task(2, WORK, 4.0)]
    found = go(tasks, gpus=3)
    assert found[1][0] == found[0][1], "it needs a card that the first gang has"
    assert found[2][0] == 0.0
    assert all(how == "priority-1" for task, (_, _, how) in found.items() if task < 2)
