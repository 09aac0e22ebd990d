"""Extras of `millrace-net` that provide optional packages, to tell users how to install a missing one."""

from __future__ import annotations

from typing import Final

EXTRA_OF: Final = {
    "aetcd": "etcd",
    "duckdb": "history",
    "gymnasium": "gym",
    "httpx": "schedulers",
    "jwt": "schedulers",
    "litestar": "schedulers",
    "matplotlib": "demo",
    "mininet": "mininet",
    "networkx": "demo",
    "opentelemetry": "otel",
    "pyarrow": "history",
    "pynvml": "nvml",
    "pyspark": "spark",
    "scapy": "scapy",
    "scipy": "schedulers",
    "thrift": "thrift",
    "torch": "train",
    "uvicorn": "schedulers",
}
"""Optional packages by import name, each with the smallest extra that provides it."""


def missing(who: str, error: ModuleNotFoundError) -> str | None:
    """Return a line that says what `who` needs and how to install it; None if no extra provides it."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        return None
    return f"{who} needs {package}: pip install 'millrace-net[{EXTRA_OF[package]}]'"
