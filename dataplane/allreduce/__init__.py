"""The worker's side of sums that switches make: protocol, packet engine, number formats, PyTorch hook."""
