"""Services that answer when a reader comes to a block, and programs that ask them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.soak.pages.place import LackingError, Place


def _accel_workers(place: Place) -> None:
    """Hosts 10.0.0.1 to 10.0.0.3, with workers on the first two, and the tables of the page's orders.py."""
    for host in (1, 2, 3):
        place.call(f"ip address add 10.0.0.{host}/32 dev lo")
    for host in (1, 2):
        command = f"millrace accel worker --listen 10.0.0.{host}:7700 --secret-file ~/.millrace-accel"
        place.start(command, ready="worker: ready")
    place.call("python orders.py")


def _api_example(place: Place) -> None:
    """The page's api.yaml, served as api.example with TLS; a user's token in the environment."""
    with Path("/etc/hosts").open("a", encoding="utf-8") as hosts:
        hosts.write("127.0.0.1 api.example\n")
    place.call("mkdir /var/lib/millrace && millrace certs authority && millrace certs issue api --address api.example")
    served = (
        'listen: ["unix:api.sock", "127.0.0.1:8443"]\ntls: {certificate: certs/api.crt, private_key: certs/api.key}\n'
    )
    place.write("served.yaml", (place.folder / "api.yaml").read_text() + served)
    place.start("millrace api serve --settings served.yaml", ready="millrace api: ready")
    place.call("MILLRACE_API=unix:api.sock millrace api token create --role user -o user.token")
    place.environment["TOKEN"] = (place.folder / "user.token").read_text().strip()
    place.environment["CURL_CA_BUNDLE"] = str(place.folder / "certs/authority.crt")


def _grpcurl(place: Place) -> None:
    """The program grpcurl, which neither Debian nor PyPI has from its makers."""
    if shutil.which("grpcurl", path=place.environment["PATH"]) is None:
        raise LackingError("grpcurl on the PATH")


SCENES: Final[dict[str, Callable[[Place], None]]] = {
    "accel workers": _accel_workers,
    "api.example": _api_example,
    "grpcurl": _grpcurl,
}
