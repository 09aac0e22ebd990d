"""DigestEntry: enables digests to the controller, and configures their bundling (specification, section 9.8)."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind
from dataplane.switch.p4runtime.digests import DigestConfig
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid


def write(context: Context, kind: UpdateKind, message: p4r.DigestEntry) -> None:
    """Turn learning on, change its bundling, or turn it off."""
    info = context.catalog.digest(message.digest_id)
    learner = context.learners[info.spec.name]
    if kind is UpdateKind.INSERT and learner.config is not None:
        raise P4RuntimeError(Code.ALREADY_EXISTS, f"{info.spec.name}: the digest is already configured")
    if kind is not UpdateKind.INSERT and learner.config is None:
        raise P4RuntimeError(Code.NOT_FOUND, f"{info.spec.name}: the digest is not configured")
    learner.configure(None if kind is UpdateKind.DELETE else _decode(message.config, info.spec.name))


def _decode(config: p4r.DigestEntry.Config, where: str) -> DigestConfig:
    if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
        raise invalid(f"{where}: times and sizes cannot be negative")
    return DigestConfig(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns)


def undo(context: Context, message: p4r.DigestEntry) -> Undo:
    """Return a function that restores the digest's present configuration."""
    learner = context.learners[context.catalog.digest(message.digest_id).spec.name]
    present = learner.config
    return lambda: learner.configure(present)


def read(context: Context, message: p4r.DigestEntry) -> Iterator[p4r.Entity]:
    """Return the configuration of one digest, or of all; disabled digests have none."""
    catalog = context.catalog
    infos = [catalog.digest(message.digest_id)] if message.digest_id else list(catalog.digests.values())
    entities = []
    for info in infos:
        config = context.learners[info.spec.name].config
        if config is not None:
            entry = p4r.DigestEntry(digest_id=info.digest_id)
            entry.config.max_timeout_ns = config.max_timeout_ns
            entry.config.max_list_size = config.max_list_size
            entry.config.ack_timeout_ns = config.ack_timeout_ns
            entities.append(p4r.Entity(digest_entry=entry))
    return iter(entities)
