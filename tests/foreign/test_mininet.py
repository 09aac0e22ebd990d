"""Custom topologies of Mininet: programs that are interpreted, never executed, and refusals by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from dataplane.errors import ConfigError
from dataplane.topology.file import load_topology, loads
from dataplane.topology.importing import import_topology
from dataplane.topology.importing.mininet import read_mininet
from dataplane.topology.values import Link

CLASSIC = """\
from mininet.topo import Topo
from mininet.link import TCLink

class MyTopo( Topo ):
    "Simple topology example."

    def __init__( self ):
        Topo.__init__( self )
        leftHost = self.addHost( 'h1', ip='10.0.0.1/24', mac='00:00:00:00:00:01' )
        rightHost = self.addHost( 'h2', ip='10.0.0.2/24' )
        leftSwitch = self.addSwitch( 's3', protocols='OpenFlow13' )
        rightSwitch = self.addSwitch( 's4' )
        self.addLink( leftHost, leftSwitch, port2=7 )
        linkopts = dict(bw=10, delay='5ms', loss=2, max_queue_size=100, use_htb=True, cls=TCLink)
        self.addLink( leftSwitch, rightSwitch, **linkopts )
        self.addLink( rightSwitch, rightHost, bw=0.5, delay=250, jitter='.1ms' )

topos = { 'mytopo': ( lambda: MyTopo() ) }
"""
LOOPS = """\
import os
from mininet.log import setLogLevel, info
from mininet.topo import *
from mininet.util import irange

setLogLevel('info')
WIDTH = 2
HOSTS = ['h%d' % n for n in range(1, 5)]
print(os.getcwd())  # is not executed, and changes nothing that is known

class Rack(Topo):
    def rack(self, number, hosts):
        switch = self.addSwitch(f'leaf{number:02d}')
        for name in hosts:
            self.addLink(self.addHost(name), switch, **self.access)
        return switch

class Spine(Rack):
    access = {'bw': 100}

    def build(self, spines=1, **options):
        '''Racks, and spines above them.'''
        names = {'s%s' % n: n for n in irange(1, spines)}
        tops = [self.addSwitch(name) for name in names]
        for at in range(0, len(HOSTS), WIDTH):
            leaf = self.rack(at // WIDTH, HOSTS[at:at + WIDTH])
            for i, top in enumerate(tops):
                if top.startswith('s') and names[top] <= spines and not options.get('bare', False):
                    self.addLink(top, leaf, bw=1000 if i else 500)
        left = spines
        while left > 1:
            left -= 1
            self.addLink('s{}'.format(left), 's{0}'.format(left + 1))

topos = {'one': Spine, 'two': lambda: Spine(spines=2)}

if __name__ == '__main__':
    os.system('touch executed')
"""
HEAD = "from mininet.topo import Topo\nclass T(Topo):\n    def build(self, n=1):\n"


def between(links: tuple[Link, ...], a: str, b: str) -> Link:
    return next(link for link in links if {link.a.node, link.b.node} == {a, b})


def test_mininet_class_with_link_options(tmp_path: Path) -> None:
    path = tmp_path / "mytopo.py"
    path.write_text(CLASSIC)
    imported = import_topology(path)
    topology = imported.topology
    assert (topology.name, [switch.name for switch in topology.switches]) == ("mytopo", ["s3", "s4"])
    link = between(topology.links, "s3", "s4")
    assert (link.rate_bps, link.delay_ns, link.loss_ppb, link.queue_frames) == (10_000_000, 5_000_000, 20_000_000, 100)
    assert (topology.attachment["h1"].port, link.a.port, link.b.port) == (7, 2, 1)
    access = between(topology.links, "h2", "s4")
    assert (access.rate_bps, access.delay_ns, access.jitter_ns) == (500_000, 250_000, 100_000)
    assert [str(host.ipv4) for host in topology.hosts[:2]] == ["10.0.0.1", "10.0.0.2"]
    assert topology.host["h1"].mac == 1
    assert imported.assumptions == (
        "a rate of 10 Gbit/s: h1 - s3",
        "a delay of 1 ms: h1 - s3",
        "the collector is a host of the first switch: s3",
    )


def test_mininet_loops_methods_and_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lab.py").write_text(LOOPS)
    with pytest.raises(ConfigError, match=r"lab\.py: has the topologies one, two: choose one by lab\.py:NAME"):
        load_topology("lab.py")
    with pytest.raises(ConfigError, match=r"has no topology 'three'; it has: one, two, Rack, Spine"):
        load_topology("lab.py:three")
    with pytest.raises(ConfigError, match=r"lab\.py: has no node"):
        load_topology("lab.py:Rack")
    topology = load_topology(f"{tmp_path}/lab.py:two")
    assert [switch.name for switch in topology.switches] == ["s1", "s2", "leaf00", "leaf01"]
    assert {host: topology.attachment[host].node for host in ("h1", "h2", "h3", "h4")} == {
        "h1": "leaf00", "h2": "leaf00", "h3": "leaf01", "h4": "leaf01",
    }  # fmt: skip
    assert between(topology.links, "s2", "leaf01").rate_bps == 1_000_000_000
    assert between(topology.links, "s1", "s2").rate_bps == 10_000_000_000
    assert len(load_topology("lab.py:one").switches) == 3
    assert not Path("executed").exists()


def test_colliding_addresses_become_ours(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(CLASSIC.replace("10.0.0.2/24", "10.0.1.2/24"))  # the collector's
    imported = import_topology(path)
    assert [str(host.ipv4) for host in imported.topology.hosts] == ["10.0.1.1", "10.0.2.1", "10.0.1.2"]
    assert [line for line in imported.assumptions if line.startswith("addresses of hosts are ours, not the file's: ")]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("import os\n  os.system('touch executed')", "5: os is an imported module, which is not read"),
        ("open('/etc/passwd')", "4: open is not known here, and is not interpreted"),
        ("x = ().__class__", "4: .__class__ of tuple is not interpreted"),
        ("x = '{0.__class__}'.format(n)", "4: the field '0.__class__' of a format is not interpreted"),
        ("with n: pass", "4: this is not interpreted: with n:"),
        ("yield 1", "4: this is not interpreted: (yield 1)"),
        ("for s in {'a', 'b'}: self.addSwitch(s)", "4: the order of a set is not fixed: use sorted(...)"),
        ("x = 10 ** 10 ** 10", "4: a power above 64 is not interpreted"),
        ("x = [0] * 10 ** 12", "4: takes more than 1000000 steps up to here"),
        ("x = 0.5 in range(10 ** 18)", "4: takes more than 1000000 steps up to here"),
        ("x = '%999999999d' % n", "4: a wide field of a format is not interpreted"),
        ("x = []\n  for i in range(60): x = [x, x]\n  x == x", "6: nests too deeply"),
        ("self.build()", "4: more than 30 calls are within each other"),
        ("break", "2: return, break or continue is outside its function or loop"),
        ("self.addLink('a', 'b')", "4: a link ends at 'a', which is no node"),
        ("self.addLink(*[self.addHost('a')] * 2, delay='fast')", "4: delay is 'fast', not a time of tc such as '5ms'"),
        ("self.addLink(*[self.addHost('a')] * 2, bw='10')", "4: bw is 10, not a number of at least 0"),
        ("x = n.items", "4: .items of int is not interpreted"),
        ("x = 1 / (n - 1)", "4: ZeroDivisionError: division by zero"),
        ("print 'a'", "4: is not Python 3: "),
    ],
)
def test_mininet_code_beyond_the_safe_part_is_refused(tmp_path: Path, body: str, problem: str) -> None:
    text = HEAD + "\n".join(f"        {line.removeprefix('  ')}" for line in body.split("\n"))
    with pytest.raises(ConfigError) as caught:
        read_mininet(text.encode(), f"{tmp_path}/x.py")
    assert str(caught.value).startswith(f"{tmp_path}/x.py:{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1", "x.py: has no class derived from mininet.topo.Topo"),
        (
            "from lab import Topo\nclass A(Topo): pass",
            "x.py: has no class derived from mininet.topo.Topo: one is not kno",
        ),
        (
            "import random\nN = random.randint(1, 9)\n" + HEAD + "        range(N)",
            "x.py:6: N is not known: line 2: random",
        ),
        (
            "A = []\nB = A\nunknown(B)\n" + HEAD + "        len(A)",
            "x.py:7: A is not known: line 3: unknown is not known",
        ),
        ("topos = {'a': 3}", "x.py:1: int cannot be called"),
        (HEAD + "        pass\ntopos = {'a': lambda: T(m=2)}", "x.py:5: build has no parameter m"),
        ("return", "x.py:1: return, break or continue is outside"),
        ("x = " + "-" * 3000 + "1", "x.py: nests too deeply"),
        ("\0", "x.py: is not Python 3: source code string cannot contain null bytes"),
    ],
)
def test_mininet_files_that_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_mininet(text.encode(), "x.py")
    assert str(caught.value).startswith(problem)


def test_import_of_a_mininet_file_writes_ours(tmp_path: Path) -> None:
    path = tmp_path / "mytopo.py"
    path.write_text(CLASSIC)
    result = CliRunner().invoke(app, ["topology", "import", f"{path}:MyTopo"], catch_exceptions=False)
    assert loads(result.stdout) == load_topology(f"{path}:MyTopo")
    assert "assumed a rate of 10 Gbit/s: h1 - s3" in result.stderr
