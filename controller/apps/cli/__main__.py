"""`python -m controller.apps.cli` is `millrace`."""

from controller.apps.cli import main

main()
