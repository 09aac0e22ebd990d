"""A node that reports its status all the time, in a process of its own, and prints what each answer took.

Attackers of a siege share this machine's processors with the daemons, which those of a network do not. They run at
the lowest priority, and who measures the answers runs outside of their process.
"""

from __future__ import annotations

import os
import sys
import time

import httpx
import msgspec

INTERVAL_S = 0.25
ADDRESS, TOKEN = "MILLRACE_REPORTER_URL", "MILLRACE_REPORTER_TOKEN"


class Answer(msgspec.Struct, frozen=True, order=True):
    """Duration of an answer, the time since the start at which it was asked for, and what was wrong with it."""

    took_s: float
    at_s: float
    method: str
    problem: str = ""


def main() -> None:
    """Report until standard output is closed."""
    begun_s = time.monotonic()
    headers = {"Authorization": f"Bearer {os.environ[TOKEN]}"}
    with httpx.Client(base_url=os.environ[ADDRESS], headers=headers, timeout=60) as client:

        def timed(method: str, path: str, json: object = None) -> httpx.Response | None:
            asked_s, problem, answer = time.monotonic(), "", None
            try:
                answer = client.request(method, path, json=json)
                if answer.is_error:
                    problem = f"{answer.status_code} {answer.text[:200]}"
            except httpx.HTTPError as error:
                problem = repr(error)
            line = Answer(time.monotonic() - asked_s, asked_s - begun_s, method, problem)
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
            sys.stdout.flush()
            return answer

        while True:
            node = timed("GET", "/v1/nodes/h1")
            if node is not None and not node.is_error:
                timed("PUT", "/v1/nodes/h1/status", node.json())
            time.sleep(INTERVAL_S)


if __name__ == "__main__":
    main()
