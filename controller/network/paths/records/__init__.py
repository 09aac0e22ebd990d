"""What the path server keeps: records of hops, decisions and routes, in SQLite."""
