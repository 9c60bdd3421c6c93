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
    with CardReader(1.5) as one:
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


def test_a_card_has_every_method_of_nvml_gpu_and_their_values(doubles, gpu) -> None:
    """Each is called in the reader's process."""
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


def test_errors_of_the_process_are_raised_as_their_classes(doubles, gpu, reader) -> None:
    """After the error that a card is lost it is not asked again within one poll."""
    doubles.fake.fail(TEMPERATURE, 3)
    doubles.fake.fail("nvmlDeviceGetTemperatureV", 3)
    with pytest.raises(NotSupportedError, match="NVML code 3"):
        gpu.temperature_c()
    doubles.fake.set("lost0", 1)
    with pytest.raises(GpuLostError):
        gpu.power_limit_w()
    calls = doubles.fake.called("nvmlDeviceGetClockInfo")
    answers = gpu.poll((("power_limit_w",), ("sm_mhz",), ("sm_mhz",)), wait_s=60.0)
    assert [answer[0] for answer in answers] == ["GpuLostError"] * 3
    assert doubles.fake.called("nvmlDeviceGetClockInfo") == calls
    doubles.fake.set("lost0", 0)
    with pytest.raises(NoSuchGpuError):
        reader.card("GPU-none").name()


def test_a_call_that_hangs_ends_at_its_deadline_and_the_process_is_replaced(doubles, gpu, reader) -> None:
    """Another call of the card works then, in a new process."""
    first = child(reader)
    doubles.fake.block(TEMPERATURE)
    with pytest.raises(NoReplyError, match=f"GPU {UUID}: NVML has not returned from temperature_c within 1.5 s"):
        gpu.temperature_c()
    assert gpu.silent_s > 0
    assert gpu.sm_mhz() == 1980
    assert gpu.silent_s == 0
    assert child(reader) != first
    assert until(lambda: not is_running(first))


def test_a_card_that_hangs_stops_no_other_card(doubles, gpu, reader) -> None:
    """Neither its readings nor its calls, in the same process; `ask` of the card that hangs gets a new one."""
    first, other = child(reader), reader.card(OTHER)
    doubles.fake.block(TEMPERATURE, card=0)
    reader._deadline_s = 300.0  # nothing is given up in this test
    assert gpu.poll(HOT, wait_s=0.0) is None
    assert answered(other, HOT) == [41.0, 1980.0]
    assert other.temperature_c() == 41.0
    assert (gpu.poll(HOT), other.silent_s, child(reader)) == (None, 0.0, first)
    doubles.fake.fail(TEMPERATURE, 0)
    assert answered(gpu, HOT) == [41.0, 1980.0]


def test_what_other_cards_were_asked_is_asked_again_in_the_new_process(doubles, gpu, reader) -> None:
    """Their next poll returns a reading; they have not been silent."""
    other = reader.card(OTHER)
    other.uuid()
    doubles.fake.block(TEMPERATURE)
    assert other.poll(HOT, wait_s=0.0) is None
    with pytest.raises(NoReplyError):
        gpu.temperature_c()
    doubles.fake.fail(TEMPERATURE, 0)
    assert answered(other, HOT) == [41.0, 1980.0]
    assert other.silent_s == 0.0


@pytest.mark.slow
def test_a_card_that_hangs_is_asked_again_after_growing_pauses_until_it_replies(doubles, gpu, reader, monkeypatch):
    """No poll waits for it a second time; each try has a process of its own."""
    monkeypatch.setattr(card_reader, "_PAUSES_S", (0.1, 0.3))
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll(HOT, wait_s=0.05) is None
    children = set()

    def third_try():
        assert gpu.poll(HOT) is None
        children.update(set() if reader._process is None else {child(reader)})
        return len(children) == 3

    assert until(third_try)
    assert gpu.silent_s > 0.4
    doubles.fake.fail(TEMPERATURE, 0)
    assert answered(gpu, HOT) == [41.0, 1980.0]
    assert gpu.silent_s == 0


def test_pauses_between_tries_grow(gpu, reader, monkeypatch) -> None:
    """Up to a longest one; a reply begins them again."""
    now_s = [100.0]
    monkeypatch.setattr(card_reader.time, "monotonic", lambda: now_s[0])
    line, pauses = reader._line(UUID), []
    for _ in range(8):
        reader._replace(line)
        pauses.append(line.retry_s - now_s[0])
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2] > 10.0 * pauses[0]


def test_ask_behind_a_reading_that_hangs_keeps_a_late_reading(doubles, gpu) -> None:
    """A reading may hold events, which no later one has."""
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll((("temperature_c",),), wait_s=0.0) is None
    gpu.unlock_clock()  # in a new process: the old one hangs
    doubles.fake.fail(TEMPERATURE, 0)
    assert gpu.poll((("temperature_c",),), wait_s=60.0) is not None
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll((("temperature_c",),), wait_s=0.0) is None
    threading.Timer(0.05, doubles.fake.fail, (TEMPERATURE, 0)).start()
    assert gpu.sm_mhz() == 1980
    assert [value_of(answer) for answer in gpu.poll((("sm_mhz",),))] == [41.0]


def test_the_first_call_to_a_card_may_take_longer(doubles) -> None:
    """The driver may have to load, without persistence mode; later calls may not take so long."""
    doubles.fake.block(TEMPERATURE)
    with CardReader(0.2) as reader:
        gpu = reader.card(UUID)
        with pytest.raises(NoReplyError, match=f"within {FIRST * 0.2:g} s"):
            gpu.temperature_c()
        doubles.fake.fail(TEMPERATURE, 0)
        reader._deadline_s = 60.0
        assert gpu.temperature_c() == 41.0
        reader._deadline_s = 0.2
        doubles.fake.block(TEMPERATURE)
        with pytest.raises(NoReplyError, match=r"within 0\.2 s"):
            gpu.temperature_c()
        doubles.fake.fail(TEMPERATURE, 0)


def test_a_signal_ends_the_wait_for_a_call_that_hangs(doubles, gpu, reader) -> None:
    """At once, whatever its deadline is."""
    reader._deadline_s = 300.0
    doubles.fake.block(TEMPERATURE)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Interrupted), handling(InterruptHandler()):
        gpu.temperature_c()


def test_a_process_that_is_killed_is_replaced_and_close_ends_it(gpu, reader) -> None:
    """The call that finds out fails; the next one starts another process."""
    os.kill(child(reader), signal.SIGKILL)
    with pytest.raises(NoReplyError):
        gpu.sm_mhz()
    assert gpu.sm_mhz() == 1980
    last = child(reader)
    for _ in range(2):
        reader.close()
    assert not is_running(last)


def test_close_ends_a_process_that_hangs(doubles, gpu, reader, monkeypatch) -> None:
    """A thread of it waits for the driver; the process does not."""
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll(HOT, wait_s=0.0) is None
    pid = child(reader)
    reader.close()
    assert until(lambda: not is_running(pid))


def test_without_descriptors_a_card_is_silent_until_there_are_some(gpu, reader, monkeypatch) -> None:
    """No error of the system gets out as anything else."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    os.kill(child(reader), signal.SIGKILL)
    monkeypatch.setattr(card_reader, "_PAUSES_S", (0.05,))
    with monkeypatch.context() as patch:
        patch.setattr("socket.socketpair", refuse)
        assert until(lambda: gpu.poll([["uuid"]]) is None and gpu.silent_s > 0)
        with pytest.raises(NoReplyError):
            gpu.uuid()
    assert gpu.uuid() == UUID


def test_a_survey_lists_every_card_and_what_hinders_its_use(doubles) -> None:
    """One that does not reply has no UUID."""
    doubles.fake.set("lost1", 1)
    first, second = survey_cards()
    assert first == (0, UUID, "", ())
    assert second[:2] == (1, "")
    assert "lost" in second[2]
    doubles.fake.set("lost1", 0)
