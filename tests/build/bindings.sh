#!/usr/bin/env bash
# proves: make lib gives a static and a shared library that export every function of the headers, with the version of the
# interface, and nothing else; the README's program prints the same through both, through Rust (bindgen) and through
# Python (cffi), with constants and types that neither generator was told by hand
set -u
. "$(dirname "$0")/../lib.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES # this make has no parent make
failed=0
out=$PWD/build/bindings
usr=$out/usr
rm -rf "$out"
mkdir -p "$out"
make -s install-dev PREFIX="$usr" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
export PKG_CONFIG_PATH=$usr/lib/pkgconfig
version=$(pkg-config --modversion libqoskit)

# ---- what is exported: the functions that the headers declare
printf '#include "%s"\n' ./[a-z]*.h | gcc -E -P -DQOS_DECLARE_ONLY -I. -x c - | grep -oE '\b(qos|htb|pshift|tags|tokenpool|twochoice)_[a-z0-9_]+\(' |
    tr -d '(' | grep -v _priv_ | sort -u >"$out/declared"
# Pointers to functions are fields, not functions: only what a program can take the address of.
{
    printf '#include "%s"\n' ./[a-z]*.h
    while read -r name; do echo "void *take_$name(void) {return (void *)$name;}"; done <"$out/declared"
} >"$out/take.c"
gcc -w -DQOS_DECLARE_ONLY -I. -fsyntax-only "$out/take.c" 2>"$out/take.log"
for name in $(grep -oE "error: ‘?'?[a-z0-9_]+" "$out/take.log" | grep -oE '[a-z0-9_]+$' | sort -u); do sed -i "/^$name\$/d" "$out/declared"; done
nm -D --defined-only --with-symbol-versions "$usr/lib/libqoskit.so" | awk '$2 == "T" {print $3}' | sort >"$out/exported"
sed "s/\$/@@QOSKIT_${version%.*}/" "$out/declared" >"$out/wanted"
expect "every function is exported with its version, $(wc -l <"$out/wanted") of them" diff "$out/wanted" "$out/exported"
expect "the headers' files declare more than 150" [ "$(wc -l <"$out/wanted")" -gt 150 ]
expect "the shared library has its soname" grep -q "libqoskit.so.${version%.*}" <(readelf -d "$usr/lib/libqoskit.so" | grep SONAME)
nm "$usr/lib/libqoskit.a" | awk '$2 == "T" {print $3}' | sort >"$out/static"
expect "the static library has the same" diff "$out/declared" "$out/static"

# ---- the README's program
awk '/^```c$/ {on = 1; next} /^```/ {on = 0} on' README.md >"$out/readme.c"
awk '/^<!-- prints -->$/ {wanted = 1; next} wanted && /^```text$/ {on = 1; next} /^```/ {on = wanted = 0} on' README.md >"$out/prints"
says_so() { # WHAT COMMAND...
    local what=$1
    shift
    "$@" >"$out/said" 2>"$out/err" || { bad "$what: status $?"; cat "$out/err"; return; }
    expect "$what: the README's program prints the same" diff "$out/prints" "$out/said"
}
expect "the README has a program and what it prints" [ -s "$out/readme.c" -a -s "$out/prints" ]
eval "flags=($(pkg-config --cflags --libs libqoskit))"
gcc -std=c11 -Wall -Werror -o "$out/shared" "$out/readme.c" "${flags[@]}" || bad "the shared library does not link"
says_so "the shared library" env LD_LIBRARY_PATH="$usr/lib" "$out/shared"
expect "it needs the library" grep -q libqoskit <(readelf -d "$out/shared")
sed 's,"htb.h",<qoskit/htb.h>,' "$out/readme.c" >"$out/angle.c"
eval "flags=($(pkg-config --cflags libqoskit))"
gcc -std=c11 -Wall -Werror -o "$out/static_program" "$out/angle.c" "${flags[@]}" "$usr/lib/libqoskit.a" || bad "the static library does not link"
says_so "the static library, with <qoskit/htb.h>" "$out/static_program"

# ---- Rust and Python
cp -r examples/bindings/rust "$out/rust" && rm -f "$out/rust/Cargo.lock"
says_so "Rust" cargo run -q --offline --manifest-path "$out/rust/Cargo.toml" --target-dir "$out/target" --example readme
mkdir -p "$out/python"
CFLAGS='-O0 -g0' /usr/bin/python3 examples/bindings/python/build_qoskit.py "$out/python" >"$out/cffi.log" 2>&1 || { bad "cffi"; grep -m5 error "$out/cffi.log" || tail -5 "$out/cffi.log"; }
says_so "Python" env PYTHONPATH="$out/python" PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 examples/bindings/python/readme.py

# ---- constants and sizes, beside a C program's
constants="QOS_NEVER QOS_UNLIMITED QOS_NOTHING QOS_NS_PER_S QOS_NONE QOS_RATE_MAX TOKENPOOL_BACKLOGGED HTB_RESOURCES_MAX"
structs="htb htb_config tags_config tokenpool_client twochoice_table pshift_solver qos_bucket"
{
    printf '#include "%s"\n' ./[a-z]*.h
    printf '#include <stdio.h>\nint main(void)\n{\n'
    for c in $constants; do echo "    printf(\"$c %llu\\n\", (unsigned long long)$c);"; done
    for s in $structs; do echo "    printf(\"$s %zu\\n\", sizeof(struct $s));"; done
    printf '    return 0;\n}\n'
} >"$out/facts.c"
gcc -std=c11 -w -I. -o "$out/facts" "$out/facts.c" && "$out/facts" >"$out/facts.txt"
{
    echo 'use qoskit::*;'
    echo 'fn main() {'
    for c in $constants; do echo "    println!(\"$c {}\", $c as u64);"; done
    for s in $structs; do echo "    println!(\"$s {}\", std::mem::size_of::<$s>());"; done
    echo '}'
} >"$out/rust/examples/facts.rs"
cargo run -q --offline --manifest-path "$out/rust/Cargo.toml" --target-dir "$out/target" --example facts >"$out/facts.rust" 2>"$out/err" || cat "$out/err"
expect "Rust: constants and sizes are C's" diff "$out/facts.txt" "$out/facts.rust"
{
    echo 'from _qoskit import ffi, lib'
    for c in $constants; do echo "print('$c', lib.$c)"; done
    for s in $structs; do echo "print('$s', ffi.sizeof('struct $s'))"; done
} >"$out/facts.py"
PYTHONPATH=$out/python /usr/bin/python3 "$out/facts.py" >"$out/facts.python" 2>"$out/err" || cat "$out/err"
expect "Python: constants and sizes are C's" diff "$out/facts.txt" "$out/facts.python"
finish $failed
