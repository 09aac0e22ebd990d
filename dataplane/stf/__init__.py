"""p4c's simple test framework: test files parsed into statements and run on a switch in virtual time."""

from enum import StrEnum


class PipelineName(StrEnum):
    """What executes the program of a test; here, and not beside what makes them, so that asking for help is quick."""

    COMPILED = "compiled"
    INTERPRETER = "interpreter"
