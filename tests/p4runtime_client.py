"""A plain P4Runtime client for tests and benchmarks: one primary, its program, its writes; no schema, no event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
from finsy.proto import p4i, p4r, p4r_grpc

from dataplane.errors import SwitchError
from dataplane.program.p4info import read_p4info

ELECTION = p4r.Uint128(low=1)
LIMIT_S = 60.0


class Client:
    """The primary of one switch; every refusal is a SwitchError of one line."""

    def __init__(self, channel: grpc.Channel, device_id: int) -> None:
        self.device_id = device_id
        self.stub = p4r_grpc.P4RuntimeStub(channel)
        self._requests: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
        self.answers: Iterator[p4r.StreamMessageResponse] = iter(
            self.stub.StreamChannel(iter(self._requests.get, None))
        )
        update = p4r.MasterArbitrationUpdate(device_id=device_id, election_id=ELECTION)
        self._requests.put(p4r.StreamMessageRequest(arbitration=update))
        next(self.answers)

    def close(self) -> None:
        """End the stream."""
        self._requests.put(None)

    def commit(self, program: Path, p4info: Path) -> None:
        """Verify and commit a program."""
        self.commit_config(pipeline_config(program, p4info))

    def commit_config(self, config: p4r.ForwardingPipelineConfig) -> None:
        """Verify and commit a program."""
        self._call("the program", self.stub.SetForwardingPipelineConfig, commit_request(config, self.device_id))

    def write(self, updates: Iterable[p4r.Update], where: str = "a write") -> None:
        """Write a batch, in any order."""
        request = p4r.WriteRequest(device_id=self.device_id, election_id=ELECTION, updates=updates)
        self._call(where, self.stub.Write, request)

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        """Return what an entity selects."""
        request = p4r.ReadRequest(device_id=self.device_id, entities=[entity])
        return [entity for answer in self.stub.Read(request, timeout=LIMIT_S) for entity in answer.entities]

    def _call(self, where: str, method: Callable[..., Any], request: object) -> None:
        try:
            method(request, timeout=LIMIT_S)
        except grpc.RpcError as error:
            code, details = getattr(error, "code", str)(), getattr(error, "details", str)()
            raise SwitchError(f"the switch refuses {where}: {code}: {details}") from error


@contextmanager
def connect(address: str, device_id: int) -> Iterator[Client]:
    """Become the primary of the switch at `address` while the `with` block lasts."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        grpc.channel_ready_future(channel).result(timeout=LIMIT_S)
        client = Client(channel, device_id)
        try:
            yield client
        finally:
            client.close()


def pipeline_config(program: Path, p4info: Path) -> p4r.ForwardingPipelineConfig:
    """Return a compiled program's pipeline config for P4Runtime."""
    config = p4r.ForwardingPipelineConfig(p4_device_config=program.read_bytes())
    config.p4info.CopyFrom(read_p4info(p4info.read_bytes(), str(p4info)))
    return config


def commit_request(config: p4r.ForwardingPipelineConfig, device_id: int) -> p4r.SetForwardingPipelineConfigRequest:
    """Return the primary's request to verify and commit a program."""
    return p4r.SetForwardingPipelineConfigRequest(
        device_id=device_id,
        election_id=ELECTION,
        action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        config=config,
    )


class Names:
    """Builds entities from a P4Info's names: `Inbound.routes`, or its alias."""

    def __init__(self, info: p4i.P4Info) -> None:
        self.info = info

    def table_entry(
        self, table: str, match: Sequence[p4r.FieldMatch], action: p4r.TableAction | None, priority: int = 0
    ) -> p4r.Entity:
        """Return a table entry; `match` comes from `exact`, `lpm` and their like."""
        entry = p4r.TableEntry(table_id=_find(self.info.tables, table).preamble.id, match=match, priority=priority)
        if action is not None:
            entry.action.CopyFrom(action)
        return p4r.Entity(table_entry=entry)

    def action(self, name: str, *arguments: int) -> p4r.Action:
        """Return an action with its arguments in order."""
        action = _find(self.info.actions, name)
        params = [
            p4r.Action.Param(param_id=parameter.id, value=canonical(value))
            for parameter, value in zip(action.params, arguments, strict=True)
        ]
        return p4r.Action(action_id=action.preamble.id, params=params)

    def profile_id(self, name: str) -> int:
        """Return an action profile's id."""
        return int(_find(self.info.action_profiles, name).preamble.id)


def exact(field_id: int, value: int) -> p4r.FieldMatch:
    """Return an exact match."""
    return p4r.FieldMatch(field_id=field_id, exact=p4r.FieldMatch.Exact(value=canonical(value)))


def lpm(field_id: int, value: int, length: int) -> p4r.FieldMatch:
    """Return a prefix match."""
    return p4r.FieldMatch(field_id=field_id, lpm=p4r.FieldMatch.LPM(value=canonical(value), prefix_len=length))


def ternary(field_id: int, value: int, mask: int) -> p4r.FieldMatch:
    """Return a masked match."""
    return p4r.FieldMatch(
        field_id=field_id, ternary=p4r.FieldMatch.Ternary(value=canonical(value), mask=canonical(mask))
    )


def canonical(value: int) -> bytes:
    """Return the shortest byte string of a number (P4Runtime, section 8.4)."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def insert(entity: p4r.Entity) -> p4r.Update:
    """Return an INSERT."""
    return p4r.Update(type=p4r.Update.INSERT, entity=entity)


def _find(objects: Iterable[Any], name: str) -> Any:
    for candidate in objects:
        if name in (candidate.preamble.name, candidate.preamble.alias):
            return candidate
    raise SwitchError(f"the P4Info has no {name}")
