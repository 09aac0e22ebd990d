"""p4c's simple test framework: test files parsed into statements and run on a switch in virtual time."""

from enum import StrEnum


class PipelineName(StrEnum):
    """Executor of a test's program; defined here, away from the factories, so that help output is fast."""

    COMPILED = "compiled"
    INTERPRETER = "interpreter"
