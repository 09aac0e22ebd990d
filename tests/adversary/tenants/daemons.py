"""Daemons of a siege as processes, each with its own token in its own folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Centre, Node
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import ApiError
from dataplane.rpc.access import Role
from dataplane.rpc.access.settings import TOKEN_FILE
from tests.waiting import until

_WAIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Daemons:
    """Starts daemons that run until the end of a stack; all of them must live until then."""

    folder: Path
    url: str
    admin: ApiClient
    stack: AsyncExitStack

    async def token(self, name: str, role: Role) -> Path:
        """Return the file of a new token, in a folder that only this user enters."""
        subject = name if role in (Role.NODE, Role.CENTRE) else None
        made = await self.admin.create_token(TokenRequest(name, role, subject))
        file = self.folder / name / "token"
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.touch(0o600)
        file.write_text(made.token)
        return file

    async def centre(self, name: str, settings: Mapping[str, Any]) -> int:
        """Start a centre's agent and wait until the centre is ready; return the number of its process."""
        token = await self.token(name, Role.CENTRE)
        own = {"centre": name, "state": f"{self.folder}/{name}/state", "api": self.url, "token_file": str(token)}
        number = await self.start(name, "centre", {**own, "trial": {"kernels": []}, **settings})
        await until_answered(lambda: self._is_centre_ready(name))
        return number

    async def node(self, name: str, settings: Mapping[str, Any]) -> int:
        """Start a node's manager and wait until the node is ready; return the number of its process."""
        token = await self.token(name, Role.NODE)
        own = {"node": name, "state": f"{self.folder}/{name}/state", "api": self.url, "token_file": str(token)}
        number = await self.start(name, "node", {**own, "on_stop": "stop", **settings})
        await until_answered(lambda: self._is_node_ready(name))
        return number

    async def service(self, kind: str, role: Role, settings: Mapping[str, Any]) -> None:
        """Start a daemon that finds its token through the environment."""
        token = await self.token(kind, role)
        await self.start(kind, kind, {"api": self.url, **settings}, {TOKEN_FILE: str(token)})

    async def start(
        self, name: str, kind: str, settings: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> int:
        """Start a daemon and wait for its ready line; return its process id."""
        running = daemon(self.folder, name, kind, settings, environment)
        number, _ = await self.stack.enter_async_context(running)
        return number

    async def _is_centre_ready(self, name: str) -> bool:
        return (await self.admin.of(Centre).get(name)).status.ready

    async def _is_node_ready(self, name: str) -> bool:
        return (await self.admin.of(Node).get(name)).status.ready


@asynccontextmanager
async def daemon(
    folder: Path,
    name: str,
    kind: str,
    settings: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[int, str]]:
    """Run `millrace KIND serve` until the end of the block; yield its process id and its ready line."""
    file, log_file = folder / f"{name}.yaml", folder / f"{name}.log"
    file.write_text(yaml.safe_dump(dict(settings)))
    command = [sys.executable, "-m", "controller.apps.cli", kind, "serve", "--settings", str(file)]
    with log_file.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stderr=log, env={**os.environ, **(environment or {})}
        )
    try:
        await until(
            lambda: _ready_line(log_file) is not None or process.returncode is not None,
            log_file.read_text,
            limit_s=_WAIT_S,
        )
        line = _ready_line(log_file)
        assert line is not None, log_file.read_text()
        yield process.pid, line
        assert process.returncode is None, log_file.read_text()[-2000:]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def _ready_line(log: Path) -> str | None:
    return next((line for line in log.read_text().splitlines() if ": ready: " in line), None)


async def until_answered(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds; an API error counts as "not yet"."""

    async def holds() -> bool:
        try:
            return await condition()
        except ApiError:
            return False

    await until(holds, limit_s=_WAIT_S, poll_s=0.1)
