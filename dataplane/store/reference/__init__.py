"""The store in plain Python: reference for the P4 program, and model for exploration."""
