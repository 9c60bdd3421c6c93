"""GPUs, clusters, workloads and tasks: their notation, and the arguments that they refuse."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu, gpus
from heshare.world.cluster import Cluster
from heshare.world.task import Task, TaskSet
from heshare.world.workload import Resident, Workload, parse_resident


def test_cluster() -> None:
    """A cluster is read from its notation."""
    cluster = Cluster.parse(" 2xT4, V100 ,1xa100")
    assert [card.name for card in cluster.gpus] == ["T4", "T4", "V100", "A100"]
    assert str(cluster) == "2xT4,1xV100,1xA100"
    assert Cluster.parse(str(cluster)) == cluster
    assert cluster.labels == ("T4-0", "T4-1", "V100-0", "A100-0")
    assert len(cluster) == 4


@pytest.mark.parametrize("text", ["", " , ", "0xT4", "xT4", "4xT4;2xV100", "2xP100"])
def test_other_clusters(text: str) -> None:
    """Other text is no cluster."""
    with pytest.raises(InputError):
        Cluster.parse(text)


@pytest.mark.parametrize(
    ("text", "resident"),
    [
        ("resnet50:16@50", Resident(Workload("resnet50", 16), 50)),
        (" gpt2 ", Resident(Workload("gpt2", 1), 100)),
        ("vgg19@20", Resident(Workload("vgg19", 1), 20)),
        ("bert_large:8", Resident(Workload("bert_large", 8), 100)),
    ],
)
def test_resident(text: str, resident: Resident) -> None:
    """A resident is read from its notation."""
    assert parse_resident(text) == resident


@pytest.mark.parametrize("text", ["", "resnet50:", "resnet50:x", "resnet50:0", "resnet50:8@101", "a b", "a@5:1"])
def test_other_residents(text: str) -> None:
    """Other text is no resident."""
    with pytest.raises(InputError):
        parse_resident(text)


@pytest.mark.parametrize(("field", "value"), [("precision", "fp64"), ("engine", "jax"), ("batch_size", 0)])
def test_workload(field: str, value: object) -> None:
    """Workload refuses a bad field."""
    with pytest.raises(InputError) as caught:
        dataclasses.replace(Workload("vgg16", 4), **{field: value})
    assert caught.value.column == field


@pytest.mark.parametrize(
    ("iterations", "arrival_s", "column"),
    [
        (0.0, 0.0, "iterations"),
        (float("nan"), 0.0, "iterations"),
        (1.0, -1.0, "arrival_s"),
        (1.0, float("inf"), "arrival_s"),
    ],
)
def test_task(iterations: float, arrival_s: float, column: str) -> None:
    """Task refuses a bad field."""
    with pytest.raises(InputError) as caught:
        Task(3, Workload("vgg16", 4), iterations, arrival_s)
    assert caught.value.column == column
    assert "task 3" in str(caught.value)


def test_check_clock() -> None:
    """A clock off the grid is refused with the nearest ones."""
    card = gpu("T4")
    low, high = card.clocks_mhz[3:5]
    assert card.check_clock(low) == low
    with pytest.raises(InputError, match=f"The nearest are {low} and {high} MHz"):
        card.check_clock(low + 1)


@pytest.mark.parametrize("clocks_mhz", [(), (300, 300), (600, 300)])
def test_clock_grid(clocks_mhz: tuple[int, ...]) -> None:
    """A grid of clocks that does not ascend is refused."""
    with pytest.raises(InputError, match="clocks_mhz"):
        dataclasses.replace(gpu("T4"), clocks_mhz=clocks_mhz)


def test_cluster_text() -> None:
    """Cluster has a short text and a table of its GPUs."""
    cluster = Cluster.parse("40xT4,2xA100")
    assert "40xT4" in repr(cluster)
    assert len(repr(Cluster.parse(",".join(f"1000x{name}" for name in gpus())))) <= 200
    table = cluster.to_frame()
    assert table["gpu"].tolist() == list(cluster.labels)
    assert table["max_mhz"].iloc[-1] == gpu("A100").max_mhz
    assert cluster._repr_html_().count("<tr") <= 12


def test_task_set() -> None:
    """Task set is a tuple with a short text and a table."""
    tasks = tuple(Task(index, Workload("resnet50", 8), 100.0 + index, 2.0 * index) for index in range(30))
    found = TaskSet(tasks)
    assert found == tasks
    assert hash(found) == hash(tasks)
    assert "30 tasks" in repr(found)
    assert "at once" in repr(TaskSet(tasks[:1]))
    assert isinstance(found[:5], TaskSet)
    assert found[3] is tasks[3]
    assert type(pickle.loads(pickle.dumps(found))) is TaskSet
    table = found.to_frame()
    assert table["iterations"].tolist() == [task.iterations for task in tasks]
    assert found._repr_html_().count("<tr") <= 12
    assert "0 tasks" in repr(TaskSet())
