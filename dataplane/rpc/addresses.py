"""Our gRPC addresses, `unix:PATH`, `HOST:PORT` or `plain:HOST:PORT`, validated before gRPC sees them.

HOST:PORT uses TLS if there are certificates, else it must be loopback; `plain:` marks any other as not encrypted.

gRPC defaults a missing port to 443, lets two servers share a port, and takes a UNIX socket away from the server that
listens there; its error messages have several lines. A user's own folder is created, and refused if others can enter
it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from contextlib import closing
from pathlib import Path
from typing import Final

from dataplane.rpc.own_folder import foreign_socket, own_folders, prepare, refusal

_UNIX: Final = "unix:"
_ABSTRACT: Final = "unix-abstract:"
_PLAIN: Final = "plain:"
_UNIX_PATH_BYTES: Final = 107
_PROBE_S: Final = 1.0


def is_unix(address: str) -> bool:
    """Return whether an address is a UNIX socket."""
    return address.startswith(_UNIX)


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach HOST:PORT; names other than localhost may change."""
    host = target_of(address).rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_plain(address: str) -> bool:
    """Return whether an address declares itself unencrypted."""
    return address.startswith(_PLAIN)


def target_of(address: str) -> str:
    """Return an address in gRPC's syntax."""
    return address.removeprefix(_PLAIN)


def exposed(address: str, *, has_tls: bool) -> str | None:
    """Return why an address may not be used without TLS, None if it may, or if there is TLS."""
    if has_tls or is_unix(address) or is_plain(address) or is_loopback(address):
        return None
    return f"it is not loopback, and there is no tls; to go without encryption, write {_PLAIN}{address}"


def malformed(address: str) -> str | None:
    """Return why an address is unusable for listening and calling, None if it may be usable."""
    if address.startswith(_ABSTRACT):
        return "an abstract socket has no owner and no rights: any user can call, or take, it"
    if address.startswith(_UNIX):
        path = _path(address)
        if not path or "\0" in path:
            return "names no socket"
        size = len(os.fsencode(path))
        if size > _UNIX_PATH_BYTES:
            return f"the path has {size} bytes, a socket's at most {_UNIX_PATH_BYTES}"
        folder = Path(path).parent
        problem = refusal(folder) if folder in own_folders() else None
        return problem or foreign_socket(Path(path))
    host, _, port = target_of(address).rpartition(":")
    if host and _is_host(host) and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 0xFFFF:
        return None
    return "is neither unix:PATH nor HOST:PORT"


def _is_host(host: str) -> bool:
    """Return whether this may be a name or an address; IPv6 with or without brackets."""
    if ":" not in host and not host.startswith("["):
        return not any(letter.isspace() or letter in "/?#@\\" or not letter.isprintable() for letter in host)
    try:
        ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def unavailable(address: str) -> str | None:
    """Return why a server cannot listen at an address, None if it should be able to; port 0 picks a free one."""
    problem = malformed(address)
    if problem is not None:
        return problem
    if address.startswith(_UNIX):
        return _unix_unavailable(Path(_path(address)))
    return _port_unavailable(target_of(address))


def _path(address: str) -> str:
    return address.removeprefix(_UNIX).removeprefix("//")


def _unix_unavailable(path: Path) -> str | None:
    folder = path.parent
    problem = prepare(folder) if folder in own_folders() else None
    if problem is not None:
        return problem
    if not folder.is_dir():
        return f"there is no folder {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"folder {folder} may not be written to"
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return "something other than a socket is there"
    except FileNotFoundError:
        return None
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            # Left behind by a killed server: gRPC removes it.
            return None
        except OSError as error:
            return error.strerror or str(error)
    return "another process listens there"


def _port_unavailable(address: str) -> str | None:
    host, _, port = address.rpartition(":")
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, target = addresses[0]
        with closing(socket.socket(family, kind, protocol)) as probe:
            # As gRPC does: connections of an ended server do not hold the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None
