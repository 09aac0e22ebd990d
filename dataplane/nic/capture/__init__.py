"""Capture files: pcap and pcapng."""
