"""Decoding of reports: hop records, reassembled postcards, sequence numbers, samples of links."""
