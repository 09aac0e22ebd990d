"""Code for a program's blocks: parsers, controls, tables, deparsers, and their primitives."""
