"""The rate that tc holds a device to, as tc itself set it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from dataplane.fabric.kernel import namespaces
from dataplane.nic.devices.shaping import shaped_rate_bps
from tests.network_namespace import network_namespace

HTB = ("qdisc add dev a1 root handle 5:0 htb default 1", "class add dev a1 parent 5:0 classid 5:1 htb rate 500kbit")
BORROWS = ("class add dev a1 parent 5:1 classid 5:2 htb rate 100kbit ceil 200kbit",)


@pytest.mark.root
def test_htb_with_one_class_and_tbf() -> None:
    if shutil.which("tc") is None:
        pytest.skip("needs tc, of iproute2")
    with network_namespace(("a1", "b1")) as namespace:

        def tc(*commands: str) -> int | None:
            for command in commands:
                made = subprocess.run(["ip", "netns", "exec", namespace, "tc", *command.split()], check=False)
                if made.returncode:
                    pytest.skip(f"this kernel has no such discipline: tc {command}")
            return namespaces.call(namespace, lambda: shaped_rate_bps("a1"))

        assert tc() is None
        assert tc(*HTB) == 500_000
        assert tc(*BORROWS) is None  # two classes: filters decide which one a packet goes through
        assert tc("qdisc del dev a1 root", "qdisc add dev a1 root tbf rate 3mbit burst 32k latency 50ms") == 3_000_000
        assert namespaces.call(namespace, lambda: shaped_rate_bps("none")) is None
