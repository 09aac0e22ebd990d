"""Services that answer when a reader comes to a block, and programs that ask them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.soak.pages.workspace import LackingError, Workspace


def _accel_workers(workspace: Workspace) -> None:
    """Hosts 10.0.0.1 to 10.0.0.3, with workers on the first two, and the tables of the page's orders.py."""
    for host in (1, 2, 3):
        workspace.call(f"ip address add 10.0.0.{host}/32 dev lo")
    for host in (1, 2):
        command = f"millrace accel worker --listen 10.0.0.{host}:7700 --secret-file ~/.millrace-accel"
        workspace.start(command, ready="worker: ready")
    workspace.call("python orders.py")


def _api_example(workspace: Workspace) -> None:
    """The page's api.yaml, served as api.example with TLS; a user's token in the environment."""
    with Path("/etc/hosts").open("a", encoding="utf-8") as hosts:
        hosts.write("127.0.0.1 api.example\n")
    workspace.call(
        "mkdir /var/lib/millrace && millrace certs authority && millrace certs issue api --address api.example"
    )
    served = (
        'listen: ["unix:api.sock", "127.0.0.1:8443"]\ntls: {certificate: certs/api.crt, private_key: certs/api.key}\n'
    )
    workspace.write("served.yaml", (workspace.folder / "api.yaml").read_text() + served)
    workspace.start("millrace api serve --settings served.yaml", ready="millrace api: ready")
    workspace.call("MILLRACE_API=unix:api.sock millrace api token create --role user -o user.token")
    workspace.environment["TOKEN"] = (workspace.folder / "user.token").read_text().strip()
    workspace.environment["CURL_CA_BUNDLE"] = str(workspace.folder / "certs/authority.crt")


def _grpcurl(workspace: Workspace) -> None:
    """The program grpcurl, which neither Debian nor PyPI has from its makers."""
    if shutil.which("grpcurl", path=workspace.environment["PATH"]) is None:
        raise LackingError("grpcurl on the PATH")


SCENES: Final[dict[str, Callable[[Workspace], None]]] = {
    "accel workers": _accel_workers,
    "api.example": _api_example,
    "grpcurl": _grpcurl,
}
