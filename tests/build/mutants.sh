#!/usr/bin/env bash
# proves: mutants of each header that its tests caught before are still caught (tests/mutate/caught.list; random ones:
# make mutate). A mutant is found by function and text; one whose text is gone must be replaced by another.
set -u
. "$(dirname "$0")/../lib.sh"
export PYTHONDONTWRITEBYTECODE=1
for h in $(sed -n "s,^\([a-z]*\)\.h .*,\1,p" tests/mutate/caught.list | sort -u); do
    echo "tests/mutate/mutate.py replay tests/mutate/caught.list $h"
done | side_by_side || finish 1
finish
