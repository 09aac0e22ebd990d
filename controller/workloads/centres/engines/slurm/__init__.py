"""Jobs by Slurm: `sbatch`, `squeue --json`, `sinfo --json`, `scancel`."""

from __future__ import annotations

from controller.workloads.centres.engines.slurm.engine import SlurmEngine
from controller.workloads.centres.engines.slurm.settings import SlurmSettings

__all__ = ["SlurmEngine", "SlurmSettings"]
