"""Manifests: the YAML that users write for pods and pod groups, and the resources that it describes."""

from __future__ import annotations

from controller.apiserver.manifests.reading import read_file, read_text
from controller.apiserver.manifests.values import Scripted
from controller.apiserver.manifests.writing import script_of

__all__ = ["Scripted", "read_file", "read_text", "script_of"]
