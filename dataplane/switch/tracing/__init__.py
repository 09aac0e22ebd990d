"""A packet that explains itself: what a program did with it, step by step, as values, as text and as JSON.

`explainer.Explainer` takes one frame through the interpreter and returns its `steps.PacketTrace`;
`pipeline.TracedPipeline` is the interpreter that notes what it does. docs/network/trace.md is the reference.
"""
