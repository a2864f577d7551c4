#!/usr/bin/env bash
# proves: every bug of tests/plants/nbdkit/*.txt, planted into a copy of the nbdkit filter, is caught by the section of real/nbdkit that it
# names; without a bug these sections pass (real/nbdkit itself shows that)
# usage: tests/plants/nbdkit.sh [BUG]
set -u
. "$(dirname "$0")/../lib.sh"
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
failed=0
build_with() { clang -std=gnu11 -O0 -w -fPIC -shared -pthread -I. -o "$1/filter.so" "$1"/*.c; }
test_with() { FILTER=$1/filter.so timeout --kill-after=5 400 "tests/$2.sh" "$3"; }
find_planted nbdkit 100 "${1:-}" # what a bug breaks does not depend on how fast the filter is
finish $failed
