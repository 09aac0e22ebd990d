"""Instrumentation of a running program: replaced names, and hooks of its libraries."""
