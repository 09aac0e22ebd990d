"""System call filter for bundles: the profile that podman and others install, in the OCI specification's form.

Sources: github.com/containers/common pkg/seccomp (the profile's format: rules that hold for some architectures or
capabilities); OCI runtime specification 1.0, config-linux.md "Seccomp".
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any, Final

from controller.workloads.nodes.runtimes.errors import ContainerError
from controller.workloads.nodes.runtimes.security import CAPABILITIES

PROFILE: Final = Path("/usr/share/containers/seccomp.json")
_ARCHITECTURES: Final = {"x86_64": ("amd64", "SCMP_ARCH_X86_64"), "aarch64": ("arm64", "SCMP_ARCH_AARCH64")}


def read_profile(path: Path) -> dict[str, Any]:
    """Return a profile for this machine and a container's capabilities; raise ContainerError if there is none."""
    try:
        return profile_of(json.loads(path.read_bytes()), platform.machine())
    except FileNotFoundError as error:
        raise ContainerError(
            f"{path}: does not exist (Debian package golang-github-containers-common): to run containers without a "
            "filter of system calls, set `seccomp: none` in the runtime's settings"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ContainerError(f"{path}: is not a seccomp profile: {error}") from error


def profile_of(profile: dict[str, Any], machine: str) -> dict[str, Any]:
    """Return a profile's rules for a kind of machine, in the OCI specification's form."""
    short, architecture = _ARCHITECTURES.get(machine, (machine, ""))
    below = [each["subArchitectures"] for each in profile.get("archMap") or () if each["architecture"] == architecture]
    filtered = {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile.get("defaultErrnoRet"),
        "architectures": [architecture, *(below[0] or () if below else ())] if architecture else None,
        "syscalls": [_rule(rule) for rule in profile["syscalls"] if _holds(rule, short)],
    }
    return {key: value for key, value in filtered.items() if value is not None}


def _holds(rule: dict[str, Any], architecture: str) -> bool:
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    if architecture not in includes.get("arches", [architecture]) or architecture in excludes.get("arches", ()):
        return False
    has = set(CAPABILITIES)
    return has.issuperset(includes.get("caps", ())) and not has.intersection(excludes.get("caps", ()))


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    return {key: rule[key] for key in ("names", "action", "errnoRet", "args") if rule.get(key) not in (None, [])}
