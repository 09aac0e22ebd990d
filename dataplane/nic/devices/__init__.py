"""Network devices as Linux presents them: their properties, rings, offloads and steering."""
