"""Objects published by a single store: default actions, multicast groups and clone sessions, whole value sets."""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    array_at,
    as_u32,
    kernel,
    offset,
    sizeof,
    store_release,
    u32,
    u64,
    view,
)
from dataplane.switch.abi import Replicas, TableHead
from dataplane.switch.tables.native.memory import Memory, allocate, begin_write, retire
from dataplane.switch.tables.native.records import (
    ARGUMENT_WORDS,
    DONE,
    ENTRY_BYTES,
    HEAD_WORDS,
    NO_MEMORY,
    fill_entry,
)

REPLICAS_BYTES = sizeof(Replicas)


@kernel
def put_default(memory: Memory, table: TableHead, request: Array[u64]) -> u32:
    """Replace a table's default action; the arguments follow the request's head."""
    if not begin_write(memory):
        return NO_MEMORY
    block = allocate(memory, ENTRY_BYTES // 8 + request[ARGUMENT_WORDS])
    if block == 0:
        return NO_MEMORY
    fill_entry(block, request, offset(request, HEAD_WORDS), block + ENTRY_BYTES)
    return publish(memory, array_at(u64, address(table)), block)


@kernel
def publish(memory: Memory, word: Array[u64], block: u64) -> u32:
    """Store the address of another block, or 0, in a word; the previous one is retired."""
    if not begin_write(memory):
        return NO_MEMORY
    old = word[0]
    store_release(word[0], block)
    retire(memory, old)
    return DONE


@kernel
def store_word(word: Array[u64], value: u64) -> None:
    """Store another value in a word, ordered after all earlier writes."""
    store_release(word[0], value)


@kernel
def put_replicas(memory: Memory, word: Array[u64], request: Array[u64]) -> u32:
    """Replace a group or session; request: count, class of service, packet length, port and instance of each."""
    count = request[0]
    if not begin_write(memory):
        return NO_MEMORY
    block = allocate(memory, REPLICAS_BYTES // 8 + count)
    if block == 0:
        return NO_MEMORY
    replicas = view(Replicas, block)
    replicas.count = as_u32(count)
    replicas.class_of_service = as_u32(request[1])
    replicas.packet_length = as_u32(request[2])
    replicas.reserved = 0
    replicas.ports = array_at(u32, block + REPLICAS_BYTES)
    replicas.instances = offset(replicas.ports, count)
    for copy_number in range(count):
        replicas.ports[copy_number] = as_u32(request[3 + 2 * copy_number])
        replicas.instances[copy_number] = as_u32(request[4 + 2 * copy_number])
    return publish(memory, word, block)
