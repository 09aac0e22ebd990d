"""Pure deciders of the path server: the estimated state of links, and which flow should move where."""
