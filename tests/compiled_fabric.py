"""The fabric's program as machine code, for tests whose clients give a switch ten seconds to take it."""

from __future__ import annotations

from controller.network.p4runtime.session import fabric_program
from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program


def compile_fabric() -> None:
    """Have it in the cache: compile it here, where that may take as long as it takes on a busy machine."""
    p4info, program = fabric_program()
    compile_program(load_program(program, p4info), Purpose.FORWARDING)
