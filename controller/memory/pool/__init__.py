"""A pool over several machines: its catalogue of blocks, the mover, the decision where a request runs, and replays."""
