"""`CardHealth`: Xid events, ECC events and counters of a card, and which of them drain it."""

from __future__ import annotations

import pytest
from support.fakenvml import DOUBLE_BIT, FakeNvml

from heshare.ops.nvml import card_health
from heshare.ops.nvml.binding import Nvml
from heshare.ops.nvml.card_health import CardHealth


@pytest.fixture
def opened(fake: FakeNvml):
    """A function that begins to watch the first of two cards; nothing is left open at the end."""
    fake.set("count", 2)
    made = []
    with Nvml() as nvml:

        def watch() -> CardHealth:
            made.append(CardHealth(nvml.card(0)))
            return made[-1]

        yield watch
        for health in made:
            health.close()
        assert fake.get("event_sets") == 0


@pytest.mark.parametrize(
    ("xid", "drains"),
    [(13, False), (31, False), (63, False), (48, True), (79, True), (999, True)],
)
def test_xids(fake: FakeNvml, opened, xid, drains) -> None:
    """Xids of the hardware drain a card, those of applications do not; events of other cards are not read."""
    health = opened()
    fake.event(79, card=1)
    fake.event(xid)
    fake.event(0, kind=DOUBLE_BIT)
    assert health.read() == ((drains, card_health.xid_text(xid)), (True, "double-bit ECC error"))
    assert health.read() == ()


@pytest.mark.parametrize("events", [0, 1])
def test_counters(fake: FakeNvml, opened, monkeypatch, events) -> None:
    """Counters of ECC errors and remapped rows are watched from the beginning on."""
    monkeypatch.setattr(card_health, "COUNTERS_S", 0.0)
    fake.set("events", events)
    fake.set("uncorrected", 7)
    health = opened()
    assert health.read() == ()
    fake.set("uncorrected", 9)
    assert health.read() == ((True, "2 uncorrected ECC errors"),)
    fake.set("remap_failed", 1)
    assert health.read() == ((True, "a memory row could not be remapped"),)
    assert health.read() == ()


def test_unsupported(fake: FakeNvml, opened) -> None:
    """A card without ECC and events has nothing to report."""
    for function in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetSupportedEventTypes"):
        fake.fail(function, 3)
    assert opened().read() == ()
