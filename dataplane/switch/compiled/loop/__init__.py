"""The loop of a forwarding thread: bursts in, passes through the pipeline, frames out."""
