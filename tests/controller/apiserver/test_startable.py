"""Pods, groups and tasks that could not start on any node or centre are refused with the request."""

from __future__ import annotations

import pytest

from controller.apiserver.resources import Metadata, Pod, PodGroup, Task
from controller.apiserver.resources.pod import Container, PodSpec, PodStrategy
from controller.apiserver.resources.pod_group import PodGroupSpec, PodGroupStrategy
from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec
from controller.apiserver.resources.task_rules import TaskStrategy
from controller.common.errors import InvalidError

BAD = Container(name="main", image="Nginx:latest")


def a_pod(container: Container, priority: int = 0) -> Pod:
    return Pod(metadata=Metadata(name="web"), spec=PodSpec(containers=(container,), priority=priority))


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        (BAD, "image: image Nginx:latest: is not an image name"),
        (Container(name="main", image=""), "image: is empty"),
        (Container(name="main", image="x", command=("a", "\0")), "command: has a NUL, which no program can receive"),
        (Container(name="main", image="x", environment={"": "a"}), "environment: '' is not the name of a variable"),
        (Container(name="main", image="x", secrets={"A=": "a"}), "secrets: 'A=' is not the name of a variable"),
        (Container(name="main", image="x", working_folder="/\0"), "working_folder: has a NUL"),
    ],
)
def test_containers_that_cannot_start_are_refused(container: Container, problem: str) -> None:
    container_of_project = a_pod(container)
    if container.secrets:
        container_of_project = Pod(metadata=Metadata(name="web", project="p"), spec=container_of_project.spec)
    with pytest.raises(InvalidError, match="Pod web: container main: ") as caught:
        PodStrategy().validate(None, container_of_project)
    assert problem in str(caught.value)


def test_stored_pods_with_them_can_still_be_changed() -> None:
    PodStrategy().validate(a_pod(BAD), a_pod(BAD, priority=2))


def test_templates_of_groups_are_checked() -> None:
    spec = PodGroupSpec(size=2, template=PodSpec(containers=(BAD,)))
    with pytest.raises(InvalidError, match="PodGroup g: container main: image"):
        PodGroupStrategy().validate(None, PodGroup(metadata=Metadata(name="g"), spec=spec))


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (
            Program(kind=ProgramKind.CONTAINER, entry="Nginx:latest"),
            "Task t: entry: image Nginx:latest: is not an image",
        ),
        (Program(kind=ProgramKind.CONTAINER, entry="x", arguments=("\0",)), "Task t: arguments: has a NUL"),
        (Program(kind=ProgramKind.CONTAINER, entry="x", environment={"A": "\0"}), "Task t: environment: 'A' has a NUL"),
    ],
)
def test_programs_that_cannot_start_are_refused(program: Program, problem: str) -> None:
    with pytest.raises(InvalidError, match=problem):
        TaskStrategy().validate(None, Task(metadata=Metadata(name="t"), spec=TaskSpec(program=program)))
