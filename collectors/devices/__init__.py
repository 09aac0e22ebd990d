"""Hardware of a machine and its load, read-only: /proc, /sys, control groups, NVML."""
