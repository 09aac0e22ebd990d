"""Strict settings: YAML, TOML and JSON files to frozen values, with the location of each error."""

from dataplane.config.reading import (
    DecodeHook,
    Document,
    Settings,
    Strict,
    load,
    load_document,
    loads,
    loads_document,
    loads_documents,
)
from dataplane.config.writing import document_of

__all__ = [
    "DecodeHook",
    "Document",
    "Settings",
    "Strict",
    "document_of",
    "load",
    "load_document",
    "loads",
    "loads_document",
    "loads_documents",
]
