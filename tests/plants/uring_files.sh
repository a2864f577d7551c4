#!/usr/bin/env bash
# proves: every bug of tests/plants/uring_files/*.txt, planted into a copy of uring_files, is caught by real/uring_tenants
# usage: tests/plants/uring_files.sh [BUG]
set -u
. "$(dirname "$0")/../lib.sh"
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
failed=0
make -s build/examples/uring_files || exit 1 # its common parts
build_with() { clang -std=gnu11 -O1 -w -D_GNU_SOURCE -I. -Iexamples/common -o "$1/tool" "$1"/*.c build/examples/objects/common/*.o -luring -lm; }
test_with() { TOOL=$1/tool timeout --kill-after=5 400 "tests/$2.sh"; }
find_planted uring_files 1 "${1:-}" # one at a time: each fills the disk
finish $failed
