"""The slot protocol in plain Python: reference for the P4 program and the packet engine, and model for exploration."""
