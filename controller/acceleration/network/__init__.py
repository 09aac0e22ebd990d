"""Time of a reduction over a fabric: the senders and receivers of each round, and its duration over the real paths."""
