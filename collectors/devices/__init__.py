"""What a machine is made of and how busy that is, by reading only: /proc, /sys, control groups, NVML."""
