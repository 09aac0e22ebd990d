"""How reports come in: datagrams from sockets, frames from devices and capture files."""
