#!/usr/bin/env bash
# proves: mutants of each header that its tests caught before (tests/mutate/caught.list; random ones: make mutate) can still be
# made: one whose text is gone must be replaced by another. With `all` (make trust) that they are still caught.
# usage: tests/build/mutants.sh [all]
set -u
. "$(dirname "$0")/../lib.sh"
export PYTHONDONTWRITEBYTECODE=1
case ${1:-} in all) what=replay ;; *) what=texts ;; esac
for h in $(sed -n "s,^\([a-z]*\)\.h .*,\1,p" tests/mutate/caught.list | sort -u); do
    echo "tests/mutate/mutate.py $what tests/mutate/caught.list $h"
done | side_by_side || finish 1
finish
