"""etcd is away for a minute: the API server reads on, refuses writes at once, and needs no restart.

Usage: python -m tests.soak.etcd_away [--seconds N]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from controller.apiserver.settings import StoragePlace
from dataplane.leases.place import EtcdPlace
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.apiserver.storage.etcd_process import Etcd
from tests.controller.apiserver.test_storage_away import act


async def soak(folder: Path, away_s: float) -> int:
    """Return how many writes were refused while etcd was away."""
    (folder / "etcd").mkdir()
    etcd = Etcd(folder / "etcd")
    with etcd as address:
        storage = StoragePlace(etcd=EtcdPlace(addresses=(address,), timeout_s=2.0))
        async with serving(settings_in(folder, storage), folder) as served:
            return await act(served, etcd, away_s)


def main() -> None:
    """Run; an assertion that fails says what did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="etcd-away-") as folder:
        refused = asyncio.run(soak(Path(folder), options.seconds))
    print(f"etcd away for {options.seconds:g} s: {refused} writes refused, all reads answered, then as before")


if __name__ == "__main__":
    main()
