"""Extras of `millrace-net` that provide optional packages, to tell users how to install a missing one."""

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
"""Packages by import name, with the only extra that exists for them."""

_IN_LARGER: Final = frozenset(
    {
        *("duckdb", "finsy", "httpx", "jwt", "litestar", "matplotlib", "networkx", "prometheus_client"),
        *("pyarrow", "rich", "scipy", "typer", "uvicorn"),
    }
)
"""Packages that come with the extras of whole parts; `demo` has all of them."""


def missing(who: str, error: ModuleNotFoundError, extra: str = "demo") -> str | None:
    """Return a line that says what `who` needs and how to install it; None if no extra provides it.

    `extra` is named for packages that several extras provide.
    """
    package = (error.name or "").partition(".")[0]
    if package in _IN_LARGER:
        return f"{who} needs {package}: pip install 'millrace-net[{extra}]'"
    if package in _ONLY_IN:
        return f"{who} needs {package}: pip install 'millrace-net[{_ONLY_IN[package]}]'"
    return None
