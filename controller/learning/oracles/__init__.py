"""What could have been gained by who knows the future: `searching` for decisions, `belady` for evictions alone."""
