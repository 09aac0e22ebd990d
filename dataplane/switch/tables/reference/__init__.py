"""Tables in plain Python, correct by inspection: the reference for the indices."""
