"""Logs and commands over a real server: transfers, permissions, and attacks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from controller.apiserver.client import ApiClient
from controller.apiserver.client.calls import Call
from controller.apiserver.sessions import frames
from controller.apiserver.sessions.frames import Frame, Stream
from controller.apiserver.sessions.values import ExecRequest, PodSessionRequest, SessionKind, TerminalSize
from dataplane.rpc.access import Right, Role
from tests.controller.apiserver.api_server import Play, Served
from tests.controller.apiserver.session_node import answering, bound_pod


async def read_all(stream: AsyncIterator[Frame]) -> list[Frame]:
    return [frame async for frame in stream]


def out(text: bytes) -> Frame:
    return Frame(Stream.STDOUT, text)


def test_a_log_comes_from_the_node_of_its_pod(play: Play) -> None:
    asked: list[PodSessionRequest] = []

    async def log(request: PodSessionRequest) -> AsyncIterator[Frame]:
        asked.append(request)
        yield out(b"one\n")
        yield Frame(Stream.STDERR, b"two\n")
        yield frames.exit_frame(0)

    async def act(served: Served) -> None:
        await bound_pod(served.client)
        user, node = await served.client_of(Role.USER), await served.client_of(Role.NODE, "h1")
        async with user, node, answering(node, "h1", log):
            received = await read_all(user.logs("a", follow=True, tail=5))
            assert received == [out(b"one\n"), Frame(Stream.STDERR, b"two\n"), frames.exit_frame(0)]
            plain = await served.client.answer(_plain("/v1/pods/a/logs"))
            assert plain.content == b"one\ntwo\n"
        (first, second) = asked
        assert (first.kind, first.pod, first.container, first.follow, first.tail) == (
            SessionKind.LOGS, "a", "main", True, 5,
        )  # fmt: skip
        assert (second.follow, second.tail) == (False, None)
        assert first.number != second.number
        assert "log of Pod a" in (served.folder / "audit").read_text()

    play(act)


def test_a_command_has_input_output_sizes_and_an_exit_status(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        user, node = await _user_with_exec(served), await served.client_of(Role.NODE, "h1")

        async def run(request: PodSessionRequest) -> AsyncIterator[Frame]:
            assert request.command == ("cat", "-")
            assert request.terminal == TerminalSize(rows=24, columns=80)
            async for frame in node.session_input("h1", request.number):
                if frame.stream is Stream.RESIZE:
                    yield out(str(frames.resize_of(frame)).encode())
                elif frame.stream is Stream.END_OF_INPUT:
                    break
                else:
                    yield Frame(Stream.STDERR, frame.payload)
            yield frames.exit_frame(-3)

        async def typed() -> AsyncIterator[Frame]:
            yield Frame(Stream.STDIN, b"hello")
            yield frames.resize_frame(TerminalSize(rows=50, columns=132))
            yield Frame(Stream.END_OF_INPUT)

        async with user, node, answering(node, "h1", run):
            wanted = ExecRequest(command=("cat", "-"), terminal=TerminalSize(rows=24, columns=80), stdin=True)
            number = await user.exec("a", wanted)
            writing = asyncio.create_task(user.write_input(number, typed()))
            received = await read_all(user.exec_output(number))
            await writing
        size = TerminalSize(rows=50, columns=132)
        assert received == [Frame(Stream.STDERR, b"hello"), out(str(size).encode()), frames.exit_frame(-3)]
        assert frames.exit_code_of(received[-1]) == -3
        log = map(json.loads, (served.folder / "audit").read_text().splitlines())
        (line,) = [line for line in log if line["path"].endswith("/exec")]
        assert (line["who"], line["what"], line["status"]) == ("user", "exec in Pod a: cat -", 201)

    play(act)


def _plain(path: str) -> Call:
    return Call("GET", path)


async def _user_with_exec(served: Served) -> ApiClient:
    return await served.client_of(Role.USER, rights=(Right.EXEC,))
