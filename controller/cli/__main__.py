"""`python -m controller.cli` is `millrace`."""

from controller.cli import main

main()
