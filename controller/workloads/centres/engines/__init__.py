"""Engines that run a centre's jobs, behind one interface (base.py)."""
