"""`python -m dataplane.switch.drop_in NAME ARGUMENT...`: the switch under one of bmv2's names, as shims start it."""

from __future__ import annotations

import sys

from dataplane.switch.process import main

sys.exit(main(sys.argv[2:], sys.argv[1]))
