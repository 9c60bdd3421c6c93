"""What tests on the first GPU of this machine share."""

from __future__ import annotations

import pytest

from heshare.ops.nvml.binding import Nvml, NvmlError


@pytest.fixture(scope="session")
def uuid() -> str:
    """The UUID of the first GPU."""
    try:
        with Nvml() as nvml:
            return nvml.card(0).uuid()
    except NvmlError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def torch_uuid(uuid: str) -> str:
    """The UUID of the first GPU, where PyTorch is there to use it."""
    pytest.importorskip("torch", reason="needs the extra heshare[live]")
    return uuid
