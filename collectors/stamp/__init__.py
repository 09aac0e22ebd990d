"""Delays of links by active probes (STAMP, RFC 8762), where nothing marks packets."""
