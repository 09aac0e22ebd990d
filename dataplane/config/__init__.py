"""Strict settings: YAML, TOML and JSON files to frozen values, with the location of each error."""

from dataplane.config.reading import (
    DecodeHook,
    Document,
    Strict,
    load,
    load_document,
    loads,
    loads_document,
    loads_documents,
)

__all__ = [
    "DecodeHook",
    "Document",
    "Strict",
    "load",
    "load_document",
    "loads",
    "loads_document",
    "loads_documents",
]
