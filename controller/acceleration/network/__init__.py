"""What a reduction takes over a fabric: who sends to whom in which round, and how long that is over the real paths."""
