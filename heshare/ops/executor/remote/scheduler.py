"""The Dask scheduler that hosts join: who may connect to it, and a client of it.

Dask's messages are pickles: whoever connects to a scheduler or a worker runs anything there. TLS with certificates of
one authority on both sides (`distributed.comm.tls` of Dask's configuration) is what keeps others out.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from heshare.shared.errors import InputError
from heshare.shared.extras import require_extra

FORMS = "tls://HOST:PORT, or dask://HOST:PORT for a Dask scheduler of this machine"
_ADDRESS = re.compile(r"(?P<kind>tls|dask|insecure)://(?P<host>\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9_.-]{1,253}):\d{1,5}")
_KEYS = "distributed.comm.tls.ca-file, .client.cert and .client.key"
_SETUP = "Name certificates in Dask's configuration, or as DASK_DISTRIBUTED__COMM__TLS__... (docs/operations.md)."


def check_address(text: str, column: str) -> None:
    """Check the address of a scheduler: with TLS, or of this machine (loopback), or `insecure://` on purpose.

    Raises:
        InputError: another form, or a plain connection over a network; `column` names the option.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InputError(repr(text), FORMS, "Name the scheduler that the workers joined.", column=column)
    if match["kind"] == "dask" and not _is_loopback(match["host"].strip("[]")):
        raise InputError(
            f"{text}, a connection without TLS over a network: whoever can reach it can run anything as its users",
            FORMS,
            f"Set up TLS (docs/operations.md). Where you trust everyone on that network: insecure://{text[7:]}",
            column=column,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def client_arguments(text: str, column: str) -> tuple[str, Any]:
    """Return Dask's form of an address that was checked, and the certificates of a client, None without TLS.

    Raises:
        InputError: TLS without certificates in Dask's configuration, or with some that cannot be loaded.
    """
    kind, _, place = text.partition("://")
    if kind != "tls":
        return f"tcp://{place}", None
    security = _security()(require_encryption=True)
    try:
        context = security.get_connection_args("client").get("ssl_context")
    except (OSError, ValueError) as error:
        raise InputError(f"certificates that cannot be loaded ({error})", _KEYS, _SETUP, column=column) from None
    if context is None or security.tls_ca_file is None:
        raise InputError(f"{text} without certificates", _KEYS, _SETUP, column=column)
    return text, security


def _security() -> Any:
    # Dask is an extra, and its class has no types.
    from distributed import Security

    return Security


@contextmanager
def dask_client(address: str, *, column: str, timeout_s: float) -> Iterator[Any]:
    """Yield a client of the scheduler at an address, which must respond within `timeout_s`.

    Raises:
        InputError: as `check_address`; no scheduler responds, or Dask is not installed. `column` names the option.
    """
    require_extra("dask", column)
    check_address(address, column)
    place, security = client_arguments(address, column)
    try:
        client = _client_class()(place, timeout=timeout_s, security=security)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{address}, where no scheduler responds ({error})",
            "the address of a running Dask scheduler",
            "Start one with `dask scheduler`, and workers with `dask worker ADDRESS`.",
            column=column,
        ) from None
    with client:
        yield client


def _client_class() -> Any:
    from distributed import Client

    return Client
