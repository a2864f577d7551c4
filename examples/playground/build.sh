#!/usr/bin/env bash
# Builds the page: the headers, the world's devices and clients as WebAssembly, in one HTML file that needs nothing else.
# usage: examples/playground/build.sh OUT.html
set -eu
out=$(realpath -m "$1")
cd "$(dirname "$0")/../.."
here=examples/playground
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
mkdir -p "$(dirname "$out")"
# The page's numbers are those of a native run: no fused products. Divisions of 128 bits by qos.h, as there is no libgcc.
clang --target=wasm32 -std=gnu11 -O2 -ffreestanding -fno-builtin -ffp-contract=off -nostdlib -DQOS_NO_INT128 -Wall -Wextra -Werror -Wno-unused-function \
    -I$here/wasm -I. -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=262144 -o "$d/scene.wasm" \
    $here/scene*.c $here/wasm/wasm.c examples/world/devices.c examples/world/clients.c
{
    echo "<!-- built by make playground of qoskit $(sed -n 's/^#define QOS_VERSION_STRING "\(.*\)"/\1/p' qos.h); source: $here -->"
    base64 -w0 "$d/scene.wasm" | awk 'NR == FNR {wasm = $0; next} {i = index($0, "@WASM@"); if (i) $0 = substr($0, 1, i - 1) wasm substr($0, i + 6); print}' - $here/page.html
} >"$d/page.html"
mv "$d/page.html" "$out"
echo "$out: $(wc -c <"$out") bytes, of which wasm $(wc -c <"$d/scene.wasm")"
