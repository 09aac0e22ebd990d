"""The demo in the operators' page."""
