"""Analyses of a program before code generation: data flow, ranges, validity, fields that need no clearing."""
