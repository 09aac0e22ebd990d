"""One machine of a pool: its tiers, their sensors, and the server of their blocks."""
