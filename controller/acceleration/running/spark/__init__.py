"""Statements that the split refuses, on Apache Spark: bound plans as Spark SQL, standalone clusters, and sessions."""
