"""Write access: election ids, roles, and notifications of changes (specification, section 5).

For each role the client with the highest election id ever seen is primary. When it leaves there is none, whatever the
backups' ids are, until a client asks again with at least that id. The specification requires this; bmv2 instead
promotes the next one by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from finsy.proto import p4r

from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, wrong_device

LOGGER = logging.getLogger("millrace.switch")

MAX_CLIENTS = 64
"""Maximum open streams of one role."""

MAX_ROLES = 64
"""Maximum roles that the switch remembers; a new one evicts the role that has been without a client for longest."""

Send = Callable[[p4r.StreamMessageResponse], None]


@dataclass(eq=False, slots=True)
class Client:
    """One stream that has taken part in arbitration; `election_id` None never becomes primary."""

    send: Send
    role: str
    election_id: int | None


@dataclass(slots=True)
class _Role:
    """The switch's record of a role: its clients, its primary and the highest election id ever seen."""

    name: str
    clients: list[Client] = field(default_factory=list)
    primary: Client | None = None
    highest: int | None = None


def decode_id(message: p4r.Uint128) -> int:
    """Return an election id as one number."""
    return message.high << 64 | message.low


class Arbitration:
    """The clients of one device, by role; every method may be called from any thread."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._roles: dict[str, _Role] = {}
        self._lock = threading.RLock()  # held briefly: every packet to a controller reads the primaries

    def join(self, send: Send, update: p4r.MasterArbitrationUpdate) -> Client:
        """Admit a stream by its first update, and notify affected clients; raise P4RuntimeError to end the stream."""
        with self._lock:
            if update.device_id != self._device_id:
                raise wrong_device(update.device_id, self._device_id)
            name, election_id = _role_name(update), _election_id(update)
            role = self._roles.get(name) or _Role(name)
            self._check_unused(role, election_id, None)
            if len(role.clients) >= MAX_CLIENTS:
                raise P4RuntimeError(Code.RESOURCE_EXHAUSTED, f"{MAX_CLIENTS} streams are open for this role")
            if name not in self._roles and len(self._roles) >= MAX_ROLES:
                self._forget_role()
            self._roles[name] = role
            client = Client(send, name, election_id)
            role.clients.append(client)
            self._elect(role, client)
            return client

    def update(self, client: Client, update: p4r.MasterArbitrationUpdate) -> None:
        """Process a later update of a client; raise P4RuntimeError to end the stream."""
        with self._lock:
            if update.device_id != self._device_id:
                raise P4RuntimeError(Code.FAILED_PRECONDITION, f"the stream is for device {self._device_id}")
            if _role_name(update) != client.role:
                raise P4RuntimeError(Code.FAILED_PRECONDITION, f"the stream is for role {client.role!r}")
            role, election_id = self._roles[client.role], _election_id(update)
            self._check_unused(role, election_id, client)
            client.election_id = election_id
            self._elect(role, client)

    def leave(self, client: Client) -> None:
        """Forget a client whose stream ended; if it was primary, notify the others that there is none."""
        with self._lock:
            role = self._roles[client.role]
            role.clients.remove(client)
            self._roles[client.role] = self._roles.pop(client.role)  # move to the end: it was left most recently
            if role.primary is client:
                role.primary = None
                self._log(role, "has left; entries stay, and no client may write until another becomes primary")
                self._notify(role, role.clients)

    def check_role(self, role_name: str) -> None:
        """Raise NOT_FOUND for a role that no client has ever taken, except the default one."""
        with self._lock:
            if role_name and role_name not in self._roles:
                raise P4RuntimeError(Code.NOT_FOUND, f"there is no role {role_name!r}")

    def check_primary(self, role_name: str, election_id: int | None) -> None:
        """Raise NOT_FOUND for an unknown role, PERMISSION_DENIED unless the id is the role's primary's."""
        with self._lock:
            self.check_role(role_name)
            role = self._roles.get(role_name)
            primary = None if role is None else role.primary
            if primary is None or election_id is None or primary.election_id != election_id:
                who = "a client without election id" if election_id is None else f"election id {election_id}"
                raise P4RuntimeError(Code.PERMISSION_DENIED, f"{who} is not the primary")

    def is_primary(self, client: Client) -> bool:
        """Return whether the client is its role's primary."""
        with self._lock:
            return self._roles[client.role].primary is client

    def primaries(self) -> list[Client]:
        """Return every role's primary."""
        with self._lock:
            return [role.primary for role in self._roles.values() if role.primary is not None]

    def _forget_role(self) -> None:
        """Make room for a role; raise RESOURCE_EXHAUSTED if every one has a client. The default role stays."""
        unused = next((name for name, role in self._roles.items() if name and not role.clients), None)
        if unused is None:
            raise P4RuntimeError(Code.RESOURCE_EXHAUSTED, f"{MAX_ROLES} roles have clients")
        del self._roles[unused]

    def _elect(self, role: _Role, client: Client) -> None:
        """Apply the client's election id and notify: specification, section 5.3, rules 3 and 4."""
        was_primary = role.primary is client
        if client.election_id is not None and client.election_id >= (role.highest or 0):
            role.primary, role.highest = client, client.election_id
            if not was_primary:
                self._log(role, f"is a controller with election id {client.election_id}")
            self._notify(role, [other for other in role.clients if other is not client])
            self._notify(role, [client])
        elif was_primary:
            role.primary = None
            self._notify(role, role.clients)
        else:
            self._notify(role, [client])

    def _log(self, role: _Role, what: str) -> None:
        of_role = f" of role {role.name!r}" if role.name else ""
        LOGGER.info("switch %d: the primary%s %s", self._device_id, of_role, what)

    def _notify(self, role: _Role, clients: list[Client]) -> None:
        for client in clients:
            client.send(p4r.StreamMessageResponse(arbitration=self._advice(role, client)))

    def _advice(self, role: _Role, client: Client) -> p4r.MasterArbitrationUpdate:
        advice = p4r.MasterArbitrationUpdate(device_id=self._device_id)
        if role.name:
            advice.role.name = role.name
        if role.highest is not None:
            advice.election_id.high, advice.election_id.low = role.highest >> 64, role.highest & ((1 << 64) - 1)
        if role.primary is client:
            advice.status.code, advice.status.message = Code.OK, "Is primary"
        elif role.primary is not None:
            advice.status.code, advice.status.message = Code.ALREADY_EXISTS, "Is backup"
        else:
            advice.status.code, advice.status.message = Code.NOT_FOUND, "Is backup; there is no primary"
        return advice

    @staticmethod
    def _check_unused(role: _Role, election_id: int | None, owner: Client | None) -> None:
        if election_id is None:
            return
        if any(client.election_id == election_id for client in role.clients if client is not owner):
            raise invalid("Election id already exists")


def _role_name(update: p4r.MasterArbitrationUpdate) -> str:
    """Return the role's name, empty for the default role; no scheme of role configurations has been agreed on."""
    if update.role.HasField("config"):
        scheme = update.role.config.type_url.rpartition("/")[2] or "without a type"
        raise invalid(f"the role configuration {scheme} is not understood: leave it out, every role has full access")
    if update.role.id and not update.role.name:
        raise invalid("numbers of roles are withdrawn: name the role")
    return update.role.name


def _election_id(update: p4r.MasterArbitrationUpdate) -> int | None:
    return decode_id(update.election_id) if update.HasField("election_id") else None
