"""Leases in storage that several processes share: an SQLite file on one machine, etcd on several."""
