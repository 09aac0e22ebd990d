from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.native import (
    Array,
    Inline,
    InPlace,
    Module,
    NativeError,
    Struct,
    address,
    array_at,
    compile_module,
    i32,
    i64,
    kernel,
    kernel_library,
    pointer_to,
    sizeof,
    stack_array,
    u8,
    u16,
    u32,
    u64,
    view,
)
from dataplane.native.scalars import I32, U8, U16, U64
from dataplane.native.structs import PointerField


class Lane(Struct):
    flag: bool
    weight: u32
    total: u64
    tag: u16


class Node(Struct):
    number: u8
    next: Node
    lane: Lane
    lanes: Inline[Lane, Literal[3]]
    bytes: Inline[u8, Literal[5]]
    words: Array[u32]
    later: Later
    signed: i32


class Later(Struct):
    value: i64


class Wide(Lane):
    extra: u8
    more: u64


class Pair(Struct):
    first: u8
    lane: InPlace[Lane]
    node: InPlace[Node]
    last: u16


class PlainLane(ctypes.Structure):
    _fields_ = (
        ("flag", ctypes.c_bool),
        ("weight", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("tag", ctypes.c_uint16),
    )


class PlainNode(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_uint8),
        ("next", ctypes.c_void_p),
        ("lane", ctypes.c_void_p),
        ("lanes", PlainLane * 3),
        ("bytes", ctypes.c_uint8 * 5),
        ("words", ctypes.c_void_p),
        ("later", ctypes.c_void_p),
        ("signed", ctypes.c_int32),
    )


class PlainPair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_uint8), ("lane", PlainLane), ("node", PlainNode), ("last", ctypes.c_uint16))


@pytest.mark.parametrize(("struct", "plain"), [(Lane, PlainLane), (Node, PlainNode), (Pair, PlainPair)])
def test_layout_is_that_of_c(struct: type[Struct], plain: type[ctypes.Structure]) -> None:
    assert ctypes.sizeof(struct) == ctypes.sizeof(plain)
    for field in plain._fields_:
        own, other = getattr(struct, field[0]), getattr(plain, field[0])
        assert (own.offset, own.size) == (other.offset, other.size)


@kernel
def write_node(node: Node) -> u64:
    node.number = 250
    node.number += 10
    node.signed = -5
    node.signed //= 2
    node.lane.weight = 77
    node.lane.flag = not node.lane.flag
    node.lanes[2].total = 1 << 40
    node.lanes[1].tag = node.lanes[1].tag - 1
    node.bytes[4] = 9
    node.words[3] = node.words[0] ^ 0xFFFF_FFFF
    node.later.value = -1
    node.next.number = 3
    node.next.next = node
    last = node.next.next
    return address(last) - address(node) + address(node.lanes) - address(node)


@kernel
def read_wide(wide: Wide) -> u64:
    wide.more += 1
    wide.extra = 7
    return total_of(wide) + wide.more


@kernel
def total_of(lane: Lane) -> u64:
    return lane.total


def test_kernels_and_python_see_the_same_fields() -> None:
    words = (ctypes.c_uint32 * 4)(1, 2, 3, 4)
    node = Node(next=Node(), lane=Lane(), words=words, later=Later())
    offset = kernel_library(write_node, read_wide).bind(write_node)(node)
    assert offset == Node.lanes.offset  # type: ignore[attr-defined]  # it is a field descriptor on the class
    assert (node.number, node.signed, node.lane.weight, node.lane.flag) == (4, -3, 77, True)
    assert (node.lanes[2].total, node.lanes[1].tag, node.bytes[4]) == (1 << 40, 0xFFFF, 9)
    assert (node.words[3], words[3]) == (0xFFFFFFFE, 0xFFFFFFFE)
    assert (node.later.value, node.next.number, node.next.next.address) == (-1, 3, node.address)


@kernel
def write_pair(pair: Pair) -> u64:
    lane = pair.lane
    lane.weight = 5
    pair.lane.total += total_of(pair.node.lane) + pair.node.lanes[1].total
    pair.node.words[1] = lane.weight + 1
    pair.node.number = 3
    pair.last = 9
    return address(pair.node) - address(pair)


def test_a_struct_in_place_is_one_to_both_sides() -> None:
    pair = Pair(first=1)
    pair.lane.total = 100
    pair.node.lane = Lane(total=20)
    pair.node.words = pointer_to((ctypes.c_uint32 * 2)(7, 8))
    pair.node.lanes[1].total = 3
    gc.collect()
    offset = kernel_library(write_pair).bind(write_pair)(pair)
    assert offset == Pair.node.offset
    assert (pair.first, pair.lane.weight, pair.lane.total, pair.node.number, pair.last) == (1, 5, 123, 3, 9)
    assert (pair.node.words[0], pair.node.words[1]) == (7, 6)


def test_a_struct_in_place_cannot_be_set_as_a_whole() -> None:
    with pytest.raises(NativeError, match=r"Pair\.lane is in place: set its fields"):
        Pair().lane = Lane()


FIELDS = {
    "x: InPlace[u8]": "InPlace is for structs",
    "x: Array[InPlace[Lane]]": "are always in place",
    "x: InPlace[After]": "must be defined first",
}
BODIES = {
    "lane: InPlace[Lane] = pair.lane": "a local of struct type is a reference",
    "reference(pair.lane)": "already a reference",
    "pair.lane = pair.node.lane": r"InPlace\[Lane\]",
}
AFTER = "class After(Struct):\n    y: u8\n"
OF_BAD = "@kernel\ndef f(bad: Bad) -> u64:\n    return address(bad.x)"
MISPLACED = [
    *((f"class Bad(Struct):\n    {field}\n{AFTER}{OF_BAD}", problem) for field, problem in FIELDS.items()),
    *((f"@kernel\ndef f(pair: Pair) -> None:\n    {line}", problem) for line, problem in BODIES.items()),
    ("@kernel\ndef f(x: InPlace[Lane]) -> None:\n    pass", "a parameter is the struct itself"),
]


@pytest.mark.parametrize(("text", "problem"), MISPLACED)
def test_a_struct_in_place_where_none_can_stand_is_refused(
    text: str, problem: str, kernels_in: Callable[..., dict[str, Any]]
) -> None:
    with pytest.raises(NativeError, match=problem):
        kernel_library(kernels_in(text, Lane=Lane, Pair=Pair)["f"])


def test_a_struct_stands_for_the_one_it_inherits_from() -> None:
    wide = Wide(total=40, more=1)
    assert kernel_library(write_node, read_wide).bind(read_wide)(wide) == 42
    assert wide.extra == 7


def test_null_pointers_read_as_zero_and_null_arrays_raise() -> None:
    node = Node()
    assert address(node.next) == 0
    assert address(node.words) == 0
    with pytest.raises(ValueError, match="null"):
        node.words[0]
    node.words = pointer_to(bytearray(b"\1\0\0\0\2\0\0\0"))
    assert node.words[1] == 2
    node.words[1] = 5
    assert node.words[1] == 5


def test_a_field_keeps_what_it_points_to_alive() -> None:
    node = Node(next=Node(number=9), words=(ctypes.c_uint32 * 1)(5))
    gc.collect()
    assert (node.next.number, node.words[0]) == (9, 5)
    node.next = None  # type: ignore[assignment]  # a struct to a type checker
    assert address(node.next) == 0


def test_fields_take_addresses_and_buffers() -> None:
    lane, data = Lane(weight=3), np.array([7, 8], dtype=np.uint32)
    node = Node(lane=lane.address, words=data)
    assert (node.lane.weight, node.words[1]) == (3, 8)
    node.words[0] = 11
    assert data[0] == 11


@pytest.mark.parametrize("field", ["x: int", "x: float", "x: str", "x: Array[int]", "x: Inline[u8, Literal[0]]"])
def test_a_field_of_unknown_type_is_refused(field: str, kernels_in: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(NativeError, match=r"Bad\.x: .*(not a kernel type|is not a type)"):
        kernels_in(f"class Bad(Struct):\n    {field}\n", Literal=Literal)


def test_a_file_whose_annotations_are_no_text_is_refused() -> None:
    text = "class Bad(Struct):\n    count: u8\n"
    with pytest.raises(NativeError, match="Bad: the file lacks `from __future__ import annotations`"):
        exec(compile(text, "bad", "exec", dont_inherit=True), {"Struct": Struct, "u8": u8, "__name__": __name__})


def test_pointers_are_found_on_the_class_with_their_offsets() -> None:
    """Python versions differ in where ctypes creates a class's descriptors."""
    pointers = {name for name, field in vars(Node).items() if isinstance(field, PointerField)}
    assert pointers == {"next", "lane", "words", "later"}
    assert [PlainNode.words.offset, PlainNode.words.size] == [Node.words.offset, Node.words.size]  # type: ignore[attr-defined]


FIELD_TYPES = ("u8", "u16", "u32", "u64", "i32", "i64", "bool", "Array[u8]", "Inline[u16, Literal[3]]")


@settings(max_examples=30)
@given(kinds=st.lists(st.sampled_from(FIELD_TYPES), min_size=1, max_size=9), split=st.integers(1, 9))
def test_any_struct_is_laid_out_alike_on_both_sides(
    kinds: list[str], split: int, kernels_in: Callable[..., dict[str, Any]]
) -> None:
    fields = [f"    f{number}: {kind}\n" for number, kind in enumerate(kinds)]
    base, rest = fields[:split], fields[split:]
    text = "class Base(Struct):\n" + "".join(base) + "class Whole(Base):\n" + ("".join(rest) or "    pass\n")
    places = [f"{n}] = address(reference(s.f{n}))" for n, kind in enumerate(kinds) if not kind.startswith("Inline")]
    places += [f"{n}] = address(s.f{n})" for n, kind in enumerate(kinds) if kind.startswith("Inline")]
    text += "@kernel\ndef f(s: Whole, out: Array[u64], many: Array[Whole]) -> u64:\n"
    text += "".join(f"    out[{line}\n" for line in places) + "    return address(many[1]) - address(many[0])\n"
    made = kernels_in(text, Literal=Literal)
    module = Module("layout")
    module.export(made["f"])
    whole, out = made["Whole"](), (ctypes.c_uint64 * len(kinds))()
    run: Callable[..., int] = compile_module(module, cache_dir=None, optimise=False).bind(made["f"])
    assert run(whole, out, 4096) == ctypes.sizeof(whole)
    assert [address - whole.address for address in out] == [
        getattr(made["Whole"], f"f{number}").offset for number in range(len(kinds))
    ]


@kernel
def reverse_on_stack(data: Array[u16], count: u64) -> u64:
    copied = stack_array(u16, 8)
    for i in range(count):
        copied[i] = data[count - 1 - i]
    lanes = stack_array(Lane, 2)
    lanes[1].weight = 5
    for i in range(count):
        data[i] = copied[i]
    return sizeof(Lane) * 1000 + sizeof(u16) * 100 + address(lanes[1]) - address(lanes[0])


def test_memory_of_the_frame() -> None:
    data = (ctypes.c_uint16 * 5)(1, 2, 3, 4, 5)
    assert kernel_library(reverse_on_stack).bind(reverse_on_stack)(data, 5) == 24 * 1000 + 200 + 24
    assert list(data) == [5, 4, 3, 2, 1]


@kernel
def follow(at: u64, out: Array[u64]) -> bool:
    lane = view(Lane, at)
    out[0] = lane.total
    nothing = view(Lane, 0)
    table = array_at(Array[u32], out[1])
    out[2] = address(table[1])
    table[0] = table[1]
    return address(nothing) == 0


def test_addresses_become_pointers() -> None:
    lane, words = Lane(total=12), (ctypes.c_uint32 * 1)()
    pointers = (ctypes.c_uint64 * 2)(0, ctypes.addressof(words))
    out = (ctypes.c_uint64 * 3)(0, ctypes.addressof(pointers), 0)
    assert kernel_library(follow).bind(follow)(lane.address, out)
    assert (out[0], out[2], pointers[0]) == (12, ctypes.addressof(words), ctypes.addressof(words))


def test_python_reads_structs_at_an_address() -> None:
    lanes = (Lane * 2)(Lane(total=1), Lane(total=2))
    assert array_at(Lane, ctypes.addressof(lanes))[1].total == 2
    assert (sizeof(Lane), sizeof(u16)) == (24, 2)


def test_what_the_machine_passes_in_registers(kernels_in: Callable[..., dict[str, Any]]) -> None:
    """Narrow numbers are truncated to their width, whatever the caller's register holds above it."""
    text = "".join(
        f"@kernel\ndef f_{t}(a: {t}, b: {t}) -> u64:\n    return as_u64(a) + as_u64(b)\n" for t in (U8, U16, I32, U64)
    )
    text += "@kernel\ndef g(a: u8, b: bool, c: i32) -> bool:\n    return b and as_i32(a) == c\n"
    made = kernels_in(text)
    library = kernel_library(*(made[f"f_{t}"] for t in (U8, U16, I32, U64)), made["g"])
    for scalar in (U8, U16, I32, U64):
        added: Callable[..., int] = library.bind(made[f"f_{scalar}"])
        assert added(scalar.high, scalar.high) == U64.wrap(2 * scalar.high)
        assert added(scalar.low, 1) == U64.wrap(scalar.low + 1)
    check: Callable[..., bool] = library.bind(made["g"])
    assert check(255, True, 255) is True
    assert check(255, False, 255) is False
