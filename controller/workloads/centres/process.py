"""`millrace centre serve`: run the agent of a compute centre until stopped."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from collectors.devices.nvml import open_nvml
from controller.apiserver.agents.access import api_place
from controller.apiserver.agents.reporting import TRIES
from controller.apiserver.agents.server_clock import boot_time_ns
from controller.apiserver.client import ApiClient
from controller.workloads.centres.agent import Agent
from controller.workloads.centres.configuring import Configurer
from controller.workloads.centres.engines.base import Engine
from controller.workloads.centres.engines.local.engine import LocalEngine
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.folder import CentreFolder
from controller.workloads.centres.learning import Learner
from controller.workloads.centres.logs.kept import KeptOutputs
from controller.workloads.centres.metrics import Metrics
from controller.workloads.centres.programs import python_of, python_path
from controller.workloads.centres.selecting import ServedCentre, make_engine
from controller.workloads.centres.settings import FIXED, CentreSettings
from controller.workloads.centres.trying.kernels import Kernels
from controller.workloads.centres.warming import Warmer
from dataplane.blas_threads import VARIABLES
from dataplane.daemon import Daemon, Lifecycle, Reload
from dataplane.metrics_server import serve_metrics
from dataplane.running import run_until
from dataplane.topology.file import load_topology

LOGGER: Final = logging.getLogger("millrace.centre")


async def serve(
    settings: CentreSettings,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
    on_reload: Callable[[Reload[ServedCentre]], None] | None = None,
    engine: Engine | None = None,
) -> None:
    """Serve until `stop` is set; raise MillraceError for invalid settings.

    The API server may start later; the engine must be up. `on_ready` gets one line, `on_reload` what
    changed settings change.
    """
    _check_hosts(settings)
    folder = CentreFolder(Path(settings.state).absolute(), settings.centre)
    async with AsyncExitStack() as stack:
        stack.enter_context(folder.held())
        nvml = stack.enter_context(open_nvml())
        client = await stack.enter_async_context(ApiClient(api_place(settings.api, settings.token_file), tries=TRIES))
        identity = folder.identity()
        jobs = _jobs_folder(settings, folder)
        engine = engine or make_engine(settings, folder, jobs, identity, nvml)
        stack.push_async_callback(engine.close)
        await engine.start()
        configurer = Configurer(settings, folder, Kernels(client).wanted)
        metrics, outputs = Metrics(boot_time_ns), KeptOutputs(folder.outputs)
        try:
            outputs.open()
        except OSError as error:
            raise CentreError(f"state: {folder.outputs}: {error.strerror or error}") from None
        where = serve_metrics(metrics.registry, settings.metrics, stack, CentreError)
        agent = Agent(
            client,
            engine,
            configurer,
            settings,
            jobs_folder=jobs,
            identity=identity,
            now_ns=boot_time_ns,
            metrics=metrics,
            learner=Learner(folder),
            outputs=outputs,
            warmer=_warmer(settings, folder),
        )
        if on_reload is not None:
            on_reload(_reload(agent, configurer, engine))
        if on_ready is not None:
            on_ready(f"centre {settings.centre}, engine {engine.name}, API at {client.place.address}{where}")
        await run_until(agent.run(), stop)
        await agent.sign_off()


def _jobs_folder(settings: CentreSettings, folder: CentreFolder) -> Path:
    """Return the parent of jobs' folders; one that the settings name can be passed through, but not listed."""
    if settings.jobs_folder is None:
        return folder.jobs
    path = Path(settings.jobs_folder).absolute()
    try:
        path.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise CentreError(f"jobs_folder: {path}: {error.strerror or error}") from None
    return path


def _warmer(settings: CentreSettings, folder: CentreFolder) -> Warmer | None:
    """Return the keeper of a warm process, None if the settings name no modules."""
    if not settings.local.warm:
        return None
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8"} | dict.fromkeys(VARIABLES, "1") | python_path(settings)
    return Warmer(python_of(settings), settings.local.warm, folder.path / "warm.sock", environment)


def _check_hosts(settings: CentreSettings) -> None:
    """Raise CentreError for a host missing from the topology."""
    if settings.topology is None:
        return
    topology = load_topology(settings.topology)
    hosts = {host.name for host in topology.hosts}
    stranger = next((name for name in settings.hosts if name not in hosts), None)
    if stranger is not None:
        raise CentreError(f"hosts: {stranger}: topology {topology.name} has no such host")


def _reload(agent: Agent, configurer: Configurer, engine: Engine) -> Reload[ServedCentre]:
    async def apply(settings: ServedCentre) -> str:
        _check_same(agent.settings, settings)
        _check_hosts(settings)
        if isinstance(engine, LocalEngine):
            await engine.reload(settings.local, settings.units)
        agent.reload(settings)
        configurer.reload(settings)
        return "settings reloaded"

    return Reload(apply, "keeping the previous settings")


def _check_same(before: CentreSettings, after: CentreSettings) -> None:
    """Raise CentreError for a setting that cannot change while the agent runs."""
    for name in FIXED:
        if getattr(before, name) != getattr(after, name):
            raise CentreError(f"{name}: cannot change while the agent runs")


async def _serve(settings: ServedCentre, lifecycle: Lifecycle[ServedCentre]) -> None:
    await serve(settings, lifecycle.stop, on_ready=lifecycle.ready, on_reload=lifecycle.reload)


DAEMON: Final = Daemon("centre", ServedCentre, _serve)
load_settings: Final = DAEMON.load_settings
