"""Descriptions of numpy, scipy and torch calls as operator kinds with sizes: pure functions of a call."""
