# shellcheck shell=bash
# For run.sh and mends.sh: build_v02 FOLDER HEADER builds the world of this header against 0.2's headers in the folder.
build_v02() {
    local own=
    [ "$2" != tokenpool ] || own=-DQOS_ATOMIC_HOOK
    gcc -std=gnu11 -O2 -ffp-contract=off -DWORLD_V02=1 -DWORLD_TAGS_V02=1 $own -I"$1" -I. -Itests -o "$1/$2" "tests/world/$2.c" \
        examples/world/*.c -lm
}
