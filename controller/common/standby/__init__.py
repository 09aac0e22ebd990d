"""Daemons in pairs, one active and one standing by, by a lease in SQLite or etcd."""
