"""User-facing programs: the commands, the single-machine supervisor, the demos."""
