"""The files next to a program's JSON: finds them, and reads p4c's entries file."""
