"""Daemons of `millrace up`: started, watched, restarted, and changed by a reload."""
