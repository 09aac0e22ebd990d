"""Implement `millrace up`, `status`, `restart`, `down` and `logs`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.apps.up.control import SOCKET, Question, ask
from controller.apps.up.errors import UpError
from controller.apps.up.places import default_state
from controller.apps.up.remains import is_dead, remove_remains
from controller.apps.up.state import StateFolder, free_port
from controller.apps.up.values import UpState
from dataplane.fabric.live.settings import Time
from dataplane.local.deadline import LocalDeadline
from dataplane.local.endings import read_lines, telling_line, why_ended

if TYPE_CHECKING:
    from controller.apps.up.plan import UpPlan

_DOWN_S: Final = 60.0
_POLL_S: Final = 0.1
_DETACHED_S: Final = 180.0
_RESTART_S: Final = 200.0
_CODE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Command-line options; None where not given."""

    topology: str | None
    time: Time | None
    state: Path | None
    settings: Path | None

    @property
    def folder(self) -> StateFolder:
        """The state folder."""
        return folder_of(self.state)


def folder_of(state: Path | None) -> StateFolder:
    """Return the named state folder, or the default one."""
    return StateFolder(default_state() if state is None else state.absolute())


def run(options: UpOptions, say: Callable[[str], None]) -> None:
    """Run everything until it is stopped; raise a one-line MillraceError if it cannot run."""
    folder = options.folder
    folder.prepare()
    with ExitStack() as held:
        held.enter_context(folder.locked())
        _first_settings(options, folder)
        # Imports the modules of all daemons' settings and of the scaling of demands.
        from controller.apps.up.plan import make_plan  # noqa: PLC0415
        from controller.apps.up.ports import MetricsPorts, Reservations  # noqa: PLC0415
        from controller.apps.up.settings import UpSettings  # noqa: PLC0415
        from controller.apps.up.supervision.lines import terminal  # noqa: PLC0415
        from controller.apps.up.supervision.supervisor import Supervisor  # noqa: PLC0415
        from dataplane.config import load  # noqa: PLC0415

        file = options.settings or folder.settings
        reservations = held.enter_context(closing(Reservations()))
        ports = MetricsPorts(reservations.take)

        def planned(settings: UpSettings) -> UpPlan:
            settings, notes = ports.choose(settings)
            return replace(make_plan(settings, folder), notes=notes)

        def read() -> UpSettings:
            return load(file, UpSettings).in_folder(folder)

        settings = read()
        _check_fits(options, settings.topology, settings.time, file)
        plan = planned(settings)
        folder.note_run(Path(settings.run))
        say(introduction(plan))

        async def supervise() -> None:
            supervisor = Supervisor(plan, terminal(say), reload=lambda: planned(read()))
            await supervisor.run(lambda state: say(addresses(state)))

        asyncio.run(supervise())


def check(file: Path) -> None:
    """Plan everything that a settings file would start, as at a start; raise a one-line MillraceError."""
    from controller.apps.up.plan import make_plan  # noqa: PLC0415
    from controller.apps.up.settings import UpSettings  # noqa: PLC0415
    from dataplane.config import load  # noqa: PLC0415

    folder = folder_of(file.parent)
    try:
        make_plan(load(file, UpSettings).in_folder(folder), folder)
    except UpError as error:
        raise UpError(f"{file}: {error}") from error


def detach(options: UpOptions, say: Callable[[str], None], progress: Callable[[str], None]) -> None:
    """Start a supervisor in its own session, and return when everything is ready; raise UpError if that fails.

    `progress` gets lines meanwhile, the first at once.
    """
    folder = options.folder
    folder.prepare()
    command = [sys.executable, "-m", "controller.apps.cli", "up", *_words(options)]
    process, output = _started(command, folder)
    progress(f"millrace up: starting; its log is {output}")
    say(addresses(_until_ready(process, output, folder, progress)))


@contextmanager
def beside_fabric(beside: FabricDaemons, progress: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Run a fabric's daemons while the block lasts; they die with this process. Raises UpError if they cannot run.

    Yields what reports, once, that they have ended by themselves.
    """
    folder = beside.folder
    command = [sys.executable, "-m", "controller.apps.cli.child", str(os.getpid()), "up", "--state", str(folder.path)]
    process, output = _started(command, folder)
    ended = False

    def look() -> None:
        nonlocal ended
        if not ended and process.poll() is not None:
            ended = True
            progress(f"the daemons have ended: {_end_of(process.returncode, output)}")

    try:
        progress(f"the daemons start; their log is {output}")
        state = _until_ready(process, output, folder, lambda line: progress(line.removeprefix("millrace up: ")))
        for line in addresses(state).splitlines()[1:]:
            progress(line)
        yield look
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True, slots=True)
class FabricDaemons:
    """The daemons of `millrace fabric up --daemons`: their state folder, and where reports are relayed to."""

    folder: StateFolder
    reports: str

    @classmethod
    def of(cls, fabric: str, topology: str, switches: str) -> FabricDaemons:
        """Write their settings, if there are none yet; raise a one-line MillraceError for what cannot run.

        `switches` is a pattern of P4Runtime addresses.
        """
        from controller.apps.up.plan import make_plan  # noqa: PLC0415
        from controller.apps.up.settings import UpSettings  # noqa: PLC0415
        from dataplane.config import load  # noqa: PLC0415
        from dataplane.topology.file import load_topology  # noqa: PLC0415

        folder = StateFolder(default_state().parent / f"fabric-{fabric}")
        folder.prepare()
        if not folder.settings.exists():
            collector = load_topology(topology).collector
            port = None if collector is None else free_port(collector.udp_port)
            folder.write_settings(topology, Time.KERNEL, udp_port=port, switches=switches)
        settings = load(folder.settings, UpSettings).in_folder(folder)
        if not _is_topology(settings.topology, topology):
            said = f"has topology {settings.topology}, not {topology}"
            raise UpError(f"{folder.settings} {said}: remove it, or choose another --name")
        plan = make_plan(settings, folder)
        assert plan.topology.collector is not None
        section = settings.collector
        return cls(folder, f"{section.listen}:{section.udp_port or plan.topology.collector.udp_port}")


def status(state: Path | None) -> UpState:
    """Return the state of everything; raise UpError if nothing runs."""
    current = asyncio.run(ask(_socket(folder_of(state)), Question("status"))).state
    assert current is not None
    return current


def restart(state: Path | None, daemon: str) -> float:
    """Restart a daemon, and return the seconds until it was ready again.

    Raises UpError for an unknown daemon, or one that does not get ready, and if nothing runs.
    """
    # The supervisor gives up first, with the reason.
    answer = asyncio.run(ask(_socket(folder_of(state)), Question("restart", daemon), answer_s=_RESTART_S))
    assert answer.took_s is not None
    return answer.took_s


def down(state: Path | None, say: Callable[[str], None]) -> None:
    """Stop everything, and return when it has ended; raise UpError if nothing runs.

    A supervisor that was killed has left files, which are removed; the kernel has ended its daemons.
    """
    folder = folder_of(state)
    socket = _socket(folder)
    if is_dead(socket):
        with folder.locked():  # or a supervisor that is starting would lose its sockets
            removed = remove_remains(socket.parent)
        say(f"`millrace up` had been killed: removed {len(removed)} files that it left in {socket.parent}")
        return
    asyncio.run(ask(socket, Question("down"), until_gone_s=_DOWN_S))


def introduction(plan: UpPlan) -> str:
    """Describe the plan in one line."""
    where = "joined" if plan.settings.switches else f"in {plan.settings.time} time"
    load = ""
    if plan.load is not None:
        load = f", rates divided by {plan.load.rate_divisor}, hosts send {plan.load.demands_from}"
    return f"millrace up: {plan.topology.name} {where}{load}; settings: {plan.state.settings}"


def addresses(state: UpState) -> str:
    """Return every address, one per line."""
    width = max((len(daemon.name) for daemon in state.daemons), default=0)
    lines = [
        f"  {daemon.name:<{width}} {what:<16} {address}"
        for daemon in state.daemons
        for what, address in daemon.addresses.items()
    ]
    return "\n".join(["millrace up: ready", *lines, *_page(state)])


def _page(state: UpState) -> list[str]:
    """Return a line with an address that opens the operators' page once; none if it is not served."""
    from controller.apiserver.client import SyncApiClient, find_place  # noqa: PLC0415 - takes a while to load
    from controller.common.errors import ApiError  # noqa: PLC0415

    served = next((daemon.addresses.get("HTTP", "") for daemon in state.daemons if daemon.name == "api"), "")
    own, _, others = served.partition(", ")
    if not others:
        return []
    try:
        with SyncApiClient(find_place(own), tries=1, answer_s=_CODE_S) as client:
            made = client.new_code()
    except ApiError as error:
        return [f"no page: {error}"]
    return [
        f"open {url}/#{made.code} within a minute (`millrace view` prints another address)" for url in made.urls[:1]
    ]


def log_files(state: Path | None, name: str | None) -> list[Path]:
    """Return the logs of a daemon, or of all; raise UpError for an unknown name."""
    folder = folder_of(state)
    paths = {path.stem: path for path in sorted(folder.logs.glob("*.log"))}
    if not paths:
        raise UpError(f"no logs in {folder.logs}")
    if name is None:
        return list(paths.values())
    if name not in paths:
        raise UpError(f"there is no log of {name!r}; known: {', '.join(paths)}")
    return [paths[name]]


def merged_lines(files: list[Path], last: int) -> list[str]:
    """Return the last lines of some logs in the order of time, each with its daemon's name."""
    lines = [
        (line[:23], f"{line[:23]} {path.stem:<10} {line[24:]}")
        for path in files
        for line in _tail(path, last)
        if len(line) > 24
    ]
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])][-last:]


def follow_lines(files: list[Path], sleep: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Yield lines as they are written, forever, across file rotation."""
    places = {path: _size(path) for path in files}
    while True:
        for path, offset in places.items():
            size = _size(path)
            start = 0 if size < offset else offset  # a shorter one is a new file
            whole = _whole_lines(path, start, size)
            places[path] = start + len(whole)
            for line in whole.decode("utf-8", errors="replace").splitlines():
                yield f"{line[:23]} {path.stem:<10} {line[24:]}"
        sleep(_POLL_S)


def _whole_lines(path: Path, start: int, end: int) -> bytes:
    """Return the complete lines between two offsets of a file."""
    if end <= start:
        return b""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(end - start)
    return data[: data.rfind(b"\n") + 1]


def _tail(path: Path, last: int) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-last:]
    except OSError as error:
        raise UpError(f"{path}: {error.strerror or error}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _first_settings(options: UpOptions, folder: StateFolder) -> None:
    """Write the settings file, unless it exists or another one is named."""
    if options.settings is not None or folder.settings.exists():
        return
    if options.topology is None:
        raise UpError(f"no topology given and no {folder.settings} yet: name one, as in `millrace up abilene`")
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    topology = load_topology(options.topology)  # do not write down a typo
    # Each fabric of a machine gets its own port.
    port = None if topology.collector is None else free_port(topology.collector.udp_port)
    folder.write_settings(options.topology, options.time or Time.VIRTUAL, udp_port=port)


def _check_fits(options: UpOptions, topology: str, at: Time, file: Path) -> None:
    """Refuse a command line that contradicts the settings; they are never overwritten."""
    if options.topology is not None and not _is_topology(topology, options.topology):
        raise UpError(
            f"{file} has topology {topology}, not {options.topology}: edit it, or use another folder with --state"
        )
    if options.time is not None and at is not options.time:
        raise UpError(f"{file} has time: {at}, not {options.time}: edit it, or use another folder with --state")


def _is_topology(written: str, given: str) -> bool:
    """Return whether settings name the topology of a command line."""
    return written in (given, str(Path(given).resolve()))


def _started(command: Sequence[str], folder: StateFolder) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a supervisor in its own session; return it with the log of its start."""
    output = folder.start_log(datetime.now().astimezone())
    with output.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    return process, output


def _until_ready(
    process: subprocess.Popen[bytes], output: Path, folder: StateFolder, progress: Callable[[str], None]
) -> UpState:
    """Return the state of a supervisor when everything is ready; raise UpError if that fails."""
    starting = list[str]()
    deadline = LocalDeadline(_DETACHED_S, "the start of all daemons")
    while not deadline.has_passed():
        if process.poll() is not None:
            raise UpError(_end_of(process.returncode, output))
        state = _state_of(folder, process.pid)
        if state is not None:
            waiting = [daemon.name for daemon in state.daemons if daemon.state != "ready"]
            if not waiting:
                return state
            if waiting != starting:
                starting = waiting
                done = len(state.daemons) - len(waiting)
                progress(f"millrace up: {done} of {len(state.daemons)} ready; starting {', '.join(waiting)}")
        time.sleep(_POLL_S)
    raise UpError(f"not ready after {_DETACHED_S:g} s: see `millrace status` and {folder.logs}")


def _end_of(status: int, output: Path) -> str:
    """Return the line of a log that tells of an error, or how the process ended."""
    lines = read_lines(output)
    return telling_line(lines) or why_ended(status, lines)


def _socket(folder: StateFolder) -> Path:
    if (run := folder.noted_run()) is None:
        raise UpError(f"no `millrace up` has run for {folder.path}")
    return run / SOCKET


def _state_of(folder: StateFolder, pid: int) -> UpState | None:
    """Return the state of a supervisor, None before it answers."""
    try:
        state = asyncio.run(ask(_socket(folder), Question("status"))).state
    except UpError:
        return None
    return state if state is not None and state.pid == pid else None


def _words(options: UpOptions) -> list[str]:
    words = [] if options.topology is None else [options.topology]
    words += [] if options.time is None else ["--time", str(options.time)]
    words += [] if options.settings is None else ["--settings", str(options.settings.absolute())]
    return [*words, "--state", os.fspath(options.folder.path)]
