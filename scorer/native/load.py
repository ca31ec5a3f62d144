"""Loading of the native library (one shared object), with the reason if it cannot be loaded."""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

from scorer.native.compiler import OBJECT, SWITCH, source_digest, switched_off

POINTER = ctypes.c_void_p
COUNT = ctypes.c_uint32


@dataclass(frozen=True)
class NativeLibrary:
    """The shared object with the C functions that is loaded into this process, and its state as text.

    Attributes:
        library: the shared object, whose functions hold the GIL; None if it is not loaded.
        unlocked: the same shared object, whose functions release the GIL; None if it is not loaded.
        status: the state as text, with the reason if the shared object is not loaded.
    """

    library: ctypes.PyDLL | None
    status: str
    unlocked: ctypes.CDLL | None = None


@cache
def native_library() -> NativeLibrary:
    """Load the shared object, unless SCORESTREAM_NATIVE=0. Only the first call loads it; later calls return the same result."""
    if switched_off():
        return NativeLibrary(None, f"{SWITCH}=0 disables it")
    if not OBJECT.exists():
        return NativeLibrary(None, "it was not built: there was no C compiler, or the build was disabled")
    try:
        library = declare_functions(ctypes.PyDLL(str(OBJECT)))
        unlocked = declare_unlocked_functions(ctypes.CDLL(str(OBJECT)))
    except (OSError, AttributeError) as error:
        return NativeLibrary(None, f"it does not load: {error}")
    if library.native_source().decode() != source_digest():
        return NativeLibrary(None, "it was built from other sources: reinstall the package")
    return NativeLibrary(library, "built and in use", unlocked)


def declare_functions(library: ctypes.PyDLL) -> ctypes.PyDLL:
    """Declare the types of the functions of scanner.h, hash.c, source_positions.c and key_index.c.

    Raises AttributeError if a function is missing. The library is a PyDLL, which holds the GIL during a call. A call takes a
    fraction of a millisecond.
    """
    library.native_source.restype = ctypes.c_char_p
    library.scanner_new.restype = POINTER
    library.scanner_new.argtypes = [COUNT, COUNT, ctypes.c_char_p, POINTER, POINTER]
    library.scanner_free.restype = None
    library.scanner_free.argtypes = [POINTER]
    library.scanner_scan.restype = ctypes.c_int64
    library.scanner_scan.argtypes = [POINTER, POINTER, POINTER, ctypes.c_int64, POINTER, POINTER, POINTER]
    library.texts_hash.restype = None
    library.texts_hash.argtypes = [POINTER, POINTER, POINTER, ctypes.c_int64, ctypes.c_uint64, POINTER]
    library.source_positions_scan.restype = None
    library.source_positions_scan.argtypes = [POINTER, POINTER, POINTER, ctypes.c_int64, POINTER, POINTER]
    index_keys: list[Any] = [POINTER, POINTER, POINTER, POINTER]  # text, starts, ends, nulls
    spaces: list[Any] = [POINTER, ctypes.c_int32]
    library.key_index_new.restype = POINTER
    library.key_index_new.argtypes = [ctypes.c_uint64]
    library.key_index_free.restype = None
    library.key_index_free.argtypes = [POINTER]
    library.key_index_sizes.restype = None
    library.key_index_sizes.argtypes = [POINTER, POINTER]
    library.key_index_rows.restype = None
    library.key_index_rows.argtypes = [POINTER, *index_keys, *spaces, ctypes.c_int64, POINTER]
    library.key_index_apply.restype = ctypes.c_bool
    library.key_index_apply.argtypes = [POINTER, *index_keys, POINTER, *spaces, ctypes.c_int64, POINTER]
    library.key_index_remove_rows.restype = ctypes.c_bool
    library.key_index_remove_rows.argtypes = [POINTER, POINTER, ctypes.c_int64]
    library.json_members.restype = ctypes.c_int64
    numbers = [ctypes.c_int64] * 3
    library.json_members.argtypes = [POINTER, *numbers, POINTER, POINTER, POINTER, ctypes.c_int64, POINTER]
    library.json_float_members.restype = ctypes.c_int64
    library.json_float_members.argtypes = [POINTER, *numbers[1:], POINTER, POINTER, POINTER, ctypes.c_int64, POINTER]
    library.avro_integers.restype = None
    library.avro_integers.argtypes = [POINTER, ctypes.c_int64, ctypes.c_int64, POINTER, POINTER]
    return library


def declare_unlocked_functions(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of the functions that are called without the GIL, because a call may take many milliseconds.

    Raises AttributeError if a function is missing.
    """
    library.key_index_reserve.restype = ctypes.c_bool
    library.key_index_reserve.argtypes = [POINTER, ctypes.c_int64, ctypes.c_int64]
    return library
