"""A switch's ports: names, states, and who hears of changes."""
