"""A real etcd for the tests of storages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controller.apiserver.storage.etcd_process import Etcd


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of an etcd that ends with the module's tests."""
    with Etcd(tmp_path_factory.mktemp("etcd")) as address:
        yield address
