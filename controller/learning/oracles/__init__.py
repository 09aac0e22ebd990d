"""Upper bounds with knowledge of the future: `searching` for decisions, `belady` for evictions alone."""
