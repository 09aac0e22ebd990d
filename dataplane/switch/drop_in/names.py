"""The names that the switch goes by, and what is different under bmv2's.

Under its own name, an address at which anybody could take the switch is refused unless it says so. Scripts that start
bmv2 expect it to start: under bmv2's names the same is a line in the log.
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
"""What stands in front of the name, where the process is started by a shim."""
BMV2_NAMES: Final = (GRPC_NAME, THRIFT_NAME)

DEFAULT_GRPC_ADDRESS: Final = "127.0.0.1:9559"
"""bmv2 listens on every interface; any client there owns the switch, so here that has to be asked for."""
DEFAULT_THRIFT_PORT: Final = 9090


def default_grpc_address(name: str) -> str:
    """Return where P4Runtime is served unless something else is asked for: simple_switch has none that others know."""
    return default_address(f"{name}-{os.getpid()}") if name == THRIFT_NAME else DEFAULT_GRPC_ADDRESS


def default_thrift_port(name: str) -> int | None:
    """Return where the Thrift runtime API is served unless something else is asked for."""
    return DEFAULT_THRIFT_PORT if name == THRIFT_NAME else None


def opened(address: str, name: str, *, has_tls: bool) -> tuple[str, str | None]:
    """Return an address as the server takes it, and a line for the log if only bmv2's users are to have it so."""
    if name not in BMV2_NAMES or exposed(address, has_tls=has_tls) is None:
        return address, None
    return f"plain:{address}", f"P4Runtime on {address} is not encrypted: whoever reaches it controls this switch"


def opened_messages(address: str | None, name: str) -> tuple[str | None, str | None]:
    """Return where packets come and go as messages, and a line for the log if only bmv2's users are to have it so."""
    if name not in BMV2_NAMES or address is None or not address.startswith("tcp://") or is_loopback(address[6:]):
        return address, None
    return (
        f"plain:{address}",
        f"packets on {address} are anybody's: whoever reaches it sends them in and gets what goes out",
    )
