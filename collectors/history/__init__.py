"""The network's state over time: Parquet files that the collector writes, merges as they age, and DuckDB queries.

`settings` says where and how long; `schema` has every column and how it merges; `rows` turns values into rows;
`journal` and `files` are the bytes on disk; `writer` writes, `retention` deletes, `downsample` merges;
`recorder` runs them in the collector; `query` reads.
"""
