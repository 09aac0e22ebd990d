"""A SQL task at a compute centre: from its files to its rows."""
