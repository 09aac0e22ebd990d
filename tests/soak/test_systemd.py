"""deploy/systemd under systemd: units start as documented, find one another, restart, and have no further rights."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator

import pytest

from tests.docs.shell_blocks import ROOT, shell_blocks_of
from tests.soak.pages.shell import commands_of
from tests.soak.systemd_machine import SystemdMachine, lacking

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(1800)]

PAGE = ROOT / "deploy/systemd/README.md"
SETTINGS = {
    "fabric": (
        "topology: abilene\nswitches: /run/millrace/switches\nreports: 127.0.0.1:32766\n"
        f"demands: {ROOT}/topologies/abilene-demands.csv\nscale: 0.00001\n"
    ),
    "collector": (
        "topology: abilene\nreceiver: {address: 127.0.0.1}\ncollector: {relays: [127.0.0.1]}\n"
        "history: {folder: /var/lib/millrace/history}\n"
    ),
    "paths": "topology: abilene\nrecords: {database: /var/lib/millrace/paths.sqlite}\n",
    "controller": 'topology: abilene\nswitches: "unix:/run/millrace/switches/{name}.sock"\n',
    "api": "storage: {sqlite: /var/lib/millrace/api.sqlite}\n",
    "scheduler": "{}\n",
    "placement": "{}\n",
    "balance": "{}\n",
    "memory": (
        "name: h1\ntiers:\n- {name: dram, kind: dram, capacity_bytes: 1MiB}\n"
        "- {name: file, kind: file, capacity_bytes: 4MiB, path: /var/lib/millrace/h1.blocks}\n"
    ),
    "memory-pool": 'hosts: [{name: h1, address: "unix:/run/millrace/memory.sock"}]\n',
    "centre": "centre: east\nstate: /var/lib/millrace-centre\ntrial: {kernels: [dot]}\n",
    "node": "node: losa1\nstate: /var/lib/millrace-node\n",
}
AS_THE_PAGE = ("collector", "paths", "controller")
OTHERS = ("fabric", "api", "scheduler", "placement", "balance", "memory", "memory-pool")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdMachine]:
    missing = lacking()
    if missing is not None:
        pytest.skip(f"needs {missing}")
    with SystemdMachine(tmp_path_factory.mktemp("systemd")) as made:
        yield made


@pytest.fixture(scope="module")
def started(machine: SystemdMachine) -> SystemdMachine:
    """Return the machine after the page's commands, with settings in the documented folders."""
    for command in commands_of(shell_blocks_of(PAGE)[0]):
        if "enable" in command.text:
            for name, text in SETTINGS.items():
                path = f"/etc/millrace/{name}.yaml"
                machine.run("bash", "-ec", f"cat > {path} <<'END'\n{text}END\nchown millrace: {path}; chmod 600 {path}")
        machine.run("bash", "-ec", command.text)
    return machine


def start(machine: SystemdMachine, unit: str) -> None:
    machine.run("systemctl", "start", unit, is_checked=False)
    assert active(machine, unit), machine.run("journalctl", "--no-pager", "-u", unit)


def active(machine: SystemdMachine, unit: str) -> bool:
    return machine.run("systemctl", "is-active", unit, is_checked=False).strip() == "active"


def millrace(machine: SystemdMachine, *words: str) -> str:
    """Return the output of a command as user millrace, with an empty environment."""
    return machine.run("/opt/millrace/bin/millrace", *words, as_user="millrace")


def test_what_the_page_enables_serves(started: SystemdMachine) -> None:
    for name in AS_THE_PAGE:
        assert active(started, f"millrace-{name}"), started.log()
        assert started.run("systemctl", "is-enabled", f"millrace-{name}").strip() == "enabled"
        user = started.run("systemctl", "show", "--property=User", "--value", f"millrace-{name}").strip()
        assert user == "millrace"
    kept = started.run("stat", "--format=%n %a %U", "/run/millrace", "/var/lib/millrace", "/var/cache/millrace")
    assert {line.partition(" ")[2] for line in kept.splitlines()} == {"700 millrace"}


def test_daemons_find_one_another_and_packets_are_told_of(started: SystemdMachine) -> None:
    for name in OTHERS:
        start(started, f"millrace-{name}")
    started.until("journalctl", "--no-pager", "-u", "millrace-controller", says="reconciled")
    command = ("/opt/millrace/bin/millrace", "telemetry", "paths", "--format", "csv")
    started.until(*command, says="losa", as_user="millrace")


def test_a_nodes_manager_reports(started: SystemdMachine) -> None:
    """It starts podman's service; pods are tests/controller/workloads/nodes'."""
    missing = [name for name in ("podman", "conmon") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    start(started, "millrace-api")
    start(started, "millrace-node")
    (node,) = csv.DictReader(io.StringIO(millrace(started, "get", "nodes", "--format", "csv")))
    assert (node["name"], node["ready"]) == ("losa1", "yes"), node
    started.run("systemctl", "stop", "millrace-node")


def test_a_centres_agent_runs_jobs_in_sandboxes(started: SystemdMachine) -> None:
    """It tries a kernel by a job without the agent's rights, under all of the unit's restrictions."""
    start(started, "millrace-api")
    start(started, "millrace-centre")
    get = ("/opt/millrace/bin/millrace", "get", "centres", "east", "--format", "json")
    started.until(*get, says='"dot"', as_user="millrace")
    assert "Traceback" not in started.run("journalctl", "--no-pager", "-u", "millrace-centre")
    started.run("systemctl", "stop", "millrace-centre")


def test_a_daemon_that_is_killed_comes_back(started: SystemdMachine) -> None:
    def first() -> str:
        return started.run("systemctl", "show", "--property=MainPID", "--value", "millrace-paths").strip()

    before = first()
    started.run("kill", "-KILL", before)
    started.until("systemctl", "is-active", "millrace-paths", says="activating", within_s=20)
    started.until("bash", "-c", "systemctl is-active millrace-paths | tr a-z A-Z", says="ACTIVE")
    assert first() not in {before, "0"}


def test_a_reload_is_read_and_a_stop_ends_well(started: SystemdMachine) -> None:
    started.run("systemctl", "reload", "millrace-controller")
    started.until("journalctl", "--no-pager", "-u", "millrace-controller", says="settings reloaded")
    for name in (*AS_THE_PAGE, *OTHERS):
        started.run("systemctl", "stop", f"millrace-{name}")
        shown = started.run("systemctl", "show", "--property=Result,ExecMainStatus", f"millrace-{name}")
        assert set(shown.split()) == {"Result=success", "ExecMainStatus=0"}, (name, shown, started.log())


def test_one_supervisor_runs_all(started: SystemdMachine) -> None:
    started.run("install", "-d", "-m", "700", "-o", "millrace", "-g", "millrace", "/var/lib/millrace/up")
    path = "/var/lib/millrace/up/millrace.yaml"
    started.run("bash", "-ec", f"echo 'topology: abilene' > {path}; chown millrace: {path}; chmod 600 {path}")
    start(started, "millrace")
    status = json.loads(millrace(started, "status", "--state", "/var/lib/millrace/up", "--format", "json"))
    assert status["green"]
    assert {daemon["name"] for daemon in status["up"]["daemons"]} >= {
        *AS_THE_PAGE,
        "fabric",
        "api",
        "scheduler",
        "placement",
    }
    started.run("systemctl", "stop", "millrace")


def test_a_switch_opens_its_devices_as_nobodys_root(started: SystemdMachine) -> None:
    started.run("bash", "-ec", "ip link add veth1 type veth peer veth2; ip link set veth1 up; ip link set veth2 up")
    program = ROOT / "docs/examples/own_program"
    for name in ("forwarder.json", "forwarder.p4info.txtpb"):
        started.run("install", "-m", "600", "-o", "millrace", f"{program}/{name}", "/etc/millrace")
    words = "/etc/millrace/forwarder.json -i 1@veth1 -i 2@veth2 --device-id 7"
    words += " -- --grpc-server-addr unix:/run/millrace/s7.sock"
    started.run("bash", "-ec", f"echo 'MILLRACE_SWITCH={words}' > /etc/millrace/switch-s7.env")
    start(started, "millrace-switch@s7")
    started.until("ls", "/run/millrace", says="s7.sock", within_s=30)
    output = millrace(started, "switch", "show", "unix:/run/millrace/s7.sock", "--device-id", "7", "--format", "json")
    ports = json.loads(output)["ports"]
    assert [port["device"] for port in ports] == ["veth1", "veth2"]
    assert all("Operation not permitted" in json.dumps(port) for port in ports)
    started.run("systemctl", "stop", "millrace-switch@s7")
