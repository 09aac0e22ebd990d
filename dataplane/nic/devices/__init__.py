"""Network devices as Linux has them: what they are, their rings, offloads and steering."""
