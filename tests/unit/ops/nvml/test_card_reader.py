"""`CardReader`: the cards in a child process, over the stand-in library, whose calls block, fail or end the process."""

from __future__ import annotations

import errno
import os
import signal
import threading

import pytest
from support.waiting import until

from heshare.ops.nvml import card_reader
from heshare.ops.nvml.binding import GpuLostError, NoReplyError, NoSuchGpuError, NotSupportedError, Nvml, NvmlGpu
from heshare.ops.nvml.card_reader import FIRST, CardReader, survey_cards
from heshare.ops.nvml.reader_process import METHODS, value_of
from heshare.shared.processes import is_running
from heshare.shared.signals import Interrupted, InterruptHandler, handling

UUID = "GPU-00000000-1111-2222-3333-444444444444"
OTHER = UUID[:-1] + "5"
TEMPERATURE = "nvmlDeviceGetTemperature"
HOT = (("temperature_c",), ("sm_mhz",))


@pytest.fixture
def reader(doubles):
    with CardReader(60.0) as one:
        one.card(UUID).uuid()
        yield one
    doubles.fake.fail(TEMPERATURE, 0)


@pytest.fixture
def gpu(reader):
    return reader.card(UUID)


def child(reader):
    return reader._process.pid


def answered(card, calls):
    """Poll until the answers are here."""
    answers = []
    assert until(lambda: answers or answers.extend(card.poll(calls) or ()) or answers)
    return [value_of(answer) for answer in answers]


def test_methods(doubles, gpu) -> None:
    """A card has every method of `NvmlGpu`, with its values, called in the reader's process."""
    public = {name for name in vars(NvmlGpu) if not name.startswith("_")} - {"call", "obstacle"}
    assert public <= set(METHODS)
    with Nvml() as nvml:
        plain = nvml.card(UUID)
        for name in sorted(public - {"energy_j", "lock_clock", "unlock_clock"}):
            assert getattr(gpu, name)() == getattr(plain, name)(), name
    gpu.lock_clock(1200)
    assert doubles.fake.get("locked_mhz") == 1200
    gpu.unlock_clock()
    assert doubles.fake.get("locked_mhz") == 0


def test_errors(doubles, gpu, reader) -> None:
    """Errors in the process are raised by their classes; a lost card is not asked again within one poll."""
    doubles.fake.fail(TEMPERATURE, 3)
    doubles.fake.fail("nvmlDeviceGetTemperatureV", 3)
    with pytest.raises(NotSupportedError, match="NVML code 3"):
        gpu.temperature_c()
    doubles.fake.set("lost", 1, card=0)
    with pytest.raises(GpuLostError):
        gpu.power_limit_w()
    calls = doubles.fake.called("nvmlDeviceGetClockInfo")
    answers = gpu.poll((("power_limit_w",), ("sm_mhz",), ("sm_mhz",)), wait_s=60.0)
    assert [answer[0] for answer in answers] == ["GpuLostError"] * 3
    assert doubles.fake.called("nvmlDeviceGetClockInfo") == calls
    doubles.fake.set("lost", 0, card=0)
    with pytest.raises(NoSuchGpuError):
        reader.card("GPU-none").name()


def test_hanging_call(doubles, gpu, reader) -> None:
    """A call that hangs ends at its deadline; the process is replaced, and other calls work."""
    first = child(reader)
    doubles.fake.block(TEMPERATURE)
    reader._deadline_s = 0.5
    with pytest.raises(NoReplyError, match="temperature_c"):
        gpu.temperature_c()
    assert gpu.silent_s > 0
    reader._deadline_s = 60.0
    assert gpu.sm_mhz() == 1980
    assert gpu.silent_s == 0
    assert child(reader) != first
    assert until(lambda: not is_running(first))


def test_other_cards(doubles, gpu, reader) -> None:
    """A card that hangs stops neither readings nor calls of another one."""
    first, other = child(reader), reader.card(OTHER)
    doubles.fake.block(TEMPERATURE, card=0)
    assert gpu.poll(HOT, wait_s=0.0) is None
    assert answered(other, HOT) == [41.0, 1980.0]
    assert other.temperature_c() == 41.0
    assert (gpu.poll(HOT), other.silent_s, child(reader)) == (None, 0.0, first)

    # What the other card was asked is asked again in a new process.
    doubles.fake.block(TEMPERATURE)
    assert other.poll(HOT, wait_s=0.0) is None
    reader._deadline_s = 0.5
    with pytest.raises(NoReplyError):
        gpu.temperature_c()
    reader._deadline_s = 60.0
    doubles.fake.fail(TEMPERATURE, 0)
    assert answered(other, HOT) == answered(gpu, HOT) == [41.0, 1980.0]
    assert (other.silent_s, child(reader) != first) == (0.0, True)


@pytest.mark.slow
def test_growing_pauses(doubles, gpu, reader, monkeypatch):
    """A card that hangs is asked again after growing pauses, each time by a new process, until it replies."""
    monkeypatch.setattr(card_reader, "_PAUSES_S", (0.1, 0.3))
    reader._deadline_s = 0.5
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll(HOT, wait_s=0.05) is None
    children = set()

    def third_try():
        assert gpu.poll(HOT) is None
        children.update(set() if reader._process is None else {child(reader)})
        return len(children) == 3

    assert until(third_try)
    assert gpu.silent_s > 0.4
    reader._deadline_s = 60.0
    doubles.fake.fail(TEMPERATURE, 0)
    assert answered(gpu, HOT) == [41.0, 1980.0]
    assert gpu.silent_s == 0


def test_late_reading(doubles, gpu, reader) -> None:
    """A late reading is kept for the next poll: it may hold events, which no later one has."""
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll((("temperature_c",),), wait_s=0.0) is None
    reader._deadline_s = 5.0  # of which half is for the reading
    gpu.unlock_clock()  # in a new process: the old one hangs
    reader._deadline_s = 60.0
    doubles.fake.fail(TEMPERATURE, 0)
    assert gpu.poll((("temperature_c",),), wait_s=60.0) is not None
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll((("temperature_c",),), wait_s=0.0) is None
    threading.Timer(0.05, doubles.fake.fail, (TEMPERATURE, 0)).start()
    assert gpu.sm_mhz() == 1980
    assert [value_of(answer) for answer in gpu.poll((("sm_mhz",),))] == [41.0]


def test_first_call(doubles) -> None:
    """The first call to a card may take longer: the driver may have to load."""
    doubles.fake.block(TEMPERATURE)
    with CardReader(0.2) as reader:
        gpu = reader.card(UUID)
        with pytest.raises(NoReplyError, match=f"{FIRST * 0.2:g} s"):
            gpu.temperature_c()
        doubles.fake.fail(TEMPERATURE, 0)
        reader._deadline_s = 60.0
        assert gpu.temperature_c() == 41.0
        reader._deadline_s = 0.2
        doubles.fake.block(TEMPERATURE)
        with pytest.raises(NoReplyError, match=r"0\.2 s"):
            gpu.temperature_c()
        doubles.fake.fail(TEMPERATURE, 0)


def test_signal(doubles, gpu, reader) -> None:
    """A signal ends the wait for a call that hangs."""
    doubles.fake.block(TEMPERATURE)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Interrupted), handling(InterruptHandler()):
        gpu.temperature_c()


def test_killed(doubles, gpu, reader) -> None:
    """A killed process is replaced, and `close` ends the new one, although it hangs."""
    os.kill(child(reader), signal.SIGKILL)
    with pytest.raises(NoReplyError):
        gpu.sm_mhz()
    assert gpu.sm_mhz() == 1980
    last = child(reader)
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll(HOT, wait_s=0.0) is None
    for _ in range(2):
        reader.close()
    assert until(lambda: not is_running(last))


def test_no_descriptors(gpu, reader, monkeypatch) -> None:
    """Where no process can be started a card is silent, until it can."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    reader.close()
    with monkeypatch.context() as patch:
        patch.setattr("socket.socketpair", refuse)
        with pytest.raises(NoReplyError):
            gpu.uuid()
    assert gpu.uuid() == UUID


def test_survey(doubles) -> None:
    """A survey lists every card and what hinders its use."""
    doubles.fake.set("lost", 1, card=1)
    first, second = survey_cards()
    assert first == (0, UUID, "", ())
    assert second[:2] == (1, "")
    assert "lost" in second[2]
    doubles.fake.set("lost", 0, card=1)
