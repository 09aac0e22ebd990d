"""The files beside a program's JSON: how they are found, and what p4c's entries file says."""
