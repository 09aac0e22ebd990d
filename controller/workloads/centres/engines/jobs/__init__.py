"""Shared parts of engines: the keeper of each job, the folders that record jobs, and the known jobs of a cluster."""
