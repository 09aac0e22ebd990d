"""An agent without root, whose task is hostile: prints what that could do; run by test_centres_local.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.adversary.tenants.test_centres_local import attacked

if __name__ == "__main__":
    json.dump(attacked(Path.cwd())[0], sys.stdout)
