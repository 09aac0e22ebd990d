"""Compiles P4 programs: `emit_program` writes a program's functions to a module of LLVM code.

One function each for the parser, every control, every action and the deparser. They compute what
`dataplane.switch.interpreter` does, for every program and packet; the memory that they share with the code around them
is in `dataplane.switch.abi`.
"""

from __future__ import annotations

from dataplane.switch.compiler.program import ProgramLayout, emit_program

__all__ = ["ProgramLayout", "emit_program"]
