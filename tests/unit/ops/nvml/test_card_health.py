"""`CardHealth`: Xid events, ECC events and counters of a card, and which of them drain it."""

from __future__ import annotations

import pytest
from support.fakenvml import DOUBLE_BIT, FakeNvml

from heshare.ops.nvml import card_health
from heshare.ops.nvml.binding import Nvml
from heshare.ops.nvml.card_health import CardHealth


@pytest.fixture
def health(fake: FakeNvml):
    fake.set("count", 2)
    with Nvml() as nvml:
        one = CardHealth(nvml.card(0))
        yield one
        one.close()
        assert fake.get("event_sets") == 0


@pytest.mark.parametrize(
    ("xid", "drains"),
    [(13, False), (31, False), (63, False), (48, True), (79, True), (999, True)],
)
def test_xids(fake: FakeNvml, health, xid, drains) -> None:
    """Xids of the hardware drain a card, those of applications do not."""
    fake.event(xid)
    ((drained, text),) = health.read()
    assert drained is drains
    assert text.startswith(f"Xid {xid}")
    assert health.read() == ()


def test_own_events(fake: FakeNvml, health) -> None:
    """Only events of the own card are read."""
    fake.event(79, card=1)
    fake.event(0, kind=DOUBLE_BIT)
    fake.event(31)
    assert health.read() == ((True, "double-bit ECC error"), (False, card_health.xid_text(31)))


@pytest.mark.parametrize("events", [0, 1])
def test_counters(fake: FakeNvml, monkeypatch, events) -> None:
    """Counters of ECC errors and remapped rows are watched from the beginning on."""
    monkeypatch.setattr(card_health, "COUNTERS_S", 0.0)
    fake.set("events", events)
    fake.set("uncorrected", 7)
    with Nvml() as nvml:
        health = CardHealth(nvml.card(0))
        assert health.read() == ()
        fake.set("uncorrected", 9)
        assert health.read() == ((True, "2 uncorrected ECC errors"),)
        fake.set("remap_failed", 1)
        assert health.read() == ((True, "a memory row could not be remapped"),)
        assert health.read() == ()
        health.close()


def test_unsupported(fake: FakeNvml) -> None:
    """A card without ECC and events has nothing to report."""
    for function in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetSupportedEventTypes"):
        fake.fail(function, 3)
    with Nvml() as nvml:
        health = CardHealth(nvml.card(0))
        assert health.read() == ()
        health.close()
