"""Who can connect to the Dask clusters that HeShare uses and starts, with real certificates, schedulers and workers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import dask
import distributed
import pytest
from support import dask_cluster
from support.fakenvml import compiler

from heshare.lab.sweeps import dask_security, engine
from heshare.ops.executor.remote import host_offers
from heshare.shared.errors import InputError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
UUID = "GPU-aaaaaaaa-1111-2222-3333-444444444440"


def certificates(folder: Path) -> dict[str, str]:
    """Return Dask's settings for a new key and certificate in a folder, by their names."""
    folder.mkdir()
    security = dask_security.temporary_security()
    for name, text in (("key", security.tls_client_key), ("cert", security.tls_client_cert)):
        (folder / name).write_text(text)
    roles = {
        f"distributed.comm.tls.{role}.{part}": str(folder / part)
        for role in ("client", "scheduler", "worker")
        for part in ("key", "cert")
    }
    return {"distributed.comm.tls.ca-file": str(folder / "cert"), **roles}


def set_environment(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        monkeypatch.setenv("DASK_" + name.upper().replace(".", "__").replace("-", "_"), value)


def test_run_on_hosts_over_tls_and_no_client_without_their_certificate(tmp_path, monkeypatch):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    ours, others = certificates(tmp_path / "ours"), certificates(tmp_path / "others")
    set_environment(monkeypatch, ours)
    with dask_cluster.scheduler(tmp_path, "--protocol", "tls") as address:
        assert address.startswith("tls://")
        cluster = dask_cluster.Cluster(address, tmp_path)
        cluster.join("alpha", uuid=UUID)
        try:
            with dask.config.set(ours):
                cluster.joined(1)
                result = cluster.run(JOBS, "run")
            assert result.complete
            with pytest.raises(InputError, match=r"tls://.* without certificates; expected distributed\.comm\.tls"):
                connected(address)
            with dask.config.set(others), pytest.raises(InputError, match="where no scheduler responds"):
                connected(address)
            with pytest.raises(InputError, match="where no scheduler responds"):
                connected(address.replace("tls://", "dask://"))
        finally:
            cluster.end()


JOBS = "jobs:\n  - {name: a, command: ['true'], like: 'resnet50:8', iterations: 100}\n"


def connected(address: str) -> None:
    with host_offers.connect(address, timeout_s=2.0):
        pass


def test_certificates_that_cannot_be_loaded_are_named(tmp_path):
    settings = certificates(tmp_path / "ours")
    (tmp_path / "ours" / "key").write_text("no key")
    with dask.config.set(settings), pytest.raises(InputError, match="certificates that cannot be loaded"):
        connected("tls://127.0.0.1:1")


@pytest.mark.parametrize(
    "address", ["dask://head:8786", "dask://10.0.0.1:8786", "dask://0.0.0.0:1", "dask://[fe80::1]:1"]
)
def test_addresses_without_tls_on_a_network_are_refused_for_hosts_and_sweeps(address):
    message = rf"connection without TLS over a network.*insecure://{address[7:].replace('[', '.').replace(']', '.')}"
    with pytest.raises(InputError, match=f"column --hosts: .*{message}"):
        connected(address)
    with pytest.raises(InputError, match=f"column engine: .*{message}"):
        engine.check_engine(address)


@pytest.mark.parametrize(
    "address", ["dask://127.0.0.1:1", "dask://localhost:1", "dask://[::1]:1", "insecure://head:1", "tls://head:1"]
)
def test_addresses_with_tls_of_this_machine_and_insecure_ones_are_accepted(address):
    dask_security.check_address(address, "--hosts")


def process_id(job: int) -> tuple[int, int, str]:
    with distributed.worker_client() as client:
        return job, os.getpid(), client.scheduler.address


def test_a_local_cluster_has_no_port_for_others(monkeypatch):
    results = sorted(engine.map_unordered(process_id, [1, 2], engine="dask", n_jobs=1))
    assert [job for job, _, _ in results] == [1, 2]
    assert {address.partition(":")[0] for _, _, address in results} == {"tls"}


def test_a_client_without_the_temporary_certificate_is_refused_by_a_local_cluster():
    with engine.dask_client("dask") as client:
        place = client.scheduler.address.removeprefix("tls://")
        assert place.startswith("127.0.0.1:")
        with pytest.raises(OSError):  # noqa: PT011 (each kind of refusal)
            distributed.Client(f"tcp://{place}", timeout=1.0)
        other = dask_security.temporary_security()
        with pytest.raises(OSError):  # noqa: PT011
            distributed.Client(f"tls://{place}", timeout=1.0, security=other)


def test_a_local_cluster_without_openssl_is_refused(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match="expected the command openssl"), engine.dask_client("dask"):
        pass
