"""GPUs of Slurm's nodes that jobs can share: one card for each type of gres on each node."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heshare.ops.slurm.slurm_queue import SlurmError, call
from heshare.shared.errors import InputError, require
from heshare.shared.yaml_nodes import read_nodes
from heshare.world import catalogue
from heshare.world.gpu import Gpu

SHARED_BY = ("shard", "mps")
"""Resources of Slurm by which jobs share a GPU; of a node with both the first is used.

By `mps` Slurm shares one GPU of a node at a time; by `shard` all. The share itself is set by the prolog.
"""
_WORD = re.compile(r"(?:^| )(NodeName|Gres|State|Partitions)=(\S*)")
_BAD_STATES = ("DOWN", "DRAIN", "FAIL", "INVAL", "NOT_RESPONDING", "UNKNOWN", "POWERED_DOWN", "POWERING_DOWN", "FUTURE")


@dataclass(frozen=True, slots=True)
class SlurmCard:
    """A GPU that Slurm lets jobs share.

    `kind` is its type in gres.conf, which no other card of the node has; `gpu` is what it is planned as. It is shared
    by the resource `gres`, `shard` or `mps`, of which there are `shares`, usually 100.
    """

    node: str
    kind: str
    gpu: Gpu
    gres: str
    shares: int
    partitions: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its place in comments, node/type."""
        return f"{self.node}/{self.kind}"


def read_types(path: Path) -> dict[str, str]:
    """Read a YAML file that maps types of gres.conf to GPUs of data/gpus.csv, such as `T4a: T4`.

    Raises:
        InputError: it is no such file, or names an unknown GPU.
    """
    expected = "GPUs by type of gres.conf, such as `T4a: T4`"
    types = {}
    for kind, node in read_nodes(path, expected, "Write one line a type.").mapping(None, expected).items():
        try:
            types[kind] = catalogue.gpu(node.text("a GPU")).name
        except InputError as error:
            node.refuse(error.found, error.expected, error.action)
    return types


def read_cards(types: Mapping[str, str]) -> tuple[tuple[SlurmCard, ...], tuple[str, ...]]:
    """Return the cards of all nodes that are up, and a line for each GPU or node that is left out.

    Types of gres.conf that `types` does not map are names of GPUs themselves.

    Raises:
        SlurmError: scontrol is missing or fails.
    """
    cards: list[SlurmCard] = []
    notes: list[str] = []
    for line in call(["scontrol", "show", "node", "--oneliner"]).splitlines():
        words = dict(_WORD.findall(line))
        if "gpu" not in words.get("Gres", ""):
            continue
        node = words["NodeName"]
        if any(bad in words["State"] for bad in _BAD_STATES):
            notes.append(f"Node {node} is {words['State']}: its GPUs are left out.")
            continue
        there, left_out = _node_cards(node, _counts(words["Gres"]), types, words.get("Partitions", ""))
        cards += there
        notes += left_out
    return tuple(sorted(cards, key=lambda card: (card.gpu.name, card.node, card.kind))), tuple(notes)


def _counts(gres: str) -> Counter[tuple[str, str]]:
    """Return the counts of `gpu:T4a:1(S:0),mps:T4a:100` by name and type."""
    counts: Counter[tuple[str, str]] = Counter()
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *kind, count = part.split(":") if ":" in part else (part, "1")
        if not count.isdecimal():
            raise SlurmError(f"scontrol show node: the gres {part!a} cannot be read.")
        counts[name, ":".join(kind)] += int(count)
    return counts


def _node_cards(
    node: str, counts: Counter[tuple[str, str]], types: Mapping[str, str], partitions: str
) -> tuple[list[SlurmCard], list[str]]:
    cards: list[SlurmCard] = []
    notes: list[str] = []
    for kind, gpus in [(kind, count) for (name, kind), count in counts.items() if name == "gpu"]:
        gres = next((name for name in SHARED_BY if counts[name, kind]), "")
        try:
            gpu = _gpu(types.get(kind, kind), kind, gpus, gres)
        except InputError as error:
            notes.append(f"GPU type {kind or '(none)'} of node {node} is left out: {error.action}")
        else:
            cards.append(SlurmCard(node, kind, gpu, gres, counts[gres, kind], tuple(partitions.split(","))))
    if sum(card.gres == "mps" for card in cards) > 1:
        notes.append(f"Slurm shares one GPU of node {node} at a time by gres mps; by gres shard it shares all of them.")
    return cards, notes


def _gpu(name: str, kind: str, gpus: int, gres: str) -> Gpu:
    """Return what a type of a node is planned as.

    Raises:
        InputError: it cannot be used; the action says why, and what to do.
    """
    expected = "one card a type, shared by gres shard or mps"
    require("gres", "no type", bool(kind), expected, "Slurm selects a card by its type; give each one a Type=.")
    own = f"{gpus} cards have it; give each card of a node a type of its own (T4a, T4b) in gres.conf."
    require("gres", f"{gpus} cards", gpus == 1, expected, own)
    share = f"it is not shared; add Name=shard Type={kind} Count=100 to gres.conf."
    require("gres", "no shares", bool(gres), expected, share)
    try:
        return catalogue.gpu(name)
    except InputError as error:
        action = f"no GPU of data/gpus.csv is called {name}; name it in the file of --types, such as {kind}: T4."
        raise InputError(error.found, error.expected, action, column="gres") from None
