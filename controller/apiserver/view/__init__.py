"""The operators' page: its session, its files, and what it shows, as a stream of frames and answers."""
