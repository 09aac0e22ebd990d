"""Graphs of tasks: which of them may begin, which are cancelled, and which come first; pure."""
