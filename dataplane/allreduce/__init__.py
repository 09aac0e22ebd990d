"""Worker side of in-network all-reduce: protocol, packet engine, number formats, PyTorch hook."""
