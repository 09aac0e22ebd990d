"""What calls of numpy, scipy and torch compute, as kinds of operators with sizes: pure functions of a call."""
