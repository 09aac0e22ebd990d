"""What is to be done about a node's pods, what is reported of them and what is asked of a runtime; all of it pure."""
