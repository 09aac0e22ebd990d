"""p4lang's tutorials under Mininet, as people run them, with our switch and with bmv2: output of each exercise.

    MILLRACE_TUTORIALS=~/tutorials python -m tests.soak.tutorials --switch millrace --switch bmv2 basic calc

MILLRACE_TUTORIALS is a checkout of github.com/p4lang/tutorials, which stays unchanged: exercises run in a copy.
Its programs want Mininet, P4Runtime (with p4.tmp, as p4lang's PI installs it), p4runtime-shell, psutil and Scapy of
`python3`, which is that of MILLRACE_TUTORIALS_BIN, a folder of an environment, or else of the PATH. p4c-bm2-ss, root.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from dataplane.switch.bmv2 import EXECUTABLE, thrift_words
from dataplane.switch.drop_in.shims import install
from tests.soak.tutorial_network import Network, TutorialError, fields, packets

MILLRACE, BMV2 = "millrace", "bmv2"
SWITCHES: Final = (MILLRACE, BMV2)
NEEDS: Final = "mininet.net, p4.v1.p4runtime_pb2, p4.tmp.p4config_pb2, psutil, scapy.all, grpc"

Result: TypeAlias = Mapping[str, object]
"""Output of an exercise, without parts that differ between runs."""


_ADDRESSED = ("Ethernet.dst", "Ethernet.src", "Ethernet.type", "IP.src", "IP.dst", "IP.ttl", "IP.tos", "Raw.load")


def _one(network: Network, host: str, message: Callable[[], None], count: int = 1) -> list[dict[str, str]]:
    """Return what receive.py shows on a host once a message was sent."""
    log = f"logs/{host}-received.txt"
    network.start(host, "python3 receive.py", log, "sniffing on")
    time.sleep(1)  # scapy says so before it listens
    message()
    network.wait(lambda: len(packets(network.read(log))) >= count, f"{host} received nothing")
    time.sleep(0.5)  # the rest of what it prints
    return packets(network.read(log))


# ---- the exercises


def basic(network: Network) -> Result:
    """Every host reaches every other; a message arrives with its addresses rewritten."""
    matrix = network.run("pingall")
    shown = _one(network, "h2", lambda: _say(network, "h1 python3 send.py 10.0.2.2 hello"))
    return {"pingall": _matrix(matrix), "received": fields(shown[0], *_ADDRESSED)}


def basic_tunnel(network: Network) -> Result:
    """A message goes by its address without a tunnel, by the tunnel's number with one."""
    plain = _one(network, "h2", lambda: _say(network, "h1 python3 send.py 10.0.2.2 hello"))
    tunnel = _one(network, "h3", lambda: _say(network, "h1 python3 send.py 10.0.2.2 hello --dst_id 3"))
    return {
        "pingall": _matrix(network.run("pingall")),
        "plain": fields(plain[0], *_ADDRESSED),
        "tunnel": fields(tunnel[0], *_ADDRESSED, "MyTunnel.pid", "MyTunnel.dst_id"),
    }


def p4runtime(network: Network) -> Result:
    """A controller pushes the program, writes tunnels, reads tables and counters."""
    with network.controller("logs/controller.txt"):
        network.wait(lambda: "Reading tunnel counters" in network.read("logs/controller.txt"), "no counters are read")
        pinged = network.run("h1 ping -c 5 -i 0.2 10.0.2.2")
        count = "s1 MyIngress.egressTunnelCounter 200: 5 packets"
        network.wait(lambda: count in network.read("logs/controller.txt"), "the counters do not show five packets")
        output = network.read("logs/controller.txt")
    tables, _, _ = output.partition("----- Reading tunnel counters")
    counters = [line for line in output.splitlines() if "TunnelCounter" in line and "packets" in line]
    return {
        "ping": _received(pinged),
        "tables": sorted(line for line in tables.splitlines() if line.strip()),
        "counters": counters[-4:]
        if len(counters) % 4 == 0
        else counters[-4 - len(counters) % 4 : -(len(counters) % 4)],
    }


def ecn(network: Network) -> Result:
    """The slow link's queue marks packets once it is full."""
    shown = _congested(network, seconds=14)
    marks = [packet.get("IP.tos", "-") for packet in shown]
    return {"first": marks[0], "marks": sorted(set(marks)), "ttl": sorted({p.get("IP.ttl", "-") for p in shown})}


def mri(network: Network) -> Result:
    """Each switch writes its number and the depth of its queue; the one in front of the slow link has a long one."""
    shown = _congested(network, seconds=14)
    paths = {packet.get("SwitchTrace.swid", "-") for packet in shown}
    deepest = [max((int(depth) for depth in p.get("SwitchTrace.qdepth", "0").split()), default=0) for p in shown]
    return {"paths": sorted(paths), "first is empty": deepest[0] == 0, "queue grows": max(deepest) > 0}


def source_routing(network: Network) -> Result:
    """A packet carries the ports that it leaves by."""
    routes = "2 3 2 2 1\\n2 1\\n"
    shown = _one(network, "h2", lambda: _say(network, f"h1 printf '{routes}q\\n' | python3 send.py 10.0.2.2"), count=2)
    return {"received": [fields(packet, *_ADDRESSED[:-1]) for packet in shown]}


def calc(network: Network) -> Result:
    """The switch computes."""
    questions = ("1+1", "7-12", "12&10", "12|3", "12^5", "4294967295+1")
    text = "\\n".join(questions)
    output = network.run(f"h1 printf '{text}\\nquit\\n' | python3 calc.py")
    numbers = [line.rpartition("> ")[2] for line in output.splitlines()]
    return {"answers": [line for line in numbers if line.isdecimal() or "Didn't" in line]}


def load_balance(network: Network) -> Result:
    """Flows are spread over two hosts by their hash; none is lost."""
    logs = {host: f"logs/{host}-received.txt" for host in ("h2", "h3")}
    for host, log in logs.items():
        network.start(host, "python3 receive.py", log, "sniffing on")
    time.sleep(1)
    for _ in range(16):
        _say(network, "h1 python3 send.py 10.0.0.1 hello")

    def shown() -> dict[str, list[dict[str, str]]]:
        return {host: packets(network.read(log)) for host, log in logs.items()}

    network.wait(lambda: sum(map(len, shown().values())) >= 16, "messages are missing")
    time.sleep(0.5)
    received = shown()
    return {
        "messages": sum(map(len, received.values())),
        "both hosts": all(received.values()),
        "as": {host: fields(messages[0], *_ADDRESSED) for host, messages in received.items() if messages},
    }


def qos(network: Network) -> Result:
    """Packets are marked by their protocol."""
    log = "logs/h2-received.txt"
    network.start("h2", "python3 receive.py", log, "sniffing on")
    time.sleep(1)
    by_protocol: dict[str, object] = {}
    for protocol in ("UDP", "TCP"):
        _say(network, f"h1 python3 send.py --p={protocol} --des=10.0.2.2 --m=hello --dur=2")
        at = [packet for packet in packets(network.read(log)) if f"{protocol}.dport" in packet and "Raw.load" in packet]
        network.wait(lambda name=protocol: f"[ {name} ]" in network.read(log), f"no {protocol} came")  # type: ignore[misc]
        time.sleep(0.5)
        at = [packet for packet in packets(network.read(log)) if f"{protocol}.dport" in packet and "Raw.load" in packet]
        by_protocol[protocol] = [fields(packet, "IP.tos", "IP.ttl", "IP.dst") for packet in at]
    return by_protocol


def firewall(network: Network) -> Result:
    """Hosts inside can open connections to the outside, but not the reverse."""
    return {
        "pingall": _matrix(network.run("pingall")),
        "inside": _connects(network, "h1", "h2", "10.0.2.2"),
        "out": _connects(network, "h1", "h3", "10.0.3.3"),
        "in": _connects(network, "h3", "h1", "10.0.1.1"),
    }


def link_monitor(network: Network) -> Result:
    """Probes go round and tell the bytes that each port sent."""
    network.start("h1", "python3 receive.py", "logs/h1-received.txt", "sniffing on")
    time.sleep(1)
    network.start("h1", "python3 send.py", "logs/h1-sent.txt")
    network.wait(lambda: "Mbps" in network.read("logs/h1-received.txt"), "no probe came back")
    network.start("h4", "stdbuf -oL iperf -s", "logs/h4-iperf.txt", "listening")
    network.run("h1 iperf -c 10.0.4.4 -t 5")
    time.sleep(2)
    lines = [line for line in network.read("logs/h1-received.txt").splitlines() if line.endswith("Mbps")]
    rounds = [lines[start : start + 9] for start in range(0, len(lines) // 9 * 9, 9)]
    ports = [[line.partition(":")[0] for line in each] for each in rounds]
    busy = {line.partition(":")[0] for line in lines if float(line.split()[-2]) > 0.02}
    return {"ports": ports[0], "always": all(each == ports[0] for each in ports), "busy": sorted(busy)}


def multicast(network: Network) -> Result:
    """A star of four hosts, with the fourth in no group: group members all get the first answers."""
    return {"pingall": _matrix(network.run("pingall"))}


def flowcache(network: Network) -> Result:
    """The controller gets each new flow by a packet-in, forwards the packet and writes an entry."""
    with network.controller("logs/controller.txt"):
        network.wait(lambda: "on s3" in network.read("logs/controller.txt"), "the program is not pushed")
        time.sleep(2)  # it then writes clone sessions without any output
        pinged = network.run("h1 ping -c 6 -i 0.5 10.0.2.2")
        network.wait(lambda: network.read("logs/controller.txt").count("added table entry") >= 4, "entries are missing")
        time.sleep(1)
        output = network.read("logs/controller.txt")
        # Idle entries are reported, and deleted.
        network.wait(lambda: "Deleted flow_cache entry" in network.read("logs/controller.txt"), "none is deleted")
    added = {line for line in output.splitlines() if "added table entry" in line}
    return {"ping arrives": "bytes from 10.0.2.2" in pinged, "added": sorted(added)}


EXERCISES: Final[dict[str, Callable[[Network], Result]]] = {
    call.__name__: call
    for call in (
        basic,
        basic_tunnel,
        p4runtime,
        ecn,
        mri,
        source_routing,
        calc,
        load_balance,
        qos,
        firewall,
        link_monitor,
        multicast,
        flowcache,
    )
}


def _say(network: Network, command: str) -> None:
    network.run(command)


def _matrix(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "->" in line or "Results" in line]


def _received(text: str) -> str:
    match = re.search(r"\d+ packets transmitted, \d+ received", text)
    return match[0] if match else text


def _connects(network: Network, client: str, server: str, address: str) -> bool:
    log = f"logs/{server}-for-{client}.txt"
    network.start(server, "stdbuf -oL iperf -s -p 5050", log, "listening")
    output = network.run(f"{client} timeout -s KILL 6 iperf -c {address} -p 5050 -t 1")
    network.end(server, log)
    return bool(re.search(r"bits/sec", output))


def _congested(network: Network, seconds: int) -> list[dict[str, str]]:
    """Return what h2 shows of h1's messages, one a second, while h11 fills the slow link for the half of the time."""
    log = "logs/h2-received.txt"
    network.start("h2", "python3 receive.py", log, "sniffing on")
    network.start("h22", "stdbuf -oL iperf -s -u", "logs/h22-iperf.txt", "listening")
    time.sleep(1)
    network.start("h1", f"python3 send.py 10.0.2.2 hello {seconds}", "logs/h1-sent.txt")
    network.wait(lambda: len(packets(network.read(log))) >= 2, "no message came")
    network.run(f"h11 iperf -c 10.0.2.22 -t {seconds // 2} -u")
    time.sleep(seconds // 2)
    return packets(network.read(log))


# ---- running them


@dataclass(frozen=True, slots=True)
class Bench:
    """A copy of the tutorials, and the PATH with which each switch is found."""

    root: Path
    paths: Mapping[str, str]

    def run(self, name: str, switch: str) -> Result:
        """Return what an exercise's solution shows with a switch."""
        folder = self.root / "exercises" / name
        for log in folder.glob("logs/*"):
            log.unlink()
        with Network(folder, self.paths[switch]) as network:
            return EXERCISES[name](network)


def lacking(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the missing prerequisite of the tutorials, None if there is none."""
    root = environ.get("MILLRACE_TUTORIALS")
    if os.geteuid() != 0:
        return "root"
    if root is None or not (Path(root) / "exercises").is_dir():
        return "MILLRACE_TUTORIALS, a checkout of github.com/p4lang/tutorials"
    path = _path(environ)
    for program in ("p4c-bm2-ss", "mnexec", "sudo", "iperf", "ping"):
        if shutil.which(program, path=path) is None:
            return f"{program} on the PATH"
    asked = subprocess.run(
        ["python3", "-c", f"import {NEEDS}"], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    return None if asked.returncode == 0 else f"a python3 with {NEEDS}: {asked.stderr.splitlines()[-1]}"


def has_bmv2(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether bmv2 is on the PATH."""
    return shutil.which(EXECUTABLE, path=_path(environ)) is not None


@contextmanager
def bench(environ: Mapping[str, str] = os.environ) -> Iterator[Bench]:
    """Yield a copy of the tutorials with the solutions in their places, while the `with` block lasts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-tutorials-")))
        source = Path(environ["MILLRACE_TUTORIALS"])
        root = folder / "tutorials"
        for part in ("utils", "exercises"):
            shutil.copytree(source / part, root / part, ignore=shutil.ignore_patterns("build", "logs", "pcaps"))
        for exercise in (root / "exercises").iterdir():
            _solve(exercise)
        ours, theirs = folder / MILLRACE, folder / BMV2
        for parent in (ours, theirs):
            parent.mkdir()
        path = _path(environ)
        install(ours)
        real = shutil.which(EXECUTABLE, path=path)
        if real is not None and not thrift_words(real):
            _forget_thrift(theirs / EXECUTABLE, real)
        yield Bench(root, {MILLRACE: f"{ours}:{path}", BMV2: f"{theirs}:{path}"})


def _forget_thrift(path: Path, real: str) -> None:
    """Write a script that starts a bmv2 that was built without Thrift, and ends at an option that it does not know."""
    keep = '[ -z "$skip" ] && set -- "$@" "$word"; skip='
    words = f'for word; do shift; case "$word" in --thrift-port) skip=1;; *) {keep};; esac; done'
    path.write_text(f'#!/bin/bash\n{words}\nexec {shlex.quote(real)} "$@"\n')
    path.chmod(0o755)


def _solve(exercise: Path) -> None:
    for solution in (exercise / "solution").glob("*"):
        # multicast's table is next to its topology.
        places = [*exercise.glob(f"*-topo/{solution.name}"), exercise / solution.name]
        shutil.copy(solution, places[0])


def _path(environ: Mapping[str, str]) -> str:
    own = environ.get("MILLRACE_TUTORIALS_BIN")
    return environ["PATH"] if own is None else f"{own}:{environ['PATH']}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print what exercises show with each switch, and whether it is the same; a JSON object is the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE", help=f"of {', '.join(EXERCISES)}; default: all")
    parser.add_argument("--switch", action="append", choices=SWITCHES, help="default: both")
    arguments = parser.parse_args(argv)
    missing = lacking()
    if missing is not None:
        print(f"needs {missing}", file=sys.stderr)
        return 1
    switches = arguments.switch or list(SWITCHES)
    names = arguments.exercises or list(EXERCISES)
    with bench() as made:
        same = sum(is_same(made, name, switches) for name in names)
    print(json.dumps({"tutorials_same": same if len(switches) > 1 else None, "tutorials_total": len(names)}))
    return 0 if same == len(names) else 1


def is_same(made: Bench, name: str, switches: Sequence[str] = SWITCHES) -> bool:
    """Print what an exercise shows with each switch; return whether it is the same, and runs with all."""
    shown = {switch: _attempt(made, name, switch) for switch in switches}
    agree = len({json.dumps(each, sort_keys=True) for each in shown.values()}) == 1
    agree = agree and not any("error" in each for each in shown.values())
    print(f"{name}: {'the same' if agree else 'DIFFERENT'}", flush=True)
    for switch, each in shown.items():
        print(f"  {switch}: {json.dumps(each)}", flush=True)
    return agree


def _attempt(made: Bench, name: str, switch: str) -> Result:
    try:
        return made.run(name, switch)
    except TutorialError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    sys.exit(main())
