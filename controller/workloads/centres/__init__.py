"""A compute centre's agent: what the centre has as units, which tasks run on them, what probes have measured there."""
