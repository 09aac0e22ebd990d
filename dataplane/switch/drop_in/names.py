"""The names of the switch's command, and the differences under bmv2's names.

Under its own name, the switch refuses an address at which anyone could take control of it, unless that is requested
explicitly. Scripts that start bmv2 expect it to start: under bmv2's names the same is only logged.
"""

from __future__ import annotations

import os
from typing import Final

from dataplane.rpc.addresses import exposed, is_loopback
from dataplane.rpc.own_folder import default_address

OWN_NAME: Final = "millrace switch"
GRPC_NAME: Final = "simple_switch_grpc"
THRIFT_NAME: Final = "simple_switch"
CALLED_AS: Final = "--as"
"""Option before the name, if a shim starts the process."""
BMV2_NAMES: Final = (GRPC_NAME, THRIFT_NAME)

DEFAULT_GRPC_ADDRESS: Final = "127.0.0.1:9559"
"""bmv2 listens on every interface; any client there owns the switch, so here that must be requested."""
DEFAULT_THRIFT_PORT: Final = 9090


def default_grpc_address(name: str) -> str:
    """Return P4Runtime's default address: for simple_switch, one that others do not know."""
    return default_address(f"{name}-{os.getpid()}") if name == THRIFT_NAME else DEFAULT_GRPC_ADDRESS


def default_thrift_port(name: str) -> int | None:
    """Return the default port of the Thrift runtime API."""
    return DEFAULT_THRIFT_PORT if name == THRIFT_NAME else None


def opened(address: str, name: str, *, has_tls: bool) -> tuple[str, str | None]:
    """Return an address as the server takes it, and a log line if only bmv2's users may have it so."""
    if name not in BMV2_NAMES or exposed(address, has_tls=has_tls) is None:
        return address, None
    return f"plain:{address}", f"P4Runtime on {address} is not encrypted: anyone who can reach it controls this switch"


def opened_messages(address: str | None, name: str) -> tuple[str | None, str | None]:
    """Return the address for packets as messages, and a log line if only bmv2's users may have it so."""
    if name not in BMV2_NAMES or address is None or not address.startswith("tcp://") or is_loopback(address[6:]):
        return address, None
    return (
        f"plain:{address}",
        f"packets on {address} are open to anyone: whoever can reach it can inject packets and read those that leave",
    )
