"""Queries that Apache Spark has run, from its event logs, and plans that it has made: what accelerators would gain."""
