#!/usr/bin/env bash
# proves: every ```sh block of the documents either works exactly as printed, run from the repository's root (<!-- run -->),
# or says why no test runs it (<!-- not run: reason -->). No picture has parts that nobody sees.
set -u
. "$(dirname "$0")/../lib.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES # the makes of the blocks have no parent make
out=build/docs
rm -rf "$out"
mkdir -p "$out"
failed=0

# Blocks marked `run` go to files of their own; a block without a mark, or with indented commands instead, is an error.
for m in README.md examples/README.md docs/*.md; do
    awk -v out="$out/$(echo "${m%.md}" | tr / _)" -v doc="$m" '
        /^```sh$/ {
            block = 1
            if (mark == "run") file = out "_" ++n ".sh"
            else if (mark == "") {print doc ":" NR ": no <!-- run --> or <!-- not run: reason --> before this block"; wrong = 1}
            mark = ""; next
        }
        /^```/ {if (block) block = 0; else other = !other; file = ""; mark = ""; next}
        block || other {if (file) print >file; next}
        /^<!-- run -->$/ {mark = "run"; next}
        /^<!-- not run: .+ -->$/ {mark = "not run"; next}
        {mark = ""}
        END {exit wrong}' "$m" || failed=1
done
blocks=$(find "$out" -name '*.sh' | sort)
[ -n "$blocks" ] || bad "no block of any document is run: this test reads nothing"
for b in $blocks; do
    start=$(date +%s)
    if timeout 600 bash -euo pipefail "$b" >"$b.log" 2>&1 </dev/null; then ok "$b ($(($(date +%s) - start)) s)"
    else bad "$b: status $?"; cat "$b"; tail -20 "$b.log"; fi
done
cp docs/*.svg docs/*/*.svg examples/*/*.svg "$out"
mkdir -p "$out/tidy" && cp "$out"/*.svg "$out/tidy" && bench/figures/tidy.pl "$out"/tidy/*.svg || bad "tidy.pl failed"
for p in "$out"/*.svg; do
    cmp -s "$p" "$out/tidy/${p##*/}" || bad "${p##*/} has parts that nobody sees: bench/figures/tidy.pl removes them"
done
finish $failed
