"""Policies by which operators choose devices at placement: of tasks on centres' units, of pods on nodes."""
