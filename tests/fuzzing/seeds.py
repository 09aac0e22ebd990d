"""Writes the initial fuzzing inputs: python -m tests.fuzzing.seeds. Inputs found later stay next to them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import msgspec
from finsy.proto import p4i, p4r

from dataplane.nic.capture.pcap import PcapWriter
from dataplane.topology.schema import REPORT_UDP_PORT
from dataplane.wire.completion import Completion
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.packet import udp_frame
from tests.collectors.reports import ALL, Reporter, long_way
from tests.dataplane.program.mutation import document, p4info
from tests.decoders.files import FILES
from tests.decoders.others import _RESULT
from tests.fuzzing.targets import CORPUS, SEPARATOR, entities, joined

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def _tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue().rstrip(b"\0") + bytes(1024)


def _json(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _images() -> dict[str, bytes]:
    part = {"mediaType": _MANIFEST, "digest": "@1", "size": 2}
    manifest = _json({"schemaVersion": 2, "config": part | {"digest": "@2"}, "layers": [part | {"digest": "@3"}]})
    machine = {"platform": {"os": "linux", "architecture": "amd64"}}
    layers = {
        "plain": _tar({"etc/hostname": b"box"}),
        "gzip": gzip.compress(_tar({"a": b"a"}), mtime=0),
        "empty": b"",
    }
    image = {
        name: SEPARATOR.join((_json({"manifests": [part]}), manifest, b"{}", layer)) for name, layer in layers.items()
    }
    several = [
        _json({"manifests": [part | {"mediaType": _INDEX}]}),
        _json({"manifests": [part | {"digest": "@2"} | machine]}),
    ]
    nested = manifest.replace(b"@3", b"@4").replace(b"@2", b"@3")
    return {**image, "several": SEPARATOR.join((*several, nested, b"{}", layers["plain"]))}


def _archives() -> dict[str, bytes]:
    docker = _json([{"Config": "c.json", "RepoTags": ["docker.io/library/busybox:1"], "Layers": ["l/layer.tar"]}])
    whole = {"manifest.json": docker, "c.json": b"{}", "l/layer.tar": _tar({"a": b"a"}), "repositories": b"{}"}
    oci = {"index.json": _json({"manifests": [{"digest": "sha256:0", "annotations": {"a": "b"}}]})}
    made = {"docker": _tar(whole), "oci": _tar(oci)}
    return {**made, "gzip": gzip.compress(made["oci"], mtime=0)}


def _bundles() -> dict[str, bytes]:
    user = {"uid": 1, "gid": 2, "additionalGids": [3]}
    process = {"args": ["sh", "-c", "true"], "env": ["A=b"], "cwd": "/", "user": user}
    mounts = [
        {"type": "bind", "source": "/srv", "destination": "/data", "options": ["rbind", "ro"]},
        {"type": "proc", "destination": "/proc"},
    ]
    plain = {"root": {"path": "rootfs"}, "process": process, "hostname": "box"}
    return {
        "plain": _json(plain),
        "mounts": _json(plain | {"mounts": mounts}),
        "kernel": _json(plain | {"mounts": mounts[1:], "hooks": {}}),
        "outside": _json(plain | {"root": {"path": "../.."}}),
    }


def _results() -> dict[str, bytes]:
    whole = msgspec.json.encode(_RESULT)
    failed = _json(
        {"probe": "p", "units": 1, "cores": 1, "outcome": "crash", "problem": "no", "figures": {"a.b": 1.5}}
        | {"versions": {"numpy": "2.1"}, "started_ns": 1, "start_s": 0.5, "peak_memory_bytes": 4096}
    )
    return {"whole": whole, "failed": failed}


def _programs() -> dict[str, bytes]:
    names = ("forwarding", "zero_width", "algorithms", "unions")
    plain = {name: _json(document(name)) for name in names}
    return {**plain, "with_info": SEPARATOR.join((plain["zero_width"], p4info("zero_width")))}


def _set(match: Any, kind: int, width: int) -> None:
    """Set a field's match to one value, in the form of its kind."""
    match kind:
        case p4i.MatchField.EXACT:
            match.exact.value = b"\x01"
        case p4i.MatchField.LPM:
            match.lpm.value, match.lpm.prefix_len = b"\x01", width
        case p4i.MatchField.TERNARY:
            match.ternary.value, match.ternary.mask = b"\x01", b"\x03"
        case p4i.MatchField.RANGE:
            match.range.low, match.range.high = b"\x01", b"\x02"
        case _:
            match.optional.value = b"\x01"


def _entry(info: p4i.P4Info, table: p4i.Table) -> p4r.Update:
    update = p4r.Update(type=p4r.Update.INSERT)
    entry = update.entity.table_entry
    entry.table_id = table.preamble.id
    for declared in table.match_fields:
        match = entry.match.add(field_id=declared.id)
        _set(match, declared.match_type, declared.bitwidth)
        if declared.match_type not in (p4i.MatchField.EXACT, p4i.MatchField.LPM):
            entry.priority = 1
    action = next(each for each in info.actions if each.preamble.id == table.action_refs[0].id)
    if table.implementation_id:
        one_shot = entry.action.action_profile_action_set.action_profile_actions.add(weight=1).action
    else:
        one_shot = entry.action.action
    one_shot.action_id = action.preamble.id
    for parameter in action.params:
        one_shot.params.add(param_id=parameter.id, value=b"\x02")
    return update


def _entries() -> dict[str, bytes]:
    info = entities().p4info
    seeds = {}
    for table in info.tables:
        request = p4r.WriteRequest(updates=[_entry(info, table)])
        seeds[f"table_{table.preamble.alias}"] = request.SerializeToString()
    others = p4r.WriteRequest(atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
    kinds: tuple[tuple[str, Any, str], ...] = (
        ("counter_entry", info.counters, "counter_id"),
        ("register_entry", info.registers, "register_id"),
        ("meter_entry", info.meters, "meter_id"),
        ("action_profile_member", info.action_profiles, "action_profile_id"),
        ("action_profile_group", info.action_profiles, "action_profile_id"),
        ("digest_entry", info.digests, "digest_id"),
        ("value_set_entry", info.value_sets, "value_set_id"),
    )
    for name, objects, key in kinds:
        for item in list(objects)[:1]:
            update = others.updates.add(type=p4r.Update.MODIFY)
            setattr(getattr(update.entity, name), key, item.preamble.id)
    group = others.updates.add(type=p4r.Update.INSERT).entity.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = 1
    group.replicas.add(port=b"\x01", instance=1)
    clone = others.updates.add(type=p4r.Update.INSERT).entity.packet_replication_engine_entry.clone_session_entry
    clone.session_id, clone.packet_length_bytes = 1, 64
    clone.replicas.add(port=b"\x02", instance=1)
    return {**seeds, "others": others.SerializeToString()}


def _reports() -> dict[str, bytes]:
    seeds = {}
    for family, addresses in (("ipv4", ("10.0.0.1", "10.0.0.2")), ("ipv6", ("2001:db8::1", "2001:db8::2"))):
        reporter = Reporter(*addresses, bits=ALL)
        seeds[f"stack_{family}"] = joined([reporter.stacked(long_way()) for _ in range(2)])
        seeds[f"hops_{family}"] = joined(list(reporter.hop_by_hop(long_way())))
        seeds[f"cards_{family}"] = joined(list(reporter.postcards(long_way(), mx=True)))
    reporter = Reporter()
    seeds["mx"] = joined(list(reporter.postcards(long_way(), mx=False)))
    seeds["events"] = joined(
        [
            reporter.congested(long_way()[1]),
            reporter.dropped(long_way(), DropReason.NO_ROUTE),
            *reporter.intermediate(long_way()[:2], long_way()[2:]),
            reporter.item(12, Completion(3, 7, 1, 2000, 1, 4, leaf=True)),
        ]
    )
    return seeds


def _captures() -> dict[str, bytes]:
    seeds = {}
    for decoder in FILES:
        if ".capture." in decoder.name:
            for number, golden in enumerate(decoder.goldens):
                seeds[f"{decoder.name.split('.')[3]}_{number}"] = golden
    frame = udp_frame(
        src_mac=1,
        dst_mac=2,
        src=IPv4Address("10.0.1.254"),
        dst=IPv4Address("10.0.0.2"),
        src_port=5000,
        dst_port=REPORT_UDP_PORT,
        payload=Reporter().stacked(long_way()),
    )
    with tempfile.NamedTemporaryFile() as file:
        with PcapWriter(file.name) as writer:
            for time_ns in (1_000, 2_000_000, 3_000_000):
                writer.write(frame, time_ns)
        seeds["reports"] = Path(file.name).read_bytes()
    return seeds


def main() -> None:
    """Write them."""
    made = {
        "images": _images(),
        "archives": _archives(),
        "bundles": _bundles(),
        "results": _results(),
        "programs": _programs(),
        "entries": _entries(),
        "reports": _reports(),
        "captures": _captures(),
    }
    for target, inputs in made.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in inputs.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
