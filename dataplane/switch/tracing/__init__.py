"""Packet traces: what a program did with a packet, step by step, as values, as text and as JSON.

`explainer.Explainer` takes one frame through the interpreter and returns its `steps.PacketTrace`;
`pipeline.TracedPipeline` is the interpreter that records its steps. docs/network/trace.md is the reference.
"""
