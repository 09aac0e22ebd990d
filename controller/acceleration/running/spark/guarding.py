"""Runs a command until standard input ends, then kills its whole process group: `python guarding.py COMMAND ...`.

Started as the leader of its own session, so that the group has the command and all that it starts, such as a worker's
executors, and nothing else. It outlives the command, for what that has left, and nothing outlives its parent.
"""

import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Run the command; report its end on standard output."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)  # noqa: S603 - its parent's

    def report() -> None:
        os.write(1, f"ended {process.wait()}\n".encode())

    threading.Thread(target=report, daemon=True).start()
    while os.read(0, 4096):
        continue
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
