"""p4runtime-shell with the device id and the election id that the switch tells, unless the options state them.

`make shell` runs this in .venv-shell. Without a controller the shell becomes the primary: it bids the highest election
id that the switch has seen. Beside a controller it only reads, and says which id would take over.
"""

from __future__ import annotations

import argparse
import queue
import re
import sys
from collections.abc import Iterator

import grpc
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc
from p4runtime_sh import shell

ANSWER_S = 10
OK, ALREADY_EXISTS = 0, 6
"""google.rpc.Code: a client is primary, and it is this one, or another one."""


def device_of(stub: p4runtime_pb2_grpc.P4RuntimeStub) -> int:
    """Return the device id that a switch tells when it is asked for another one; 1 if it tells none."""
    asked = p4runtime_pb2.GetForwardingPipelineConfigRequest(
        device_id=1, response_type=p4runtime_pb2.GetForwardingPipelineConfigRequest.COOKIE_ONLY
    )
    try:
        stub.GetForwardingPipelineConfig(asked, timeout=ANSWER_S)
    except grpc.RpcError as error:
        told = re.search(r"this is device (\d+)$", error.details() or "")
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            raise
        return int(told[1]) if told else 1
    return 1


def primary_of(stub: p4runtime_pb2_grpc.P4RuntimeStub, device_id: int) -> tuple[bool, int]:
    """Return whether a switch has a primary, and the highest election id that it has seen; the query elects none."""
    requests: queue.Queue[p4runtime_pb2.StreamMessageRequest | None] = queue.Queue()
    update = p4runtime_pb2.MasterArbitrationUpdate(device_id=device_id)
    requests.put(p4runtime_pb2.StreamMessageRequest(arbitration=update))

    def sent() -> Iterator[p4runtime_pb2.StreamMessageRequest]:
        while (request := requests.get()) is not None:
            yield request

    stream = stub.StreamChannel(sent(), timeout=ANSWER_S)
    try:
        answer = next(message.arbitration for message in stream if message.HasField("arbitration"))
    finally:
        requests.put(None)
        stream.cancel()
    highest = answer.election_id.high << 64 | answer.election_id.low
    return answer.status.code in {OK, ALREADY_EXISTS}, highest


def written(election_id: int) -> str:
    """Return an election id as p4runtime-shell takes it: high and low 64 bits."""
    return f"{election_id >> 64},{election_id & (1 << 64) - 1}"


def chosen(address: str, device_id: int | None, election_id: str | None) -> tuple[int, str]:
    """Return the ids to use with the switch at an address; print what they mean for its controller."""
    with grpc.insecure_channel(address) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        device_id = device_of(stub) if device_id is None else device_id
        if election_id is not None:
            return device_id, election_id
        has_primary, highest = primary_of(stub, device_id)
    if not has_primary:
        return device_id, written(max(highest, 1))
    print(  # noqa: T201 - to the user of a terminal
        f"a controller is primary, with election id {highest}: this shell only reads;"
        f" ELECTION={written(highest + 1)} takes over from it, but it may undo what is written"
    )
    return device_id, written(0)


def main() -> None:
    """Start the shell; its other options are its own."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--grpc-addr", default="localhost:9559")
    parser.add_argument("--device-id", type=int)
    parser.add_argument("--election-id")
    options, rest = parser.parse_known_args()
    try:
        device_id, election_id = chosen(options.grpc_addr, options.device_id, options.election_id)
    except grpc.RpcError as error:
        sys.exit(f"switch at {options.grpc_addr}: {error.code().name}: {error.details()}")
    ids = ["--device-id", str(device_id), "--election-id", election_id]
    sys.argv[1:] = ["--grpc-addr", options.grpc_addr, *ids, *rest]
    shell.main()


if __name__ == "__main__":
    main()
