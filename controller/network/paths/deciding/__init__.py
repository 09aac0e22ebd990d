"""Pure deciders of the path server: what is believed of links, and which flow should move where."""
