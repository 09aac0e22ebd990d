"""A p4runtime-shell session, run by the Python of .venv-shell: drives one switch and prints its observations as JSON.

Arguments: address, P4Info file, bmv2 JSON file.
"""

import json
import sys
from pathlib import Path

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException

sys.path.insert(0, str(Path(__file__).parents[2] / ".ci"))
from shell import chosen  # type: ignore[import-not-found] # a script outside all packages


def main(address: str, p4info: str, program: str) -> None:
    """Push the program, write routes, groups and a counter read; leave a trace of each answer."""
    config = sh.FwdPipeConfig(p4info, program)
    seen: dict[str, object] = {"alone": chosen(address, None, None)}
    sh.setup(device_id=7, grpc_addr=address, election_id=(0, 1), config=config, verbose=False)
    seen["beside a controller"] = chosen(address, None, None)
    seen["stated"] = chosen(address, 7, "0,5")

    member = sh.ActionProfileMember("ipv4_ecmp")(member_id=1, action="forward")
    member.action["egress_port"] = "2"
    member.action["dst_mac"] = "02:00:00:00:00:02"
    member.insert()
    group = sh.ActionProfileGroup("ipv4_ecmp")(group_id=1, max_size=32)
    group.add(1)
    group.insert()
    route = sh.TableEntry("ipv4_routes")
    route.match["dst_addr"] = "10.0.2.0/24"
    route.group_id = 1
    route.insert()

    flow = sh.TableEntry("ipv4_flow_paths")(action="forward")
    flow.match["src_addr"] = "10.0.1.1&&&255.255.255.255"
    flow.match["dst_addr"] = "10.0.2.1&&&255.255.255.255"
    flow.priority = 7
    flow.action["egress_port"] = "3"
    flow.action["dst_mac"] = "02:00:00:00:00:03"
    flow.insert()
    flow.action["egress_port"] = "4"
    flow.modify()
    seen["routes"] = [str(entry.match["dst_addr"].lpm.prefix_len) for entry in sh.TableEntry("ipv4_routes").read()]
    seen["flow_ports"] = [int.from_bytes(entry.action["egress_port"].value, "big") for entry in flow.read()]
    try:
        route.insert()
    except P4RuntimeWriteException as error:
        seen["second_insert"] = str(error)
    flow.delete()
    seen["flows_left"] = len(list(sh.TableEntry("ipv4_flow_paths").read()))
    seen["counter"] = [entry.packet_count for entry in sh.CounterEntry("drop_no_route").read()]
    clone = sh.CloneSessionEntry(250)
    clone.add(2, 1)
    clone.insert()
    seen["clones"] = [entry.session_id for entry in sh.CloneSessionEntry(250).read()]
    print(json.dumps(seen))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    finally:
        # Without this the session's thread keeps the process alive after an error.
        sh.teardown()
