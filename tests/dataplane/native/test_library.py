from __future__ import annotations

import ctypes
import gc
import os
import threading
from array import array
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from llvmlite import ir

from dataplane.native import (
    Array,
    Inline,
    Kernel,
    Module,
    NativeError,
    Struct,
    array_at,
    compile_module,
    external,
    i32,
    kernel,
    kernel_library,
    load_acquire,
    pause,
    pointer_to,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.translation.values import POINTER, WORD


class Flags(Struct):
    ready: u64
    seen: u64
    cells: Inline[u32, Literal[4]]


@kernel
def first_byte(data: Array[u8]) -> u8:
    return data[0]


@kernel
def wait_for_flag(flags: Flags) -> u64:
    store_release(flags.seen, 1)
    while load_acquire(flags.ready) == 0:
        pause()
    return flags.ready


@kernel
def find(flags: Flags, wanted: u64) -> Flags:
    return flags if flags.ready == wanted else view(Flags, 0)


@kernel
def cells_of(flags: Flags) -> Array[u32]:
    return flags.cells


ALL = (first_byte, wait_for_flag, find, cells_of)


@pytest.mark.parametrize(
    "memory",
    [
        b"\x2a\0",
        bytearray(b"\x2a\0"),
        memoryview(bytearray(b"\x2a\0")),
        array("B", [42]),
        np.array([42], dtype=np.uint8),
        (ctypes.c_uint8 * 2)(42),
        Flags(ready=42),
        pointer_to(bytearray(b"\x2a")),
        pointer_to(b"\x2a\0"),
        pointer_to(np.array([42], dtype=np.uint16)),
    ],
    ids=lambda memory: type(memory).__name__,
)
def test_memory_is_given_in_many_ways(memory: object) -> None:
    assert kernel_library(*ALL).bind(first_byte)(memory) == 42


def test_memory_is_given_by_address() -> None:
    memory = ctypes.create_string_buffer(b"\x2a")
    assert kernel_library(*ALL).bind(first_byte)(ctypes.addressof(memory)) == 42


def test_what_is_no_memory_is_refused() -> None:
    run = kernel_library(*ALL).bind(first_byte)
    for wrong in ("text", 1.5, object()):
        with pytest.raises((TypeError, ctypes.ArgumentError)):
            run(wrong)
    with pytest.raises(TypeError):
        run()


def test_pointers_come_back_as_addresses() -> None:
    library, flags = kernel_library(*ALL), Flags(ready=5)
    assert library.bind(find)(flags, 5) == flags.address
    assert library.bind(find)(flags, 6) == 0
    flags.cells[2] = 9
    assert array_at(u32, library.bind(cells_of)(flags))[2] == 9


def test_native_code_runs_without_the_interpreters_lock() -> None:
    flags = Flags()
    results: list[int] = []
    run = kernel_library(*ALL).bind(wait_for_flag)
    thread = threading.Thread(target=lambda: results.append(run(flags)))
    thread.start()
    while not flags.seen:
        pass
    flags.ready = 7
    thread.join()
    assert results == [7]


def test_libraries_live_as_long_as_what_they_gave(kernels_in: Callable[..., dict[str, Any]]) -> None:
    functions: list[Callable[..., int]] = []
    for number in range(20):
        made = kernels_in(f"@kernel(name='same')\ndef f(a: u64) -> u64:\n    return a + {number}\n")
        module = Module("many")
        module.export(made["f"])
        functions.append(compile_module(module, cache_dir=None, optimise=False).bind(made["f"]))
    gc.collect()
    assert [run(100) for run in functions] == [100 + number for number in range(20)]
    del functions[::2]
    gc.collect()
    assert [run(0) for run in functions] == list(range(1, 20, 2))


def test_only_what_is_exported_can_be_called() -> None:
    module = Module("exports")
    module.export(first_byte)
    module.function(find)
    library = compile_module(module, cache_dir=None)
    assert library.exports == module.exports == (first_byte.symbol,)
    assert library.call_address(first_byte) == library.call_address(first_byte.symbol) != 0
    with pytest.raises(NativeError, match=r"test_library\.find is not exported by this library"):
        library.bind(find)


def test_two_kernels_of_one_name_cannot_both_be_exported(kernels_in: Callable[..., dict[str, Any]]) -> None:
    text = """
def make(number):
    @kernel
    def f(a: u64) -> u64:
        return a + number
    return f

one, two = make(1), make(2)

@kernel
def both(a: u64) -> u64:
    return one(two(a))
"""
    made = kernels_in(text)
    run: Callable[..., int] = kernel_library(made["both"]).bind(made["both"])
    assert run(10) == 13
    with pytest.raises(NativeError, match="give this one a name"):
        kernel_library(made["one"], made["two"])


@external
def getpid() -> i32:
    """Return the process id (POSIX)."""
    raise NotImplementedError


@external(symbol="strlen")
def length_of(text: Array[u8]) -> u64:
    """Return the number of bytes before the first zero (C)."""
    raise NotImplementedError


@external
def generated(number: u64) -> u64:
    """Return generated code's result for a number."""
    raise NotImplementedError


@kernel
def ask_c(text: Array[u8]) -> u64:
    return length_of(text) if getpid() > 0 else 0


@kernel
def ask_generated(number: u64) -> u64:
    return generated(number) + 1


def test_kernels_call_c() -> None:
    assert kernel_library(ask_c).bind(ask_c)(b"hello") == 5
    assert os.getpid() > 0


def body_of_generated(function: Any) -> None:
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.mul(function.args[0], WORD(10)))


@pytest.mark.parametrize("defined_first", [True, False])
def test_kernels_call_code_that_others_define(defined_first: bool) -> None:
    module = Module("mixed")
    if defined_first:
        body_of_generated(ir.Function(module.ir, ir.FunctionType(WORD, [WORD]), "generated"))
    module.export(ask_generated)
    if not defined_first:
        body_of_generated(module.function(generated))
    library = compile_module(module, cache_dir=None)
    assert set(library.exports) == {"generated", ask_generated.symbol}
    assert library.bind(ask_generated)(4) == 41


def test_a_definition_of_another_type_is_refused() -> None:
    module = Module("mixed")
    ir.Function(module.ir, ir.FunctionType(WORD, [POINTER]), "generated")
    with pytest.raises(NativeError, match=r"generated is already i64 \(ptr\) in this module, not i64 \(i64\)"):
        module.export(ask_generated)


def test_generated_code_calls_kernels_and_reaches_fields() -> None:
    module = Module("mixed")
    kind = module.struct_type(Flags)
    function = ir.Function(module.ir, ir.FunctionType(WORD, [POINTER]), "entry")
    builder = ir.IRBuilder(function.append_basic_block())
    index = [ir.IntType(32)(0), ir.IntType(32)(module.field_index(Flags, "seen"))]
    builder.store(WORD(8), builder.gep(function.args[0], index, source_etype=kind))
    result = builder.call(module.function(find), [function.args[0], WORD(3)])
    builder.ret(builder.ptrtoint(result, WORD))
    library, flags = compile_module(module, cache_dir=None), Flags(ready=3)
    run = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(library.call_address("entry"))
    assert run(flags.address) == flags.address
    assert flags.seen == 8


def test_inlining_can_be_asked_for_and_forbidden(kernels_in: Callable[..., dict[str, Any]]) -> None:
    made = kernels_in(
        "@kernel(inline=True)\ndef near(a: u64) -> u64:\n    return a + 1\n"
        "@kernel(inline=False)\ndef far(a: u64) -> u64:\n    return a + 2\n"
        "@kernel\ndef f(a: u64) -> u64:\n    return near(a) * far(a)\n"
    )
    module = Module("inlining")
    module.export(made["f"])
    assert "alwaysinline" in str(module.function(made["near"]).attributes)
    assert "noinline" in str(module.function(made["far"]).attributes)
    run: Callable[..., int] = compile_module(module, cache_dir=None).bind(made["f"])
    assert run(3) == 20


def test_a_bound_kernel_says_what_it_is() -> None:
    made: Kernel[..., int] = first_byte
    assert (made.name, made.symbol) == ("first_byte", f"{__name__}.first_byte")
    assert repr(made) == f"<Kernel {__name__}.first_byte>"
