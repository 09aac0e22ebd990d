"""Deciders, the controller daemon and the command line."""
