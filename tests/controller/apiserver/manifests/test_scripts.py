"""Manifests: contents, round trips, and one line with its position for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.apiserver.manifests import read_file, read_text, script_of
from controller.apiserver.manifests.quantities import Cores, Duration, duration_text, milli_text
from controller.apiserver.manifests.schema import RequestedKind, json_schema
from controller.apiserver.resources import Pod, PodGroup
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.pod import Location, PeerNeed, PodSpec, Restart
from controller.cluster.hardware import ACCELERATORS
from dataplane.errors import ConfigError
from dataplane.topology.values import DeviceKind

SCRIPT = """\
pod:
  name: web
  labels: {app: web}
  image: busybox
  command: [sleep, "3600"]
  environment: {A: b}
  cpu: 500m
  memory: 64MiB
  devices:
    - {kind: gpu, share: 500m, model: T4, memory: 8 GiB}
    - {kind: npu, count: 2, models: [n1, n2]}
  location: {node: h3, device: 0, device_kind: gpu}
  node_labels: {rack: r1}
  peers:
    - {host: h2, min_bandwidth: 5Mbit/s, max_delay: 2ms}
    - {pod: db}
  priority: 7
  idle_limit: 10 min
  restart: on-failure
  stop_grace: 1.5 s
  group: g
  profile: packed
---
---
group:
  name: g
  size: 4
  priority: 2
  wait: 90 s
  template:
    containers:
      - {name: a, image: x, working_folder: /tmp}
      - {name: b, bundle: /bundles/b}
    cpu: 2
    idle_limit: never
  allreduce: {}
"""


def test_manifest_states_resources() -> None:
    web, group = read_text(SCRIPT, "s.yaml")
    assert (web.name, web.file, web.line) == ("pod web", "s.yaml", 1)
    assert (group.name, group.line) == ("podgroup g", 25)
    pod = web.resource
    assert isinstance(pod, Pod)
    spec = pod.spec
    (container,) = spec.containers
    assert (container.name, container.image, container.command) == ("main", "busybox", ("sleep", "3600"))
    assert spec.request == Request(
        cpu_milli=500,
        memory_bytes=64 << 20,
        devices=(
            DeviceNeed(kind=DeviceKind.GPU, thousandths=500, models=("T4",), memory_bytes=8 << 30),
            DeviceNeed(kind=DeviceKind.NPU, count=2, models=("n1", "n2")),
        ),
    )
    assert spec.location == Location(node="h3", device=0, device_kind=DeviceKind.GPU)
    assert spec.peers == (PeerNeed(host="h2", min_bps=5_000_000, max_delay_ns=2_000_000), PeerNeed(pod="db"))
    assert (spec.priority, spec.idle_limit_s, spec.restart, spec.stop_grace_s) == (7, 600.0, Restart.ON_FAILURE, 1.5)
    assert (spec.group, spec.profile, spec.node_labels) == ("g", "packed", {"rack": "r1"})
    made = group.resource
    assert isinstance(made, PodGroup)
    assert (made.spec.size, made.spec.wait_s, made.spec.priority) == (4, 90.0, 2)
    assert made.spec.template is not None
    assert [container.name for container in made.spec.template.containers] == ["a", "b"]
    assert made.spec.template.idle_limit_s == "never"
    assert made.spec.allreduce is not None


def test_unstated_fields_have_the_resources_defaults() -> None:
    (resource,) = read_text("pod: {name: a, image: x}")
    spec = resource.resource.spec
    assert isinstance(spec, PodSpec)
    assert spec == PodSpec(containers=spec.containers)


def test_resources_are_written_as_scripts_that_read_the_same() -> None:
    for resource in read_text(SCRIPT):
        (again,) = read_text(script_of(resource.resource))
        assert again.resource == resource.resource


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("{any_of: [npu, gpu], count: 2}", DeviceNeed(any_of=(DeviceKind.GPU, DeviceKind.NPU), count=2)),
        ("{kind: any, share: 500m}", DeviceNeed(any_of=ACCELERATORS, thousandths=500)),
        ("{any_of: [npu]}", DeviceNeed(kind=DeviceKind.NPU)),
    ],
)
def test_item_8_kinds_of_devices_are_read_and_written(text: str, need: DeviceNeed) -> None:
    (made,) = read_text(f"pod: {{name: p, image: x, devices: [{text}], location: {{device_kind: npu}}}}")
    assert made.resource.spec.request.devices == (need,)  # type: ignore[union-attr]
    (again,) = read_text(script_of(made.resource))
    assert again.resource == made.resource
    assert Request.of(Request(devices=(need,)).value) == Request(devices=(need,))


def test_every_kind_of_device_can_be_requested() -> None:
    assert [kind.value for kind in RequestedKind] == [*DeviceKind, "any"]


COMPUTES = """\
pod:
  name: p
  image: x
  profile: accelerated
  operators:
    - {name: product, operator: gemm, sizes: {m: 64, n: 64, k: 64}, number_format: fp32, seconds: 2.5, feeds: [sum]}
    - {name: sum, operator: axpy, count: 3, sizes: {n: 4096}, seconds: 0.0}
"""


def test_pod_states_its_operators() -> None:
    (made,) = read_text(COMPUTES)
    assert isinstance(made.resource, Pod)
    product, total = made.resource.spec.operators
    assert (product.operator, product.sizes["k"], product.seconds, product.feeds) == ("gemm", 64, 2.5, ("sum",))
    assert (total.count, total.seconds) == (3, 0.0)
    (again,) = read_text(script_of(made.resource))
    assert again.resource == made.resource
    for before, after, message in (
        ("name: sum", "name: product", "s.yaml:5: pod.operators: "),
        ("feeds: [sum]", "feeds: [product]", "s.yaml:5: pod.operators: "),
        ("operator: axpy", "operator: A x", "s.yaml:5: pod.operators: 'A x' is not a valid operator kind"),
        ("seconds: 0.0", "seconds: -1.0", "s.yaml:7: pod.operators[1].seconds: expected `float` >= 0"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_text(COMPUTES.replace(before, after), "s.yaml")
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("cpu: 500m", "cpus: 500m", "s.yaml:7: pod.cpus: unknown key; did you mean `cpu`?"),
        ("cpu: 500m", "cpu: 500 m", ("s.yaml:7: pod.cpu: '500 m' is not cores: a number such as 2 or 0.5, or "
                                    "thousandths such as '500m'")),
        ("cpu: 500m", "cpu: 0.0005", "s.yaml:7: pod.cpu: 0.0005 is not a whole number of thousandths"),
        ("cpu: 500m", "cpu: true", "s.yaml:7: pod.cpu: True is not cores"),
        ("64MiB", "64 MB", "s.yaml:8: pod.memory: '64 MB' is not a size such as '40 GiB' (units: B, KiB"),
        ("64MiB", "100m", "s.yaml:8: pod.memory: '100m' is not a size such as '40 GiB'"),
        ("64MiB", "true", "s.yaml:8: pod.memory: True is not a size"),
        ("64MiB", "0", "s.yaml:8: pod.memory: size '0' is not between 1 B and 8192 TiB"),
        ("64MiB", "1E", "s.yaml:8: pod.memory: size '1E' is not between 1 B and 8192 TiB"),
        ("64MiB", "8193 TiB", "s.yaml:8: pod.memory: size '8193 TiB' is not between 1 B and 8192 TiB"),
        ("busybox", '"a\\ud800b"', "s.yaml:4: an escape of half a character"),
        ("64MiB", "-1Gi", "s.yaml:8: pod.memory: '-1Gi' is not a size"),
        ("64MiB", f"1{'0' * 30}", "s.yaml:8: pod.memory: size '1000000000000000000000000000000' is not between"),
        ("busybox", '""', "s.yaml:4: pod.image: is empty"),
        ("busybox", "Nginx:latest", "s.yaml:4: pod.image: image Nginx:latest: is not an image name"),
        ("busybox", "a@sha256:12ab", "s.yaml:4: pod.image: image a@sha256:12ab: 'sha256:12ab' is not a digest"),
        ("busybox", "sha256:12ab", "s.yaml:4: pod.image: image sha256:12ab: is not a digest"),
        ("image: busybox", 'bundle: "/a\\0"', "s.yaml:4: pod.bundle: has a NUL, which no program can receive"),
        ('"3600"', '"a\\0b"', "s.yaml:5: pod.command: has a NUL, which no program can receive"),
        ("[sleep,", '["",', "s.yaml:5: pod.command: begins with an empty word"),
        ("{A: b}", '{A: "b\\0"}', "s.yaml:6: pod.environment: 'A' has a NUL, which no program can receive"),
        ("{A: b}", '{"A=B": b}', "s.yaml:6: pod.environment: 'A=B' is not the name of a variable"),
        ("image: x, work", "image: X, work", "s.yaml:32: group.template.containers[0].image: image X: is not"),
        ('"3600"', "3600", "s.yaml:5: pod.command[1]: expected `str`, got `int`: write it in quotes"),
        ("{A: b}", "{A: 5}", "s.yaml:6: pod.environment.A: expected `str`, got `int`: write it in quotes"),
        ("gpu, share", "gpuu, share", "s.yaml:10: pod.devices[0].kind: 'gpuu' is not one of cpu, gpu, tpu,"),
        ("kind: npu", "kind: cpu", "s.yaml:11: pod.devices[1].kind: request cores by `cpu`"),
        ("kind: npu", "kind: any, any_of: [gpu]", "s.yaml:11: pod.devices[1].any_of: give either `kind` or `any_of`"),
        ("kind: npu, count", "count", "s.yaml:11: pod.devices[1]: needs `kind` or `any_of`"),
        ("kind: npu", "any_of: [npu, cpu]", "s.yaml:11: pod.devices[1].any_of[1]: request cores by `cpu`"),
        ("kind: npu", "any_of: [npu, gpu, npu]", "s.yaml:11: pod.devices[1].any_of[2]: npu appears twice"),
        ("kind: npu", "any_of: [npuu]", "s.yaml:11: pod.devices[1].any_of[0]: 'npuu' is not one of cpu, gpu, tpu,"),
        ("device: 0, device_kind: gpu", "device_kind: cpu", ("s.yaml:12: pod.location.device_kind: device_kind cpu"
                                                             " brings no device, but the pod requests devices")),
        ("share: 500m", "share: 2", "s.yaml:10: pod.devices[0].share: 2 is not part of one device"),
        ("share: 500m", "count: 1, share: 500m", "s.yaml:10: pod.devices[0].share: applies to one device: give either"),
        ("name: web", "name: Web", "s.yaml:2: pod.name: is not a name: use lower-case letters, digits, dots and"),
        ("app: web", "app: a b", "s.yaml:3: pod.labels.app: is not a label: use letters, digits and ._/-"),
        ("5Mbit/s", "5", "s.yaml:15: pod.peers[0].min_bandwidth: 5 is not a rate such as '5 Mbit/s'"),
        ("2ms", "2", "s.yaml:15: pod.peers[0].max_delay: 2 is not a delay such as '2 ms'"),
        ("{pod: db}", "{pod: db, host: h1}", "s.yaml:16: pod.peers[1]: a peer is either a `pod` or a `host`"),
        ("10 min", "nevr", "s.yaml:18: pod.idle_limit: 'nevr' is neither a time such as '30 s' nor never"),
        ("10 min", "10 minutes", "s.yaml:18: pod.idle_limit: '10 minutes' is neither a time such as '30 s' nor never"),
        ("on-failure", "on-fail", ("s.yaml:19: pod.restart: 'on-fail' is not one of always, on-failure, never; did you "
                                  "mean `on-failure`?")),
        ("image: busybox", "bundle: /x\n  image: b", "s.yaml:1: pod: has either `image` or `bundle`, not both"),
        ("image: busybox", "containers: [{name: a, image: x}]", ("s.yaml:5: pod.command: belongs below a container"
                                                                " where `containers` is given")),
        ("{name: b, bundle: /bundles/b}", "{name: a, image: x}", ("s.yaml:33: group.template.containers[1].name: there"
                                                                 " is already a container a")),
        ("{name: b, bundle: /bundles/b}", "{name: b}", "s.yaml:33: group.template.containers[1]: needs `image` or"),
        ("size: 4", "size: 400", "s.yaml:27: group.size: expected `int` <= 50"),
        ("    cpu: 2", "    group: x", "s.yaml:34: group.template.group: unknown key"),
        ("{node: h3, device: 0, device_kind: gpu}", "{}", "s.yaml:12: pod.location: is empty: give node, device"),
        ("group:\n  name: g", "groups:\n  name: g", "s.yaml:25: groups: unknown key; did you mean `group`?"),
        ("group:\n  name: g", "pod:\n  name: web\n  image: x\n---\ngroup:\n  name: g",
         "s.yaml:25: pod web: is already in line 1"),
        ("  name: web\n", "", "s.yaml:1: pod: missing required field `name`"),
        ("  name: web\n", "  name: web\n  name: web\n", "s.yaml:3: name: appears twice"),
        ("pod:\n", "pod: [\n", "s.yaml:3: expected ',' or ']', but got ':'"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_line_with_its_place(before: str, after: str, message: str) -> None:
    assert before in SCRIPT
    with pytest.raises(ConfigError) as caught:
        read_text(SCRIPT.replace(before, after, 1), "s.yaml")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1Gi", 1 << 30),
        ("123Mi", 123 << 20),
        ("1.5Gi", 3 << 29),
        ("500M", 500_000_000),
        ("64 MiB", 64 << 20),
        ("1000000", 1_000_000),
        ("1e9", 10**9),
        ("1.5e+9", 1_500_000_000),
        ('"2048"', 2048),
    ],
)
def test_sizes_may_be_quantities_of_kubernetes(text: str, nbytes: int) -> None:
    (scripted,) = read_text(SCRIPT.split("---", maxsplit=1)[0].replace("64MiB", text), "s.yaml")
    assert isinstance(scripted.resource, Pod)
    assert scripted.resource.spec.request.memory_bytes == nbytes


def test_texts_that_are_no_scripts_are_refused(tmp_path: Path) -> None:
    for text, message in (
        ("", "<text>: it contains neither a pod nor a group"),
        ("--- 5\n", "<text>:1: expected `object`, got `int`"),
        ("{}", "<text>:1: a document contains either `pod` or `group`"),
        ("a: &a [*a, *a]", "<text>:1: a: unknown key; known: pod, group"),
        ("pod: \x00", "<text>: is not YAML"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_text(text)
        assert str(caught.value).startswith(message)
    with pytest.raises(ConfigError, match="No such file"):
        read_file(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 0\)"):
        read_file(tmp_path / "x")


def test_figures_are_written_as_they_are_read() -> None:
    for milli in (0, 1, 999, 1000, 1500, 2000):
        assert Cores.read(milli_text(milli)).value == milli
    for seconds in (0.0, 0.001, 0.5, 1.5, 60.0, 90.0, 3600.0, 86_400.0, 1e6):
        assert Duration.read(duration_text(seconds)).value == seconds


def test_the_schema_is_one_of_json() -> None:
    schema = json.loads(json.dumps(json_schema()))
    properties = schema["$defs"]["PodScript"]["properties"]
    assert properties["cpu"]["anyOf"][0]["examples"] == ["500m", 2]
    assert schema["$defs"]["Script"]["additionalProperties"] is False
