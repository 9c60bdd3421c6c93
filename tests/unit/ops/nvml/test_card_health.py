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
    [(13, False), (31, False), (43, False), (45, False), (63, False), (94, False), (48, True), (64, True), (74, True),
     (79, True), (95, True), (109, True), (119, True), (140, True), (999, True)],
)  # fmt: skip
def test_read_tells_hardware_xids_from_those_of_applications(fake: FakeNvml, health, xid, drains) -> None:
    fake.event(xid)
    ((drained, text),) = health.read()
    assert drained is drains
    assert text.startswith(f"Xid {xid}")
    assert health.read() == ()


def test_read_returns_double_bit_errors_and_nothing_of_other_cards(fake: FakeNvml, health) -> None:
    fake.event(79, card=1)
    fake.event(0, kind=DOUBLE_BIT)
    fake.event(31)
    assert health.read() == ((True, "double-bit ECC error"), (False, card_health.xid_text(31)))


@pytest.mark.parametrize("events", [0, 1])
def test_read_watches_the_counters_from_now_on(fake: FakeNvml, monkeypatch, events) -> None:
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


def test_a_card_without_ecc_and_events_has_nothing_to_report(fake: FakeNvml) -> None:
    for function in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetSupportedEventTypes"):
        fake.fail(function, 3)
    with Nvml() as nvml:
        health = CardHealth(nvml.card(0))
        assert health.read() == ()
        health.close()
