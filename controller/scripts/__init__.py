"""Scripts: what users write of pods and groups of pods, in YAML, and the resources that it stands for."""

from __future__ import annotations

from controller.scripts.reading import read_file, read_text
from controller.scripts.values import Scripted
from controller.scripts.writing import script_of

__all__ = ["Scripted", "read_file", "read_text", "script_of"]
