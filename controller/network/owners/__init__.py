"""Owners of switches' tables: one for each part of them, all behind one protocol (`base.Owner`)."""
