"""Compiled code in this process: from a module or the cache to functions that Python can call."""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

import llvmlite
from llvmlite import binding as llvm

from dataplane.native import cache
from dataplane.native.arrays import Array, address_of, pointer_to
from dataplane.native.cache import ObjectCode
from dataplane.native.constants import process_symbols
from dataplane.native.errors import NativeError
from dataplane.native.kernels import Kernel
from dataplane.native.module import Module
from dataplane.native.parts import compile_parts, part, worth_parting
from dataplane.native.scalars import CTYPES, Scalar
from dataplane.native.shapes import Shape

P = ParamSpec("P")
T = TypeVar("T")
_library_numbers = itertools.count()


def _once(make: Callable[P, T]) -> Callable[P, T]:
    """Cache a function's results, computing each once even if several threads ask at the same time."""
    lock, cached = threading.RLock(), cast("Callable[P, T]", functools.cache(make))

    @functools.wraps(make)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        with lock:
            return cached(*args, **kwargs)

    return once


class Library:
    """Loaded code; it stays loaded while this object, or a function returned by `bind`, is alive."""

    def __init__(self, code: ObjectCode) -> None:
        self._jit = _jit()
        builder = llvm.JITLibraryBuilder()
        for image in code.images:
            builder.add_object_img(image)
        builder.add_current_process()
        for name, address in process_symbols():
            builder.import_symbol(name, address)
        for name in code.exports:
            builder.export_symbol(name)
        try:
            self._tracker = builder.link(self._jit, f"library{next(_library_numbers)}")
        except RuntimeError as error:
            raise NativeError(f"compiled code cannot be linked: {' '.join(str(error).split())}") from None
        self.exports = code.exports

    def call_address(self, function: str | Kernel[..., object]) -> int:
        """Return the address of an exported function."""
        name = function if isinstance(function, str) else function.symbol
        if name not in self.exports:
            raise NativeError(f"{name} is not exported by this library")
        address: int = self._tracker[name]
        return address

    @overload
    def bind(self, kernel: Kernel[P, bool]) -> Callable[..., bool]: ...
    @overload
    def bind(self, kernel: Kernel[P, int]) -> Callable[..., int]: ...
    @overload
    def bind(self, kernel: Kernel[P, None]) -> Callable[..., None]: ...  # type: ignore[overload-overlap]
    @overload
    def bind(self, kernel: Kernel[P, object]) -> Callable[..., int]: ...
    def bind(self, kernel: Kernel[P, Any]) -> Callable[..., Any]:
        """Return a function that calls an exported kernel without the interpreter's lock.

        Structs and arrays are passed as Struct, `pointer_to`, ctypes object, buffer, address or None, and returned as
        addresses; numbers are truncated to their width.
        """
        signature = kernel.signature
        result = None if signature.result is None else _result_type(signature.result)
        kind = ctypes.CFUNCTYPE(result, *map(_argument_type, signature.shapes))
        function = kind(self.call_address(kernel))
        cast("Any", function).library = self
        return function


class _PointerArgument:
    """ctypes conversion of a pointer argument."""

    @classmethod
    def from_param(cls, value: object) -> object:
        if isinstance(value, int):
            return ctypes.c_void_p(value)
        if isinstance(value, ctypes.Array | bytes):
            return ctypes.c_char_p(value) if isinstance(value, bytes) else value
        if isinstance(value, Array | ctypes.Structure) or value is None:
            return ctypes.c_void_p(address_of(value))
        return ctypes.c_void_p(pointer_to(value).address)


def _argument_type(shape: Shape) -> type[Any]:
    return CTYPES[shape] if isinstance(shape, Scalar) else _PointerArgument


def _result_type(shape: Shape) -> type[Any]:
    return CTYPES[shape] if isinstance(shape, Scalar) else ctypes.c_uint64


@_once
def _jit() -> Any:  # noqa: ANN401 - llvmlite is untyped
    """Return the process's linker; all libraries share one, as each would map its own memory."""
    return llvm.create_lljit_compiler(_target_machine(), use_jit_link=True)


@_once
def _target_machine(level: int = 2) -> Any:  # noqa: ANN401 - llvmlite is untyped
    """Return the host's target machine with all processor features, at this optimisation level."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        reloc="pic",
        codemodel="small",
        jit=True,
    )


def cache_key(*parts: str | bytes, packages: Iterable[str] = ()) -> str:
    """Return a digest of the parts, of these packages' source and this one's, of LLVM and of the processor."""
    features = llvm.get_host_cpu_features().flatten()
    host = (llvmlite.__version__, str(llvm.llvm_version_info), llvm.get_host_cpu_name(), features)
    return cache.digest((*host, *parts), {"dataplane.native", *packages})


def compile_module(
    module: Module,
    *,
    key: str | None = None,
    cache_dir: Path | Literal["default"] | None = "default",
    optimise: bool = True,
    apart: Collection[str] = (),
) -> Library:
    """Compile a module for this host and load it; with a key, store the object code for `load_cached`.

    A `cache_dir` of None stores nothing. Without `optimise`, compiling takes a tenth of the time and the code is slow.
    Internal functions named in `apart` may be compiled by another process in parallel, and are then not inlined. Raises
    NativeError if LLVM rejects the module.
    """
    text = str(module.ir)
    first, second = part(text, apart) if optimise and apart else (text, "")
    if worth_parting(second):
        images = compile_parts(first, second, compile_object)
    else:
        images = (compile_object(text, optimise=optimise),)
    code = ObjectCode(module.exports, images)
    directory = _directory(cache_dir)
    if key is not None and directory is not None:
        cache.write(directory, key, code)
    return Library(code)


def load_cached(key: str, cache_dir: Path | Literal["default"] | None = "default") -> Library | None:
    """Return the code compiled under a key before, or None."""
    directory = _directory(cache_dir)
    code = None if directory is None else cache.read(directory, key)
    return None if code is None else Library(code)


def _directory(chosen: Path | Literal["default"] | None) -> Path | None:
    return cache.default_dir() if chosen == "default" else chosen


def compile_object(text: str, *, optimise: bool = True) -> bytes:
    """Compile LLVM assembly to an object file for this host."""
    level = 2 if optimise else 0
    machine = _target_machine(level)
    try:
        parsed = llvm.parse_assembly(text, llvm.create_context())
        parsed.triple = machine.triple
        parsed.data_layout = str(machine.target_data)
        parsed.verify()
    except RuntimeError as error:
        raise NativeError(f"invalid generated code: {' '.join(str(error).split())}") from None
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(parsed, passes)
    image: bytes = machine.emit_object(parsed)
    return image


@_once
def kernel_library(*kernels: Kernel[..., Any]) -> Library:
    """Return a library that exports these kernels; compiled code is cached on disk by its inputs."""
    module = Module("kernels")
    for kernel in kernels:
        module.export(kernel)
    key = cache_key(str(module.ir))
    return load_cached(key) or compile_module(module, key=key)
