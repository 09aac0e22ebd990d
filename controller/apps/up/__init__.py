"""One command for all: the daemons of a fabric under one supervisor, their settings from one file."""
