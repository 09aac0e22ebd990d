#!/usr/bin/env python3
"""Starts a Millrace topology under Mininet, with the built-in switch or with bmv2's simple_switch_grpc.

    sudo .venv/bin/python topologies/millrace_mininet.py topologies/abilene.yaml --switch millrace

Switches run in the root namespace and answer P4Runtime on 127.0.0.1, port 50000 plus device id; they start without a
program, which a controller installs. Hosts have the addresses of the topology and need no ARP. Links of the built-in
switch have the file's rates, delays and queues; those of bmv2 have none. Mininet's prompt follows; leaving it stops
everything.

Needs root and Mininet: Debian's package, or one that this Python can import. `make mininet` installs it.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
from pathlib import Path

from dataplane.errors import FabricError, MillraceError
from dataplane.topology.file import load_topology

SOURCE = Path(__file__).resolve().parents[1]
SYSTEM_PACKAGES = Path("/usr/lib/python3/dist-packages")
"""Folder of Debian's and Ubuntu's packages of their own Python, which other Pythons do not search."""


def find_mininet(system: Path = SYSTEM_PACKAGES) -> None:
    """Let this Python import Mininet, but no other system packages; raise FabricError if there is none."""
    if importlib.util.find_spec("mininet") is not None:
        return
    folder = system / "mininet"
    spec = importlib.util.spec_from_file_location(
        "mininet", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not folder.is_dir():
        raise FabricError("there is no Mininet: sudo apt-get install --no-install-recommends mininet, or make mininet")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = module
    spec.loader.exec_module(module)


def main() -> int:
    """Run from a command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topology", help="a file, a bundled name, or a family such as leaf-spine:spines=2,leaves=4")
    parser.add_argument("--switch", choices=("millrace", "bmv2"), default="millrace")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        topology = load_topology(arguments.topology)
        find_mininet()
        sys.path.append(str(SOURCE))
        from topologies.mininet_network import run  # noqa: PLC0415 - Mininet can be imported by now

        run(topology, arguments.switch)
    except MillraceError as error:
        print(f"millrace_mininet: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
