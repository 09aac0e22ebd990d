"""Which extra of `millrace-net` brings a package that not every part needs: who lacks one is told how to get it."""

from __future__ import annotations

from typing import Final

_ONLY_IN: Final = {
    "aetcd": "etcd",
    "cryptography": "tls",
    "gymnasium": "gym",
    "mininet": "mininet",
    "opentelemetry": "otel",
    "pynvml": "nvml",
    "scapy": "scapy",
    "thrift": "thrift",
    "torch": "torch",
}
"""Packages by the name they are imported by, and the one extra that they are the purpose of."""

_IN_LARGER: Final = frozenset(
    {
        *("duckdb", "finsy", "httpx", "jwt", "litestar", "matplotlib", "networkx", "prometheus_client"),
        *("pyarrow", "rich", "scipy", "typer", "uvicorn"),
    }
)
"""Packages that come with the extras of whole parts; `demo` has all of them."""


def missing(who: str, error: ModuleNotFoundError, extra: str = "demo") -> str | None:
    """Return a line that says what `who` needs and how to install it; None if no extra brings what is not there.

    `extra` is named for packages that several extras bring.
    """
    package = (error.name or "").partition(".")[0]
    if package in _IN_LARGER:
        return f"{who} needs {package}: pip install 'millrace-net[{extra}]'"
    if package in _ONLY_IN:
        return f"{who} needs {package}: pip install 'millrace-net[{_ONLY_IN[package]}]'"
    return None
