"""The compiler's entry point: all functions of a program, written to a module of LLVM code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from dataplane.native import Module
from dataplane.program.model import Program
from dataplane.switch.compiler.blocks.accessors import emit_accessors
from dataplane.switch.compiler.blocks.control import emit_control
from dataplane.switch.compiler.blocks.deparser import emit_deparser
from dataplane.switch.compiler.blocks.events import emit_digests
from dataplane.switch.compiler.blocks.parser import emit_parser
from dataplane.switch.compiler.lowering.layout import Layout
from dataplane.switch.compiler.lowering.routine import I32, POINTER, Emission, LogText


@dataclass(frozen=True, slots=True)
class ProgramLayout:
    """Layout that the code around a compiled program needs; tables and so on are in the order of their mappings.

    `region_bytes` is the memory of a packet's headers and metadata. `log_messages` are numbered by position.
    """

    region_bytes: int
    tables: tuple[str, ...]
    actions: tuple[str, ...]
    counters: tuple[str, ...]
    registers: tuple[str, ...]
    meters: tuple[str, ...]
    value_sets: tuple[str, ...]
    digests: tuple[str, ...]
    log_messages: tuple[LogText, ...]


def emit_program(program: Program, module: Module, *, threads: int = 1, internal: bool = False) -> ProgramLayout:
    """Write all functions of a program to a module; raise ProgramError naming what is not supported.

    With one thread there are no locks around registers. `internal` functions are visible only to the module's other
    code.
    """
    emission = Emission(program, Layout(program), module, threads)

    def declare(name: str, result: ir.Type, parameters: Sequence[ir.Type]) -> ir.Function:
        return emission.declare(name, result, parameters, internal=internal)

    def declare_large(name: str, parameters: Sequence[ir.Type]) -> ir.Function:
        function = declare(name, I32, parameters)
        function.attributes.add("noinline")  # optimisation time grows faster than a function's length
        return function

    emit_accessors(emission, declare)
    emit_parser(emission, declare_large("p4_parse", [POINTER, POINTER]))
    emit_control(emission, program.ingress, declare_large("p4_ingress", [POINTER, POINTER]))
    emit_control(emission, program.egress, declare_large("p4_egress", [POINTER, POINTER]))
    emit_deparser(emission, declare_large("p4_deparse", [POINTER, POINTER, POINTER, I32]))
    emit_digests(emission, declare)
    return ProgramLayout(
        region_bytes=emission.layout.region_bytes,
        tables=tuple(program.tables),
        actions=tuple(program.actions),
        counters=tuple(program.counters),
        registers=tuple(program.registers),
        meters=tuple(program.meters),
        value_sets=tuple(program.value_sets),
        digests=tuple(program.digests),
        log_messages=tuple(emission.log_messages),
    )
