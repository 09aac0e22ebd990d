"""The readable interpreter of bmv2 programs: the reference that every faster pipeline is compared with.

A program is bound once, at load: each expression, primitive, parser state and table becomes a Python closure over slots
of one flat list of integers, the packet's state. Nothing looks at the program's tree while a packet is processed.
Behaviour follows bmv2's simple_switch; where bmv2 aborts (an assert, a stack index out of range, a division by zero)
the packet is dropped under a name instead.
"""

from __future__ import annotations

from dataplane.switch.interpreter.pipeline import InterpretedPipeline

__all__ = ["InterpretedPipeline"]
