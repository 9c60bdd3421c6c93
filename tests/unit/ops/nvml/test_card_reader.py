"""`GuardedGpu`: a GPU in a child process, over the stand-in library, whose calls block, fail or end the process."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

import pytest
from support.waiting import until

from heshare.ops.nvml import guarded_gpu
from heshare.ops.nvml.binding import GpuLostError, NoReplyError, NoSuchGpuError, NotSupportedError, Nvml, NvmlGpu
from heshare.ops.nvml.card_process import METHODS, value_of
from heshare.ops.nvml.guarded_gpu import GuardedGpu
from heshare.shared.processes import is_running
from heshare.shared.signals import Interrupted, InterruptHandler, handling

UUID = "GPU-00000000-1111-2222-3333-444444444444"
TEMPERATURE = "nvmlDeviceGetTemperature"


@pytest.fixture
def gpu(doubles):
    with GuardedGpu(UUID, 1.5) as card:
        card.uuid()
        yield card
    doubles.fake.fail(TEMPERATURE, 0)


def child(card):
    return card._process.pid


def test_guarded_gpu_has_every_method_of_nvml_gpu_and_their_values(doubles, gpu) -> None:
    public = {name for name in vars(NvmlGpu) if not name.startswith("_")} - {"call", "lock_clock", "unlock_clock"}
    assert public <= set(METHODS)
    with Nvml() as nvml:
        plain = nvml.card(UUID)
        for name in sorted(public - {"energy_j"}):
            assert getattr(gpu, name)() == getattr(plain, name)(), name
    gpu.lock_clock(1200)
    assert doubles.fake.get("locked_mhz") == 1200
    gpu.unlock_clock()
    assert doubles.fake.get("locked_mhz") == 0


def test_guarded_gpu_raises_the_errors_of_the_child_as_their_classes(doubles, gpu) -> None:
    doubles.fake.fail(TEMPERATURE, 3)
    doubles.fake.fail("nvmlDeviceGetTemperatureV", 3)
    with pytest.raises(NotSupportedError, match="NVML code 3"):
        gpu.temperature_c()
    doubles.fake.set("lost0", 1)
    with pytest.raises(GpuLostError):
        gpu.power_limit_w()
    doubles.fake.set("lost0", 0)
    with pytest.raises(NoSuchGpuError), GuardedGpu("GPU-none") as none:
        none.name()


def test_a_blocking_call_ends_at_its_deadline_and_the_next_call_has_a_new_process(doubles, gpu) -> None:
    first = child(gpu)
    doubles.fake.block(TEMPERATURE)
    with pytest.raises(NoReplyError, match=f"GPU {UUID}: NVML has not returned from temperature_c"):
        gpu.temperature_c()
    assert gpu.silent_s > 0
    assert gpu.sm_mhz() == 1980  # another call of the card works
    assert gpu.silent_s == 0
    assert child(gpu) != first
    assert until(lambda: not is_running(first))


@pytest.mark.slow
def test_poll_does_not_wait_for_a_blocking_call_twice_and_tries_again_after_a_pause(doubles, gpu, monkeypatch) -> None:
    monkeypatch.setattr(guarded_gpu, "_PAUSES_S", (0.1, 0.3))
    calls = (("temperature_c",), ("sm_mhz",))
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll(calls, wait_s=0.05) is None
    assert [gpu.poll(calls) for _ in range(5)] == [None] * 5
    children = set()
    until_s = time.monotonic() + 60.0
    while len(children) < 3 and time.monotonic() < until_s:
        gpu.poll(calls)
        children |= set() if gpu._process is None else {child(gpu)}
        time.sleep(0.01)
    assert len(children) == 3
    assert gpu.silent_s > 0.4
    doubles.fake.fail(TEMPERATURE, 0)
    while (answers := gpu.poll(calls)) is None and time.monotonic() < until_s:
        time.sleep(0.01)
    assert [value_of(answer) for answer in answers] == [41.0, 1980.0]
    assert gpu.silent_s == 0


def test_ask_behind_a_reading_that_hangs_uses_a_new_process_and_keeps_a_late_reading(doubles, gpu) -> None:
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll((("temperature_c",),), wait_s=0.0) is None
    gpu.unlock_clock()
    doubles.fake.fail(TEMPERATURE, 0)
    assert gpu.poll((("temperature_c",),), wait_s=5.0) is not None
    doubles.fake.block(TEMPERATURE)
    assert gpu.poll((("temperature_c",),), wait_s=0.0) is None
    threading.Timer(0.05, doubles.fake.fail, (TEMPERATURE, 0)).start()
    assert gpu.sm_mhz() == 1980
    assert [value_of(answer) for answer in gpu.poll((("sm_mhz",),))] == [41.0]


def test_a_signal_ends_the_wait_for_a_blocking_call_at_once(doubles, gpu) -> None:
    gpu._deadline_s = 300.0
    doubles.fake.block(TEMPERATURE)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Interrupted), handling(InterruptHandler()):
        gpu.temperature_c()


def test_a_child_that_is_killed_is_replaced_and_one_whose_parent_goes_ends(doubles, gpu) -> None:
    os.kill(child(gpu), signal.SIGKILL)
    with pytest.raises(NoReplyError):
        gpu.sm_mhz()
    assert gpu.sm_mhz() == 1980
    last = child(gpu)
    gpu.close()
    assert not is_running(last)


def test_without_descriptors_a_gpu_is_silent_until_there_are_some_again(gpu, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    os.kill(child(gpu), signal.SIGKILL)
    monkeypatch.setattr(guarded_gpu, "_PAUSES_S", (0.05,))
    with monkeypatch.context() as patch:
        patch.setattr("socket.socketpair", refuse)
        assert until(lambda: gpu.poll([["uuid"]]) is None and gpu.silent_s > 0)
        with pytest.raises(NoReplyError):
            gpu.uuid()
    assert gpu.uuid() == UUID
