"""Values that commands take: names of topologies, of their nodes and links, of fabrics, daemons and API objects.

Each function takes the values given before on the command line. None of them starts or changes anything, and each reads
only files of ours, or asks a server on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

Given = Mapping[str, str]
Source = Callable[[Given], Iterable[str]]

FAMILIES: Final = ("fat-tree", "leaf-spine", "ring")
"""Families of topologies, whose module also makes them."""
FABRICS: Final = Path("/run/millrace-fabrics")
"""Folder of the fabrics in the kernel."""
MOST: Final = 1000
"""Number of candidates at most."""
_ANSWER_S: Final = 2.0
"""Longest wait for a server: a shell that completes a word must not hang."""


def topologies(_: Given) -> list[str]:
    """Return the bundled topologies and the families."""
    return sorted({*(path.stem for path in _topologies_folder().glob("*.yaml")), *FAMILIES})


def hosts(given: Given) -> list[str]:
    """Return the hosts of the named topology, or of the one in use."""
    return _names(_document(given), "hosts")


def switches(given: Given) -> list[str]:
    """Return the switches of the named topology, or of the one in use."""
    return _names(_document(given), "switches")


def links(given: Given) -> list[str]:
    """Return both directions of each link between switches."""
    document = _document(given)
    ends = [(link.get("a"), link.get("b")) for link in document.get("links") or () if isinstance(link, dict)]
    return [f"{start}->{end}" for a, b in ends for start, end in ((a, b), (b, a))]


def fabrics(_: Given) -> list[str]:
    """Return the names of the fabrics in the kernel."""
    return [str(manifest.get("fabric_id")) for manifest in _manifests() if manifest.get("topology")]


def fabric_hosts(given: Given) -> list[str]:
    """Return the hosts of the named fabric, or of all."""
    fabric = given.get("--fabric")
    chosen = (manifest for manifest in _manifests() if fabric in {None, manifest.get("fabric_id")})
    return [host for manifest in chosen for host in manifest.get("hosts") or ()]


def switch_addresses(given: Given) -> list[str]:
    """Return addresses of the switches of `millrace up` and of fabrics in the kernel, and sockets of this folder."""
    from dataplane.rpc.own_folder import own_folders  # noqa: PLC0415 - most completions need no sockets

    runs = {folder for own in own_folders() if _is_readable(own) for folder in (own, *own.glob("up-*"))}
    noted = _state(given) / "run"
    if _is_readable(noted):
        runs.add(Path(noted.read_text(encoding="utf-8").rstrip("\n")))
    folders = [
        *(run / "switches" for run in sorted(runs)),
        *(FABRICS.glob("*/") if _is_readable(FABRICS) else ()),
        Path(),
    ]
    sockets = (path for folder in folders if _is_readable(folder) for path in sorted(folder.glob("*.sock")))
    return [f"unix:{path}" for path in sockets]


def daemons(given: Given) -> list[str]:
    """Return the daemons that `millrace up` runs or has run: those with a log."""
    return sorted(path.stem for path in (_state(given) / "logs").glob("*.log"))


def interfaces(_: Given) -> list[str]:
    """Return this machine's network devices."""
    return sorted(os.listdir("/sys/class/net"))  # noqa: PTH208 - names alone


def objects(given: Given, plural: str | None = None) -> list[str]:
    """Return names of API objects of a kind, by default the kind given before."""
    from dataplane.rpc.own_folder import default_address  # noqa: PLC0415

    if plural is None:
        word = given.get("kind", "")
        plural = next((kind for kind in _kinds() if word.lower() in {kind, kind.removesuffix("s")}), None)
        if plural is None:
            return []
    address = given.get("--api") or os.environ.get("MILLRACE_API") or default_address("api")
    if address.startswith("unix:") and not os.environ.get("MILLRACE_TOKEN_FILE"):
        return _listed(address.removeprefix("unix:").removeprefix("//"), plural)
    return _listed_by_client(address, plural)


def _listed(socket_path: str, plural: str) -> list[str]:
    """Return names from the API server at our own user's socket."""
    import http.client  # noqa: PLC0415 - as is all below
    import json  # noqa: PLC0415
    import socket  # noqa: PLC0415

    from dataplane.rpc.own_folder import foreign_socket  # noqa: PLC0415

    if foreign_socket(Path(socket_path)) is not None:
        return []
    connection = http.client.HTTPConnection("api", timeout=_ANSWER_S)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.settimeout(_ANSWER_S)
        opened.connect(socket_path)
        connection.sock = opened
        try:
            connection.request("GET", f"/v1/{plural}?limit={MOST}")
            response = connection.getresponse()
            items = json.loads(response.read())["items"] if response.status == http.client.OK else []
        except (http.client.HTTPException, ValueError, KeyError):
            return []
    return [item["metadata"]["name"] for item in items]


def _listed_by_client(address: str, plural: str) -> list[str]:
    """Return names from a server over TLS, or for a token: by the client that knows the rules for both."""
    from controller.apiserver.client import SyncApiClient, find_place  # noqa: PLC0415
    from controller.apiserver.resources import KINDS  # noqa: PLC0415

    kind = KINDS.typed(plural)
    if kind is None:
        return []
    with SyncApiClient(find_place(address), tries=1, answer_s=_ANSWER_S) as client:
        return [resource.metadata.name for resource in client.of(kind.type).list().items]


def _kinds() -> list[str]:
    """Return the plurals of all kinds, which are choices of `get`."""
    from controller.apps.cli.completion.grammar import TABLE, Grammar  # noqa: PLC0415

    grammar = Grammar(TABLE.read_text(encoding="utf-8"))
    return (grammar.command(("get",)).arguments[0].values or "").split(",")


def _topologies_folder() -> Path:
    # dataplane.topology.file knows it, too, and imports YAML, msgspec and the schema.
    import dataplane  # noqa: PLC0415

    package = Path(dataplane.__file__).parent
    installed = package / "topology" / "topologies"
    return installed if installed.is_dir() else package.parent / "topologies"


def _document(given: Given) -> dict[str, Any]:
    """Return the document of the topology given before, else of the one that `millrace up` runs; {} without one."""
    import yaml  # noqa: PLC0415

    from dataplane.given import DOCUMENT_BYTES, read_given  # noqa: PLC0415

    spec = given.get("--topology") or given.get("topology") or given.get("spec")
    if spec is None:
        path = _state(given) / "generated" / "topology.yaml"
    elif ":" in spec:
        return _of_family(spec)
    else:
        path = Path(spec) if "/" in spec or "." in spec else _topologies_folder() / f"{spec}.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(read_given(path, DOCUMENT_BYTES), Loader=loader)  # noqa: S506 - a safe loader
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}


def _of_family(spec: str) -> dict[str, Any]:
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    topology = load_topology(spec)
    return {
        "hosts": [{"name": node.name} for node in topology.hosts],
        "switches": [{"name": node.name} for node in topology.switches],
        "links": [{"a": link.a.node, "b": link.b.node} for link in topology.links],
    }


def _names(document: Mapping[str, Any], kind: str) -> list[str]:
    nodes = document.get(kind)
    return [str(node["name"]) for node in nodes or () if isinstance(node, dict) and "name" in node]


def _manifests() -> list[dict[str, Any]]:
    import json  # noqa: PLC0415

    manifests = []
    for path in sorted(FABRICS.glob("*/manifest.json")) if _is_readable(FABRICS) else ():
        try:
            manifests.append(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return [manifest for manifest in manifests if isinstance(manifest, dict)]


def _is_readable(path: Path) -> bool:
    # Unlike Path.exists it raises nothing for folders of others.
    return os.access(path, os.R_OK)


def _state(given: Given) -> Path:
    from controller.apps.up.places import default_state  # noqa: PLC0415

    return Path(given["--state"]) if "--state" in given else default_state()


_OBJECTS: Final = (
    *("centres", "nodes", "podgroups", "pods", "probekernels", "probetasks", "projects", "scoringpolicies"),
    *("tasks", "unitpools"),
)
SOURCES: Final[Mapping[str, Source]] = {
    "topologies": topologies,
    "hosts": hosts,
    "switches": switches,
    "links": links,
    "fabrics": fabrics,
    "fabric-hosts": fabric_hosts,
    "switch-addresses": switch_addresses,
    "daemons": daemons,
    "interfaces": interfaces,
    "objects": objects,
    **{plural: partial(objects, plural=plural) for plural in _OBJECTS},
}
"""Sources by the names in commands.txt."""
