"""Compiled P4 programs as typed values: bmv2 JSON and P4Info."""
