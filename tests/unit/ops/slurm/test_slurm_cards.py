"""GPUs of Slurm's nodes: types, shares, and what is left out."""

from pathlib import Path

import pytest
from support.fake_slurm import NODE, FakeSlurm

from heshare.ops.slurm.slurm_cards import read_cards, read_types
from heshare.shared.errors import InputError

TYPES = {"T4a": "T4", "V100a": "V100"}


def test_each_type_of_a_node_is_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSlurm(monkeypatch, NODE, "NodeName=node2 Gres=gpu:a100:1,mps:a100:200 State=MIXED+PLANNED Partitions=all")
    cards, notes = read_cards(TYPES)
    found = [(card.key, card.gpu.name, card.gres, card.shares, card.partitions) for card in cards]
    assert found == [
        ("node2/a100", "A100", "mps", 200, ("all",)),
        ("node1/T4a", "T4", "shard", 100, ("gpu", "all")),
        ("node1/V100a", "V100", "shard", 100, ("gpu", "all")),
    ]
    assert not notes


@pytest.mark.parametrize(
    ("gres", "state", "note"),
    [
        ("gpu:T4:2,shard:T4:200", "IDLE", "2 cards have it"),
        ("gpu:T4:1", "IDLE", "it is not shared; add Name=shard Type=T4 Count=100"),
        ("gpu:T9:1,shard:T9:100", "IDLE", "no GPU of data/gpus.csv is called T9"),
        ("gpu:1,shard:100", "IDLE", "give each one a Type="),
        ("gpu:T4:1,shard:T4:100", "IDLE+DRAIN", "is IDLE+DRAIN: its GPUs are left out"),
        ("gpu:T4:1,gpu:V100:1,mps:T4:100,mps:V100:100", "IDLE", "one GPU of node n at a time by gres mps"),
    ],
)
def test_what_cannot_be_shared_is_left_out_with_a_line(
    gres: str, state: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSlurm(monkeypatch, f"NodeName=n Gres={gres} State={state} Partitions=gpu", "NodeName=m Gres=(null) State=IDLE")
    cards, notes = read_cards({})
    assert len(cards) == (2 if "mps" in gres else 0)
    assert len(notes) == 1
    assert note in notes[0]


def test_types_are_read_from_yaml(tmp_path: Path) -> None:
    file = tmp_path / "types.yaml"
    file.write_text("T4a: t4\nV100a: V100\n")
    assert read_types(file) == TYPES
    file.write_text("T4a: T44\n")
    with pytest.raises(InputError, match=r"row 1, column T4a: found 'T44'"):
        read_types(file)
