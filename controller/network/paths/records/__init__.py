"""Records that the path server keeps in SQLite: hops, decisions and routes."""
