"""Child processes in a cable's namespace for what a test cannot do itself: lose rights, lack memory, die."""

from __future__ import annotations

import os
import subprocess
import sys

from dataplane.fabric.kernel import namespaces
from tests.dataplane.nic.conftest import Cable
from tests.waiting import HANG_S

PRELUDE = """
import ctypes, gc, os, resource, sys, time
from dataplane.errors import PortError
from dataplane.nic import PortKind, RingSettings, open_port
from dataplane.nic.devices import ethernet# before a child loses the right to read what it imports
from dataplane.nic.driver.opening import DEVICE_KINDS

libc = ctypes.CDLL(None, use_errno=True)

def change_user(number):
    assert libc.prctl(8, 1, 0, 0, 0) == 0  # PR_SET_KEEPCAPS
    os.setresuid(number, number, number)

def drop_capabilities(*numbers):
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    assert libc.capget(header, sets) == 0
    sets[0], sets[3] = sets[1], sets[4]  # a change of user leaves none effective
    for number in numbers:
        for which in range(3):
            sets[number // 32 * 3 + which] &= ~(1 << number % 32) & 0xFFFFFFFF
    assert libc.capset(header, sets) == 0

def try_to_open(kind, **settings):
    try:
        open_port("here", kind, settings=RingSettings(**settings)).close()
    except PortError as error:
        print(error)
    else:
        print("opened")
"""


def start_child(cable: Cable, text: str) -> subprocess.Popen[bytes]:
    """Start a Python program inside the namespace, after `PRELUDE`; the caller must end it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", PRELUDE + text]
    return namespaces.start(cable.namespace, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def run_child(cable: Cable, text: str) -> list[str]:
    """Run a program to its end and return its lines of output."""
    with start_child(cable, text) as child:
        printed, _ = child.communicate(timeout=HANG_S)
    assert child.returncode == 0
    return printed.decode().splitlines()
