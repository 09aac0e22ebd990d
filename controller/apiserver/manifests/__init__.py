"""Scripts: what users write of pods and groups of pods, in YAML, and the resources that it stands for."""

from __future__ import annotations

from controller.apiserver.manifests.reading import read_file, read_text
from controller.apiserver.manifests.values import Scripted
from controller.apiserver.manifests.writing import script_of

__all__ = ["Scripted", "read_file", "read_text", "script_of"]
