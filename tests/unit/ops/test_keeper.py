"""The pauses before a watchdog that ended is started again, on a clock of their own."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from heshare.ops.executor import watchdog


def test_pauses_grow_until_a_watchdog_has_lived_long(monkeypatch):
    dog = object.__new__(watchdog.Watchdog)
    now_s, pauses_s, lives_s = [0.0], [], iter([0.0, 1.0, 1.0, 61.0, 1.0])

    def wait():
        life_s = next(lives_s, None)
        dog._dismissed = life_s is None
        now_s[0] += life_s or 0.0
        return 1

    process = SimpleNamespace(wait=wait, stdin=SimpleNamespace(close=lambda: None))
    parts = {"_turn": threading.Lock(), "_tell": lambda text: None, "_process": process, "_start": lambda: process}
    vars(dog).update(parts)
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=pauses_s.append))
    dog._replace()
    assert pauses_s == [0.2, 0.4, 0.8, 0.2, 0.4]
