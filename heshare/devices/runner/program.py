"""What a worker runs: a `Program` does one iteration after the other; the PyTorch one keeps the GPU fed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Protocol

from heshare.devices.networks import Network, build, library
from heshare.errors import DeviceError


class Program(Protocol):
    """Iterations, one call each.

    Attributes:
        lag: how many of the iterations begun may still be under way when `step` returns.
        title: what it is and where it runs, for people.
    """

    lag: int
    title: str

    def step(self) -> None:
        """Begin an iteration, and see to it that all but the last `lag` are complete."""
        ...

    def settle(self) -> None:
        """Wait until every iteration that was begun is complete."""
        ...

    def close(self) -> None:
        """Give its memory back; the process may run another program then."""
        ...


class Inference:
    """Forward passes of a network of Table IV.

    On a GPU the next iteration is queued before the last one is complete, so that the card does not wait for the host
    to wake up; each is awaited by its CUDA event, without a spinning core, since many workers share the host.

    Args:
        model: a name of Table IV.
        batch_size: inference batch size, samples.
        precision: `fp32`, `tf32` or `fp16`.
        device: `cuda` or `cpu`.

    Raises:
        DeviceError: PyTorch is missing, or there is no CUDA device; a CPU is never used in its place.
    """

    def __init__(self, model: str, batch_size: int, precision: str, device: str) -> None:
        torch = library("torch")
        self._torch = torch
        self._cuda = device == "cuda"
        if self._cuda and not torch.cuda.is_available():
            raise DeviceError(
                f"PyTorch {torch.__version__} sees no CUDA device for {model}:{batch_size}. Check the driver and "
                "CUDA_VISIBLE_DEVICES, or install a build of PyTorch that fits the driver."
            )
        # Cores belong to all workers; on a GPU one thread launches the kernels.
        torch.set_num_threads(1)
        self._network: Network | None = build(model, batch_size, precision=precision, device=device)
        self.lag = 1 if self._cuda else 0
        self._events: list[Any] = []
        where = torch.cuda.get_device_name() if self._cuda else "CPU"
        self.title = f"{model}:{batch_size} {precision} on {where}, PyTorch {torch.__version__}"

    def step(self) -> None:
        """Queue a forward pass; on a GPU, wait for the one before."""
        assert self._network is not None, "closed"
        with self._torch.inference_mode():
            self._network()
        if not self._cuda:
            return
        event = self._torch.cuda.Event(blocking=True)
        event.record()
        self._events.append(event)
        if len(self._events) > self.lag:
            self._events.pop(0).synchronize()

    def settle(self) -> None:
        """Wait for what is queued."""
        if self._cuda:
            self._torch.cuda.synchronize()
            self._events.clear()

    def close(self) -> None:
        """Drop the network, and give the memory that PyTorch holds on the card to the others that share it."""
        self._network = None
        # Modules point at themselves in circles, and what is not collected is not given back.
        gc.collect()
        if self._cuda:
            self._torch.cuda.empty_cache()


Make = Callable[[str, int, str, str], Program]
"""(model, inference batch size, precision, device) -> program."""
