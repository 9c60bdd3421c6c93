"""Survey of this machine's cards (unusable ones with the reason, processes on them), and the choice of some."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heshare.ops.nvml.binding import NoSuchGpuError, NvmlError
from heshare.ops.nvml.card_reader import survey_cards
from heshare.shared.errors import InputError

CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
_LISTS = "`heshare doctor` lists the GPUs of this machine."
_COLUMN = CUDA_VARIABLE


@dataclass(frozen=True)
class SurveyedCard:
    """A card found by a survey.

    The index is that of `nvidia-smi`; `uuid` is empty if the card does not respond. `obstacle` is the reason why it is
    unusable for jobs, else empty; `processes` are the CUDA processes on it, each with its memory, MiB.
    """

    index: int
    uuid: str
    obstacle: str = ""
    processes: tuple[tuple[int, float], ...] = ()

    @property
    def use(self) -> str:
        shown = [f"{pid} ({_name(pid)}, {mib:.0f} MiB)" for pid, mib in self.processes]
        return f"processes of others run on it: {', '.join(shown)}" if shown else ""


def survey() -> tuple[SurveyedCard, ...]:
    return tuple(SurveyedCard(*row) for row in survey_cards())


def visible(cards: Sequence[SurveyedCard], text: str | None) -> tuple[SurveyedCard, ...]:
    """Return the cards visible to `CUDA_VISIBLE_DEVICES`, in its order; all of them if it is not set (None).

    Its indices are taken as those of `nvidia-smi`, as Slurm and containers set them.
    """
    if text is None:
        return tuple(cards)
    if text.strip() in ("", "-1", "NoDevFiles"):
        return ()
    chosen = [_visible_card(cards, name.strip(), text) for name in text.split(",")]
    if len(set(chosen)) < len(chosen):
        raise InputError(repr(text), "each GPU once", _LISTS, column=_COLUMN)
    return tuple(chosen)


def _visible_card(cards: Sequence[SurveyedCard], name: str, text: str) -> SurveyedCard:
    if name.startswith("MIG"):
        raise InputError(f"the MIG slice {name}", "whole GPUs", "Turn MIG off, or choose other GPUs.", column=_COLUMN)
    if name.isdecimal():
        fitting = [card for card in cards if str(card.index) == name]
    else:
        fitting = [card for card in cards if name.startswith("GPU-") and card.uuid.startswith(name)]
    if len(fitting) != 1:
        found = f"{name!r} in {text!r}, which names {'several GPUs' if fitting else 'no GPU here'}"
        raise InputError(found, "indices or UUIDs of GPUs, with commas between them", _LISTS, column=_COLUMN)
    return fitting[0]


@dataclass(frozen=True)
class ChosenGpus:
    """The GPUs chosen by a text such as `nvml` or `nvml:0,nvml:2`, and the reasons why others are left out."""

    uuids: tuple[str, ...]
    left_out: tuple[str, ...]
    cards: tuple[SurveyedCard, ...]


def choose(cards: Sequence[SurveyedCard], text: str, variable: str | None) -> ChosenGpus:
    """Return the GPUs that a text names: `nvml` for all usable ones, or `nvml:INDEX` and `nvml:UUID`."""
    names = [part.strip() for part in text.split(",")]
    seen = visible(cards, variable)

    if names == ["nvml"]:
        usable = [card for card in seen if not card.obstacle]
        left_out = [
            f"GPU {card.index} {card.uuid}".rstrip() + f" is left out: {card.obstacle}"
            for card in seen
            if card.obstacle
        ]
        if not usable and left_out:
            raise NvmlError("; ".join(left_out) + ". There is no other GPU.")
        found = "" if usable else "no GPU" + (f" in {_COLUMN}={variable}" if cards else "")
        chosen = usable
    elif all(name.startswith("nvml:") and name != "nvml:" for name in names):
        chosen, left_out = [_named_card(cards, name.removeprefix("nvml:")) for name in names], []
        hidden = [
            f"{name}, which {_COLUMN}={variable} hides"
            for name, card in zip(names, chosen, strict=True)
            if card not in seen
        ]
        found = hidden[0] if hidden else "a GPU twice" if len(set(chosen)) < len(chosen) else ""
    else:
        chosen, left_out, found = [], [], repr(text)

    if found:
        expected = "nvml for every GPU, or nvml:INDEX or nvml:UUID, each once, with commas between them"
        raise InputError(found, expected, _LISTS, column="--devices")
    return ChosenGpus(tuple(card.uuid for card in chosen), tuple(left_out), tuple(cards))


def _named_card(cards: Sequence[SurveyedCard], key: str) -> SurveyedCard:
    for card in cards:
        if key in (str(card.index), card.uuid):
            if not card.uuid:
                raise NvmlError(card.obstacle)
            return card
    raise NoSuchGpuError(f"GPU {key}: not found. {_LISTS}")


def hidden(cards: Sequence[SurveyedCard], variable: str | None) -> frozenset[str]:
    """Return the UUIDs of the cards that `CUDA_VISIBLE_DEVICES` hides."""
    return frozenset(card.uuid for card in cards if card.uuid) - {card.uuid for card in visible(cards, variable)}


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return "?"
