#!/usr/bin/env python3
"""Makes the Python module _qoskit from qoskit/bindings.h by cffi; pkg-config says where header and library are.

usage: build_qoskit.py DIRECTORY   leaves the module in DIRECTORY
"""
import re
import subprocess
import sys
import cffi


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def declarations(include):
    """What the headers declare, after the preprocessor, without the files of the system."""
    # cffi reads no attributes and no assertions, and constants in the form of other compilers than clang.
    text = run("cc", "-E", "-U__clang__", "-D__attribute__(x)=", "-D_Static_assert(x, y)=", f"-I{include}/qoskit", f"{include}/qoskit/bindings.h")
    kept, ours = [], False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = marker[1].startswith(include)
        elif ours:
            kept.append(line)
    # Alignment is the compiler's: it says the true sizes.
    return re.sub(r"(static const \w+ \w+) = \d+u?;", r"\1;", "\n".join(kept))


include = run("pkg-config", "--variable=includedir", "qoskit")
library = run("pkg-config", "--variable=libdir", "libqoskit")
ffi = cffi.FFI()
ffi.cdef(declarations(include))
ffi.set_source("_qoskit", '#include "bindings.h"', include_dirs=[include + "/qoskit"], extra_objects=[library + "/libqoskit.a"])
ffi.compile(tmpdir=sys.argv[1])
