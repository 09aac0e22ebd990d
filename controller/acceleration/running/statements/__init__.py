"""Statements of SQL in parts: one for each shard, one that merges, and one that finishes at the root."""
