"""Pods and Jobs of Kubernetes: what is honoured, and refusals by the path of the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.apiserver.manifests import read_file, read_text, script_of
from controller.apiserver.manifests.tasks import loads_tasks
from controller.apiserver.resources import Pod, PodGroup
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.pod import Location, Restart
from dataplane.errors import ConfigError
from dataplane.topology.values import DeviceKind

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: trainer
  namespace: default
  labels: {app.kubernetes.io/name: trainer}
  annotations: {note: any}
  creationTimestamp: null
spec:
  containers:
    - name: main
      image: registry.example.org/trainer:1
      command: [python, -c]
      args: ["print('$(MODEL) $(NONE) $$(MODEL)')"]
      workingDir: /data
      imagePullPolicy: IfNotPresent
      env:
        - {name: SIZE, value: "50"}
        - {name: MODEL, value: resnet$(SIZE)}
      ports: [{containerPort: 80}]
      resources:
        requests: {cpu: 500m, memory: 1Gi}
        limits: {cpu: "1.5", nvidia.com/gpu: 2}
    - name: log
      image: busybox
      resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {amd.com/gpu: "1", huawei.com/Ascend910: 1}}
  nodeSelector: {disktype: ssd}
  nodeName: h3
  priority: 7
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 5
  dnsPolicy: ClusterFirst
  securityContext: {}
  volumes: []
status: {}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: pi, labels: {team: x}}
spec:
  parallelism: 4
  completions: 4
  backoffLimit: 0
  template:
    metadata: {labels: {app: pi}}
    spec:
      containers: [{name: pi, image: "perl:5.34.0", command: ["perl", "-Mbignum=bpi", "-wle", "print bpi(2000)"]}]
      restartPolicy: Never
"""


def test_kubernetes_pod() -> None:
    (scripted,) = read_text(POD, "p.yaml")
    pod = scripted.resource
    assert isinstance(pod, Pod)
    assert (scripted.name, scripted.line) == ("pod trainer", 1)
    assert pod.metadata.labels == {"app.kubernetes.io/name": "trainer"}
    main, log = pod.spec.containers
    assert (main.name, main.image, main.working_folder) == ("main", "registry.example.org/trainer:1", "/data")
    assert main.command == ("python", "-c", "print('resnet50 $(NONE) $(MODEL)')")
    assert main.environment == {"SIZE": "50", "MODEL": "resnet50"}
    assert (log.command, log.environment) == ((), {})
    assert pod.spec.request == Request(
        cpu_milli=1600,
        memory_bytes=(1 << 30) + (64 << 20),
        devices=(DeviceNeed(kind=DeviceKind.GPU, count=3), DeviceNeed(kind=DeviceKind.NPU)),
    )
    assert (pod.spec.location, pod.spec.node_labels) == (Location(node="h3"), {"disktype": "ssd"})
    assert (pod.spec.restart, pod.spec.stop_grace_s, pod.spec.priority) == (Restart.ON_FAILURE, 5.0, 7)
    (again,) = read_text(script_of(pod))
    assert again.resource == pod


def test_kubernetes_job_is_a_group_beside_our_manifests(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(f"{JOB}---\npod: {{name: own, image: busybox}}\n---\n{POD}")
    job, own, pod = read_file(path)
    assert [each.name for each in (job, own, pod)] == ["podgroup pi", "pod own", "pod trainer"]
    group = job.resource
    assert isinstance(group, PodGroup)
    assert (group.spec.size, group.metadata.labels) == (4, {"team": "x", "app": "pi"})
    template = group.spec.template
    assert template is not None
    assert (template.restart, template.stop_grace_s) == (Restart.NEVER, 30.0)


@pytest.mark.parametrize(
    ("policy", "backoff", "restart", "limit"),
    [
        ("Never", "backoffLimit: 0", Restart.NEVER, None),
        ("Never", "backoffLimit: 4", Restart.ON_FAILURE, 4),
        ("OnFailure", "backoffLimit: 0", Restart.ON_FAILURE, 0),
        ("OnFailure", "suspend: false", Restart.ON_FAILURE, 6),
    ],
)
def test_kubernetes_job_of_one_pod(policy: str, backoff: str, restart: Restart, limit: int | None) -> None:
    text = JOB.replace("  parallelism: 4\n  completions: 4\n", "").replace("backoffLimit: 0", backoff)
    (job,) = read_text(text.replace("restartPolicy: Never", f"restartPolicy: {policy}"))
    assert isinstance(job.resource, PodGroup)
    template = job.resource.spec.template
    assert template is not None
    assert (job.resource.spec.size, template.restart, template.restart_limit) == (1, restart, limit)
    (again,) = read_text(script_of(job.resource))
    assert again.resource == job.resource


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("volumes: []", "volumes: [{name: a}]", "34: spec.volumes: is a field that cannot be honoured here"),
        ("dnsPolicy: ClusterFirst", "hostNetwork: true", "32: spec.hostNetwork: is a field that cannot be hon"),
        ("namespace: default", "namespace: other", "5: metadata.namespace: is a field that cannot be honoured here"),
        ("IfNotPresent", "Always", "16: spec.containers[0].imagePullPolicy: is a field that cannot be honoured here"),
        ('value: "50"', "valueFrom: {a: b}", "18: spec.containers[0].env[0].valueFrom: is a field that cannot be hon"),
        ("{containerPort: 80}", "{containerPort: 80, hostPort: 8}", "20: spec.containers[0].ports[0].hostPort: is a f"),
        ("command: [python, -c]", "tty: false", "14: spec.containers[0].args: without a command they follow"),
        (
            "nvidia.com/gpu:",
            "ephemeral-storage:",
            "23: spec.containers[0].resources.limits.ephemeral-storage: is a res",
        ),
        (
            "nvidia.com/gpu:",
            "nvidia.com/gpumem:",
            "23: spec.containers[0].resources.limits.nvidia.com/gpumem: counts p",
        ),
        ("nvidia.com/gpu:", "nvidia.com/mig-1g.5gb:", "23: spec.containers[0].resources.limits.nvidia.com/mig-1g.5gb:"),
        ("memory: 1Gi", "memory: 1Gb", "22: spec.containers[0].resources.requests.memory: '1Gb' is not a quantity"),
        (
            "nvidia.com/gpu: 2",
            "nvidia.com/gpu: 1.5",
            "23: spec.containers[0].resources.limits.nvidia.com/gpu: 1.5 is not",
        ),
        ("nvidia.com/gpu: 2", "nvidia.com/gpu: 999", "10: spec.containers: 1000 devices of kind gpu are more than 256"),
        ("image: busybox", "image: Busybox:1", "25: spec.containers[1].image: image Busybox:1: is not an image name"),
        ("name: log", "name: main", "9: spec: two containers have the same name"),
        ("OnFailure", "Sometimes", "30: spec.restartPolicy: 'Sometimes' is not one of Always, OnFailure, Never"),
        ("kind: Pod", "kind: Deployment", "2: kind: 'Deployment' is not read: Pod and Job are"),
        ("apiVersion: v1", "apiVersion: v2", "1: apiVersion: 'v2' is not v1"),
        ("  name: trainer\n", "", "3: metadata: missing required field `name`"),
    ],
)
def test_kubernetes_pod_fields_that_are_refused(old: str, new: str, problem: str) -> None:
    assert old in POD
    with pytest.raises(ConfigError) as caught:
        read_text(POD.replace(old, new, 1), "p.yaml")
    assert str(caught.value).startswith(f"p.yaml:{problem}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "backoffLimit: 0",
            "backoffLimit: 4",
            "7: spec.backoffLimit: counts failures of all pods and containers toget",
        ),
        ("restartPolicy: Never", "restartPolicy: Always", "12: spec.template.spec.restartPolicy: of a Job is OnFailu"),
        ("  completions: 4\n", "", "5: spec.parallelism: without completions, one pod that succeeds ends the Job"),
        ("completions: 4", "completions: 8", "6: spec.completions: is above parallelism, 4"),
        ("backoffLimit: 0", "completionMode: Indexed", "7: spec.completionMode: is a field that cannot be honoured"),
        ("backoffLimit: 0", "activeDeadlineSeconds: 60", "7: spec.activeDeadlineSeconds: is a field that cannot be"),
    ],
)
def test_kubernetes_job_fields_that_are_refused(old: str, new: str, problem: str) -> None:
    assert old in JOB
    with pytest.raises(ConfigError) as caught:
        read_text(JOB.replace(old, new, 1), "j.yaml")
    assert str(caught.value).startswith(f"j.yaml:{problem}")


def test_task_files_check_image_names() -> None:
    with pytest.raises(ConfigError, match=r"t\.yaml:3: program\.entry: image Nginx:latest: is not an image name"):
        loads_tasks("millrace: 1\nprogram:\n  entry: Nginx:latest\n  kind: container\n", 0, file="t.yaml")
