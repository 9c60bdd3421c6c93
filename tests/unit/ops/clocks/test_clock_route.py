"""How clocks are set: by the clock service where its socket is, else by NVML in this process."""

from pathlib import Path

import pytest

from heshare.ops.clocks.clock_route import clock_control, service_socket


def test_clocks_are_set_by_the_service_where_its_socket_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HESHARE_CLOCKS", raising=False)
    monkeypatch.setattr("heshare.ops.clocks.clock_route.SERVICE_SOCKET", str(tmp_path / "none"))
    assert service_socket() is None
    assert clock_control(admin=True)[0]
    assert not clock_control(admin=False)[0]
    monkeypatch.setenv("HESHARE_CLOCKS", str(tmp_path / "gone"))
    assert service_socket() == tmp_path / "gone"
    able, sentence = clock_control(admin=True)
    assert not able
    assert "does not answer" in sentence
