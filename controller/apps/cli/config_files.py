"""Files that a daemon's settings name, read for `millrace config check` as the daemon reads them at its start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from collectors.exporters.gnmi import check_devices
from collectors.exporters.sflow import agents_of
from collectors.process import CollectorProcessSettings
from collectors.stamp.links import StampLinks
from controller.network.daemon_settings import DaemonSettings
from controller.workloads.centres.settings import CentreSettings
from controller.workloads.nodes.settings import NodeSettings
from dataplane.errors import ConfigError, MillraceError
from dataplane.fabric.live.settings import FabricSettings
from dataplane.given import read_given
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.tls import TlsFiles, check_authority, check_client, check_current, check_files
from dataplane.rpc.access.token_files import read_records, read_token
from dataplane.topology.file import load_topology

if TYPE_CHECKING:
    from dataplane.topology.values import Topology

_SECRET_BYTES: Final = 1 << 20
Check = Callable[[], object]


def check_named(settings: msgspec.Struct, file: Path) -> None:
    """Read every file that settings name, and check it against them; raise ConfigError that names the key.

    Nothing is written, locked, listened on or connected to; what a daemon makes if it is missing is no error.
    """
    for key, check in (*_checks(settings, ""), *_fit(settings)):
        try:
            check()
        except MillraceError as error:
            raise ConfigError(str(error), file=str(file), key=key) from error
        except OSError as error:
            name = "" if error.filename is None else f"{error.filename}: "
            raise ConfigError(f"{name}{error.strerror}", file=str(file), key=key) from error


def _checks(value: object, key: str) -> Iterator[tuple[str, Check]]:
    """Yield each key that names files, with its check."""
    if isinstance(value, msgspec.Struct):
        yield from _checks_of_struct(value, key)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _checks(inner, f"{key}[{name!r}]")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _checks(inner, f"{key}[{number}]")


def _checks_of_struct(value: msgspec.Struct, key: str) -> Iterator[tuple[str, Check]]:
    fields = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
    if isinstance(value, TlsSettings):
        yield key, partial(check_client, value)
    elif isinstance(certificate := fields.get("certificate"), str) and isinstance(fields.get("private_key"), str):
        yield key, partial(_check_pair, certificate, fields["private_key"])
    for name, inner in fields.items():
        where = f"{key}.{name}" if key else name
        if isinstance(inner, str) and name in _FILES:
            yield where, partial(_FILES[name], inner)
        else:
            yield from _checks(inner, where)


def _check_pair(certificate: str, private_key: str) -> None:
    check_files(TlsFiles(Path(certificate), Path(private_key)))
    check_current(Path(certificate))


def _check_folder(folder: str) -> None:
    if not Path(folder).is_dir():
        raise MillraceError(f"{folder}: no such folder")


_FILES: Final[Mapping[str, Callable[[str], object]]] = {
    "topology": load_topology,
    "ca": lambda file: check_authority(Path(file)),
    "client_ca": lambda file: check_authority(Path(file)),
    "tokens": lambda file: read_records(Path(file)),
    "token_file": lambda file: read_given(file, _SECRET_BYTES),
    "password_file": lambda file: read_given(file, _SECRET_BYTES),
    "secret_file": lambda file: read_given(file, _SECRET_BYTES),
    "key_file": lambda file: read_given(file, _SECRET_BYTES),
    "settings_file": lambda file: read_given(file, _SECRET_BYTES),
    "secrets": _check_folder,
}
"""Reader of the file that a key names, whichever section has the key."""


def _fit(settings: msgspec.Struct) -> Iterator[tuple[str, Check]]:
    """Yield the checks of one daemon's settings against the files that they name."""
    match settings:
        case DaemonSettings():
            topology = load_topology(settings.topology)
            yield "program", partial(_check_schema, settings)
            yield "switches", partial(settings.targets, topology)
            yield "routed_networks", partial(_check_networks, settings, topology)
        case CollectorProcessSettings():
            yield "gnmi", partial(_check_gnmi, settings)
            yield "sflow", partial(_check_sflow, settings)
            yield "otlp", partial(_check_otlp, settings)
            yield "stamp", partial(_check_stamp, settings)
        case FabricSettings():
            yield "reports", partial(_check_reports, settings)
            if settings.program is not None:
                yield "program", partial(_check_program, settings.program, settings.p4info)
        case NodeSettings():
            if settings.token_file is not None:
                yield "token_file", partial(read_token, Path(settings.token_file))
            if settings.topology is not None:
                yield "node", partial(_check_hosts, load_topology(settings.topology), (settings.node,))
        case CentreSettings():
            if settings.token_file is not None:
                yield "token_file", partial(read_token, Path(settings.token_file))
            if settings.topology is not None:
                yield "hosts", partial(_check_hosts, load_topology(settings.topology), settings.hosts)
        case _:
            return


def _check_gnmi(settings: CollectorProcessSettings) -> None:
    if settings.gnmi is not None:
        check_devices(load_topology(settings.topology), settings.gnmi.devices, "devices")


def _check_sflow(settings: CollectorProcessSettings) -> None:
    if settings.sflow is not None:
        agents_of(load_topology(settings.topology), settings.sflow.devices, "devices")


def _check_otlp(settings: CollectorProcessSettings) -> None:
    if settings.otlp is not None:
        from collectors.exporters.otlp import OtlpDevices  # noqa: PLC0415 - needs an optional package

        OtlpDevices(load_topology(settings.topology), settings.otlp, "devices")


def _check_stamp(settings: CollectorProcessSettings) -> None:
    if settings.stamp is not None:
        StampLinks(load_topology(settings.topology), settings.stamp, "sessions")


def _check_schema(settings: DaemonSettings) -> None:
    from controller.network.p4runtime.session import load_schema  # noqa: PLC0415 - loads gRPC
    from controller.network.process import program_files  # noqa: PLC0415

    load_schema(*program_files(settings))


def _check_networks(settings: DaemonSettings, topology: Topology) -> None:
    from controller.network.tables.sources import check_networks  # noqa: PLC0415

    check_networks(topology, settings.routed_networks)


def _check_program(program: str, p4info: str | None) -> None:
    from dataplane.program.loader import load_program  # noqa: PLC0415

    load_program(Path(program), None if p4info is None else Path(p4info))


def _check_reports(settings: FabricSettings) -> None:
    topology = load_topology(settings.topology)
    if settings.reports is not None and topology.collector is None:
        raise MillraceError(f"topology {topology.name} has no collector that they could arrive at")


def _check_hosts(topology: Topology, hosts: tuple[str, ...]) -> None:
    stranger = next((host for host in hosts if host not in topology.host), None)
    if stranger is not None:
        raise MillraceError(f"topology {topology.name} has no host {stranger}")
