"""Policies that let operators choose devices at placement: of tasks on centres' units, and of pods on nodes."""
