"""Ownership of a server's connections: strangers, users and the system's own roles, each within its share.

A connection belongs to a stranger until a request on it has identified the caller. Strangers keep nobody out: when
there are too many, the oldest connection of the address with the most is closed; a genuine caller has sent its request
by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Final

USERS_SHARE: Final = 0.75
"""Share of connections and watches for all users together; the rest is reserved for nodes, centres, schedulers etc."""
_V6_SITE: Final = 64
"""Prefix length of IPv6 addresses that belong to one network: its owner can choose the remaining bits."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on simultaneous connections.

    `known` belong to identified callers, of which all users have `USERS_SHARE` and each `of_user`; `strangers` are
    allowed in addition, `strangers_of_address` from one address.
    """

    known: int
    of_user: int
    strangers: int
    strangers_of_address: int


@dataclass(slots=True, eq=False)
class Connection:
    """An open connection; `owner` is None until the caller is known."""

    address: str
    close: Callable[[], None]
    owner: str | None = None
    is_user: bool = False


@dataclass(slots=True)
class ConnectionBook:
    """All connections of one or several servers; confined to one event loop."""

    limits: ConnectionLimits
    refused: int = 0
    """Identified callers refused at a limit."""
    displaced: int = 0
    """Number of unidentified connections evicted."""
    _strangers: dict[str, dict[Connection, None]] = field(default_factory=dict)
    """By address, the oldest first."""
    _of_owners: dict[str, int] = field(default_factory=dict)
    _known: int = 0
    _users: int = 0

    @property
    def known(self) -> int:
        """Connections of identified callers."""
        return self._known

    @property
    def strangers(self) -> int:
        """Connections of unidentified callers."""
        return sum(map(len, self._strangers.values()))

    def open(self, host: str, close: Callable[[], None]) -> Connection:
        """Accept a stranger's connection; `close` ends it at once. Another stranger may be evicted."""
        address = group_of(host)
        if len(self._strangers.get(address, ())) >= self.limits.strangers_of_address:
            self._displace(address)
        elif self.strangers >= self.limits.strangers:
            self._displace(max(self._strangers, key=lambda candidate: len(self._strangers[candidate])))
        connection = Connection(address, close)
        self._strangers.setdefault(address, {})[connection] = None
        return connection

    def admit(self, connection: Connection, owner: str, *, is_user: bool) -> str | None:
        """Assign a connection to an owner; return why it is refused, else None."""
        if connection.owner == owner:
            return None
        limits, others = self.limits, self._known - (connection.owner is not None)
        users = self._users - connection.is_user
        problem = None
        if is_user and self._of_owners.get(owner, 0) >= limits.of_user:
            problem = f"the limit of {limits.of_user} connections per user is reached"
        elif is_user and users >= max(1, int(limits.known * USERS_SHARE)):
            problem = "the limit of connections of all users is reached"
        elif others >= limits.known:
            problem = f"the limit of {limits.known} connections is reached"
        if problem is not None:
            self.refused += 1
            return problem
        self.forget(connection)
        connection.owner, connection.is_user = owner, is_user
        self._of_owners[owner] = self._of_owners.get(owner, 0) + 1
        self._known += 1
        self._users += is_user
        return None

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended, or gets another owner; ignore unknown ones."""
        if connection.owner is not None:
            self._known -= 1
            self._users -= connection.is_user
            self._of_owners[connection.owner] -= 1
            if not self._of_owners[connection.owner]:
                del self._of_owners[connection.owner]
            connection.owner, connection.is_user = None, False
            return
        strangers = self._strangers.get(connection.address, {})
        strangers.pop(connection, None)
        if not strangers:
            self._strangers.pop(connection.address, None)

    def _displace(self, address: str) -> None:
        oldest = next(iter(self._strangers[address]))
        self.forget(oldest)
        self.displaced += 1
        oldest.close()


def group_of(host: str) -> str:
    """Return the group that a host's address counts for: the owner of an IPv6 /64 can choose any address in it."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _V6_SITE << _V6_SITE)}/{_V6_SITE}"
