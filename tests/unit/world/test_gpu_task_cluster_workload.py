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


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (Cluster.parse, ["", " , ", "0xT4", "xT4", "4xT4;2xV100", "2xP100"]),
        (parse_resident, ["", "resnet50:", "resnet50:x", "resnet50:0", "resnet50:8@101", "a b", "a@5:1"]),
    ],
    ids=["cluster", "resident"],
)
def test_other_texts(parse, texts: list[str]) -> None:
    """Other text is no cluster, and no resident."""
    for text in texts:
        with pytest.raises(InputError):
            parse(text)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("precision", "fp64"),
        ("engine", "jax"),
        ("batch_size", 0),
        ("iterations", 0.0),
        ("iterations", float("nan")),
        ("arrival_s", -1.0),
        ("arrival_s", float("inf")),
    ],
)
def test_bad_field(column: str, value: object) -> None:
    """Workloads and tasks refuse a bad field."""
    task = Task(3, Workload("vgg16", 4), 1.0, 0.0)
    whole = task if hasattr(task, column) else task.workload
    with pytest.raises(InputError) as caught:
        dataclasses.replace(whole, **{column: value})
    assert caught.value.column == column


def test_check_clock() -> None:
    """A clock off the grid is refused with the nearest ones; so is a grid that does not ascend."""
    card = gpu("T4")
    low, high = card.clocks_mhz[3:5]
    assert card.check_clock(low) == low
    with pytest.raises(InputError, match=f"{low} and {high} MHz"):
        card.check_clock(low + 1)
    for clocks_mhz in ((), (300, 300), (600, 300)):
        with pytest.raises(InputError, match="clocks_mhz"):
            dataclasses.replace(card, clocks_mhz=clocks_mhz)


def test_cluster_text() -> None:
    """Cluster has a short text and a table of its GPUs."""
    cluster = Cluster.parse("40xT4,2xA100")
    assert len(repr(Cluster.parse(",".join(f"1000x{name}" for name in gpus())))) <= 200
    assert cluster.to_frame()["gpu"].tolist() == list(cluster.labels)
    assert cluster._repr_html_().count("<tr") <= 12


def test_task_set() -> None:
    """Task set is a tuple with a short text and a table."""
    tasks = tuple(Task(index, Workload("resnet50", 8), 100.0 + index, 2.0 * index) for index in range(30))
    found = TaskSet(tasks)
    assert found == tasks
    assert hash(found) == hash(tasks)
    assert type(found[:5]) is type(pickle.loads(pickle.dumps(found))) is TaskSet
    assert "30 tasks" in repr(found)
    assert "0 tasks" in repr(TaskSet())
    assert found.to_frame()["iterations"].tolist() == [task.iterations for task in tasks]
    assert found._repr_html_().count("<tr") <= 12
