"""Ingest of reports: datagrams from sockets, frames from devices and capture files."""
