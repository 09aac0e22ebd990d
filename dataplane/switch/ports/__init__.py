"""A switch's ports: names, states, and listeners to changes."""
