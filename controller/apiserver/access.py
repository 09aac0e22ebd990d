"""Access rules: the verbs that each role may use on each kind; pure.

| role | reads | writes |
| --- | --- | --- |
| viewer | everything, without logs | nothing |
| user | pods, groups, tasks, their logs, decisions of user and projects; all else | those, probe tasks: no status |
| node | its Node, the pods on it | its Node (to create it, and its status), status and release of the pods on it |
| centre | its Centre, its tasks and probe results | its Centre (likewise), status, picks, completions of its tasks |
| placement | nodes, pods, pod groups, decisions | pods and their releases, nodes, status of pod groups |
| holder | the unit pools that it may hold units of | its own reports in them |
| balance | unit pools, nodes | shares and status of unit pools |
| service | everything, with logs | everything, but no commands in pods |
| admin | everything, and tokens | everything, and tokens |
| worker | nothing more: workers attend jobs, at the job service | nothing |

All roles read probe kernels and probe tasks. A user with the right `exec` runs commands in their own pods; a user with
the right `kernels` writes probe kernels, with the right `scoring` scoring policies. Users cannot change what others
created; a decision belongs to the owner of its subject.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from controller.apiserver.registry.placements import NewDecision
from controller.apiserver.registry.selection import How, Selection
from controller.apiserver.registry.tenancy.tenants import tenant_of
from controller.apiserver.resources import Kind, Resource, UnitPool
from controller.apiserver.resources.base import FieldValue
from controller.apiserver.resources.kind import Verb
from controller.common.errors import ForbiddenError
from dataplane.rpc.access import Principal, Right, Role

_ALL: Final = (Role.ADMIN, Role.SERVICE)
_USERS_VERBS: Final = {Verb.CREATE, Verb.REPLACE, Verb.DELETE}
_CONTROLLERS: Final = (Role.PLACEMENT, Role.BALANCE)
"""Roles with rights on all resources of some kinds."""


def check(principal: Principal, verb: Verb, kind: Kind[Any], resource: Resource) -> None:
    """Raise ForbiddenError if a principal may not perform this operation on the resource."""
    role, rights = principal.role, kind.rights
    if role in _ALL or (verb is Verb.READ and (rights.is_public or role is Role.VIEWER)):
        return
    if role is Role.USER:
        may_write = rights.users_write or rights.users_right in principal.rights
        if verb is not Verb.READ and not (may_write and verb in _USERS_VERBS):
            raise _forbidden(principal, verb, f"a {kind.name}")
        is_bounded = verb is not Verb.CREATE and (verb is not Verb.READ or rights.is_private)
        tenant = tenant_of(principal)
        if is_bounded and tenant is not None and not tenant.has(resource.metadata):
            raise _forbidden(principal, verb, f"{kind.name} {resource.metadata.name}: it belongs to another user")
        return
    if role in _CONTROLLERS:
        if verb not in rights.roles.get(role, ()):
            raise _forbidden(principal, verb, f"a {kind.name}")
        return
    name = resource.metadata.name
    own = rights.own.get(role)
    read = None if own is None else kind.field(own.field)
    if own is None or read is None or verb not in own.verbs or not _is_own(read(resource), principal):
        raise _forbidden(principal, verb, f"{kind.name} {name}")


def check_list(principal: Principal, kind: Kind[Any], selection: Selection) -> None:
    """Raise ForbiddenError for a list or watch that covers more than the principal may read."""
    if principal.role in (*_ALL, Role.USER, Role.VIEWER) or kind.rights.is_public:
        return
    if principal.role in kind.rights.roles:
        return
    own = kind.rights.own.get(principal.role)
    if own is None:
        raise _forbidden(principal, Verb.READ, kind.plural)
    wanted = (own.field, How.EQUAL, principal.subject)
    if not any((term.name, term.how, term.value) == wanted for term in selection.fields):
        raise _forbidden(principal, Verb.READ, f"{kind.plural} but with fields={own.field}={principal.subject}")


def bounded(principal: Principal, kind: Kind[Any], selection: Selection) -> Selection:
    """Narrow a list or watch that passed `check_list` to what the principal may see."""
    return replace(selection, tenant=tenant_of(principal)) if kind.rights.is_private else selection


def check_decision(principal: Principal, decision: NewDecision | None) -> None:
    """Raise ForbiddenError if a non-scheduler attaches a decision: nodes and centres release and complete, too."""
    if decision is not None and principal.role not in (*_ALL, Role.PLACEMENT):
        raise _forbidden(principal, Verb.CREATE, "a Decision")


def check_bind(principal: Principal) -> None:
    """Raise ForbiddenError unless the principal is a scheduler."""
    if principal.role not in _ALL:
        raise _forbidden(principal, Verb.BIND, "pods")


def check_evict(principal: Principal) -> None:
    """Raise ForbiddenError unless the principal is a scheduler or the workload controller."""
    if principal.role not in (*_ALL, Role.PLACEMENT):
        raise _forbidden(principal, Verb.EVICT, "pods")


def check_dispatch(principal: Principal) -> None:
    """Raise ForbiddenError unless the principal is a scheduler."""
    if principal.role not in _ALL:
        raise _forbidden(principal, Verb.DISPATCH, "tasks")


def check_member(principal: Principal, task: str, centre: str | None) -> None:
    """Raise ForbiddenError for a centre that ends another centre's part of a task."""
    if principal.role is Role.CENTRE and centre not in {None, principal.subject}:
        raise _forbidden(principal, Verb.COMPLETE, f"the part of Task {task} at centre {centre}")


def check_share(principal: Principal) -> None:
    """Raise ForbiddenError unless the principal balances loads."""
    if principal.role not in (*_ALL, Role.BALANCE):
        raise _forbidden(principal, Verb.SHARE, "units")


def check_report(principal: Principal, pool: UnitPool, holder: str) -> None:
    """Raise ForbiddenError unless the principal is that holder of units."""
    if principal.role in _ALL or (principal.role is Role.HOLDER and principal.subject == holder):
        return
    raise _forbidden(principal, Verb.REPORT, f"for {holder} in UnitPool {pool.metadata.name}")


def check_logs(principal: Principal, kind: Kind[Any]) -> None:
    """Raise ForbiddenError if the principal may not read logs of pods, or of tasks."""
    if principal.role not in {*_ALL, Role.USER}:
        raise _forbidden(principal, Verb.READ, f"logs of {kind.plural}")


def check_exec(principal: Principal) -> None:
    """Raise ForbiddenError if the principal may not run commands in containers; schedulers have no need to."""
    if principal.role is not Role.ADMIN and Right.EXEC not in principal.rights:
        raise _forbidden(principal, Verb.EXEC, "in pods: this needs the permission exec")


def check_nic(principal: Principal) -> None:
    """Raise ForbiddenError unless the principal may change how network devices are polled."""
    if principal.role not in _ALL:
        raise _forbidden(principal, Verb.REPLACE, "modes of polled queues")


def check_sessions(principal: Principal, role: Role, name: str) -> None:
    """Raise ForbiddenError unless the principal answers for the node or centre of that name."""
    if principal.role not in _ALL and (principal.role, principal.subject) != (role, name):
        raise _forbidden(principal, Verb.ANSWER, f"for {role.value} {name}")


def check_tokens(principal: Principal) -> None:
    """Raise ForbiddenError unless the principal is an administrator."""
    if principal.role is not Role.ADMIN:
        raise ForbiddenError(f"{principal.name} ({principal.role.value}) may not see or change tokens")


def _is_own(value: FieldValue, principal: Principal) -> bool:
    return principal.subject in value if isinstance(value, tuple) else principal.subject == value


def _forbidden(principal: Principal, verb: Verb, what: str) -> ForbiddenError:
    subject = "" if principal.subject is None else f" {principal.subject}"
    return ForbiddenError(f"{principal.name} ({principal.role.value}{subject}) may not {_WORDS[verb]} {what}")


_WORDS: Final = {
    Verb.READ: "read",
    Verb.CREATE: "create",
    Verb.REPLACE: "replace",
    Verb.STATUS: "write the status of",
    Verb.DELETE: "delete",
    Verb.BIND: "bind",
    Verb.RELEASE: "release",
    Verb.EVICT: "evict",
    Verb.SHARE: "share out",
    Verb.DISPATCH: "dispatch",
    Verb.COMPLETE: "complete",
    Verb.EXEC: "run commands",
    Verb.ANSWER: "answer",
    Verb.REPORT: "report",
}
