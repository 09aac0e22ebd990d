"""Programs of this machine, and deadlines that its load stretches."""
