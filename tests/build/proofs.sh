#!/usr/bin/env bash
# proves: the statements of tests/proof/, with Frama-C: contracts hold for every argument (deductive: WP and z3), and no
# input makes a decoder's behaviour undefined (value analysis: Eva). Bugs planted into a copy of the header are found.
# usage: tests/build/proofs.sh [all]     all (make prove): also the sources that say `// slow`, and every length (any_message.h)
#
# A source of tests/proof/ says in its first lines
#     // wp: f g           every goal of these functions must be proved, unsigned overflow included
#     // open: h           not proved (the text explains why); not tried
#     // eva: FLAG...      value analysis from main on, with these flags: no alarm, and every check is valid
#     // without: header.h chapter      (optional) leaves out the bodies of a chapter that Frama-C cannot read (vectors)
#     // slow              only with `all`; `// slow plants`: the plants of this source
#     // plant: header.h|old|new|f     replaces old, which occurs once, by new: the proof of this source must fail;
#                                      of the deductive proofs only that of f is tried
set -u
. "$(dirname "$0")/../lib.sh"
out=build/proof
rm -rf "$out"
mkdir -p "$out"
command -v frama-c >/dev/null && command -v z3 >/dev/null || { echo "SKIP Frama-C and z3 are not installed"; exit 77; }
# The list of provers is kept here: nothing is written into the home directory.
export WHY3CONFIG=$PWD/$out/why3.conf
why3 config detect >"$out/why3.log" 2>&1
grep -q Z3 "$WHY3CONFIG" || { cat "$out/why3.log"; echo "why3 does not find z3"; exit 1; }

tells() { sed -n "1,20s,^// $2: *,,p" "$1"; }
frama() { # HEADERS-DIRECTORY SOURCE FLAG...: in that directory, as Frama-C looks for headers there first
    local dir=$1 source=$root/$2
    shift 2
    (cd "$dir" && frama-c -c11 -machdep gcc_x86_64 -cpp-extra-args="-I. -I$root/tests/proof $lengths" -warn-unsigned-overflow "$@" "$source")
}

deductive() { # SOURCE HEADERS-DIRECTORY LOG [FUNCTION]
    local functions=${4:-} f
    [ -n "$functions" ] || functions=$(tells "$1" wp | tr '\n' ' ' | xargs | tr ' ' ',')
    frama "$2" "$1" -wp -wp-rte -wp-prover z3 -wp-timeout "$patience_s" -wp-par 2 -wp-fct "$functions" >"$3" 2>&1 || return 1
    # A function without a goal no longer exists, or has lost its contract.
    for f in ${functions//,/ }; do
        grep -q "Goal typed_${f}_ensures.* : Valid" "$3" || { echo "$1: nothing is proved of $f" >>"$3"; return 1; }
    done
    # Lemmas are goals of the whole source.
    if [ -z "${4:-}" ] && grep -q ' lemma ' "$1"; then
        frama "$2" "$1" -wp -wp-prover z3 -wp-timeout "$patience_s" -wp-prop=@lemma >"$3.lemmas" 2>&1 || return 1
        all_proved "$3.lemmas" || return 1
    fi
    all_proved "$3"
}
all_proved() { # "[wp] Proved goals:  126 / 126"
    awk '/^\[wp\] Proved goals:/ {n++; if ($4 != $6 || $6 == 0) bad = 1} END {exit !(n > 0 && !bad)}' "$1"
}

values() { # SOURCE HEADERS-DIRECTORY LOG
    # shellcheck disable=SC2046
    frama "$2" "$1" -eva $(tells "$1" eva) -eva-msg-key=-initial-state,-final-states >"$3" 2>&1 || return 1
    ! grep -qE '^\[eva:alarm|rror:|got status (unknown|invalid)' "$3" &&
        grep -q '^  0 alarms generated' "$3"
}

prove() { # SOURCE HEADERS-DIRECTORY LOG [FUNCTION]: everything that the source says
    if [ -n "$(tells "$1" wp)" ]; then deductive "$1" "$2" "$3.wp" "${4:-}" || return 1; fi
    if [ -n "$(tells "$1" eva)" ]; then values "$1" "$2" "$3.eva" || return 1; fi
}

# A copy of the headers, without the chapters that the source leaves out.
copy() { # SOURCE DIRECTORY
    local header chapter
    mkdir -p "$2"
    cp ./*.h "$2/"
    while read -r header chapter; do
        awk -v chapter=": $chapter" '/==== chapter: / {on = index($0, chapter)} on && /^#ifndef QOS_DECLARE_ONLY/ {out = 1}
            !out {print} on && /^#endif.*QOS_DECLARE_ONLY/ {out = 0}' "$header" >"$2/$header"
        ! cmp -s "$header" "$2/$header" || { echo "$1: no chapter $chapter in $header"; return 1; }
    done < <(tells "$1" without)
}

one() { # SOURCE
    local log=$out/$(basename "$1" .c)
    copy "$1" "$log" || return 1
    if prove "$1" "$log" "$log"; then
        echo "proved    $1: $(awk '/Proved goals/ {print $6 " goals"}' "$log.wp" 2>/dev/null)$(
            awk '/functions analyzed/ {print $1 " functions, no alarm"}' "$log.eva" 2>/dev/null)"
    else
        echo "FAILED    $1:"
        cat "$log".wp "$log".wp.lemmas "$log".eva 2>/dev/null | grep -E 'Failed|Timeout|Unknown|alarm|rror:|status unk|status inv|nothing is' |
            grep -v '^  Unknown error' | head -12 | sed 's/^/    /'
        return 1
    fi
}

plant() { # SOURCE NUMBER
    local header old new function dir=$out/plant_$(basename "$1" .c)_$2
    IFS='|' read -r header old new function < <(tells "$1" plant | sed -n "$2p")
    copy "$1" "$dir" || return 1
    OLD=$old NEW=$new perl -0pi -e 's/\Q$ENV{OLD}\E/$ENV{NEW}/ and $n++; END { exit($n == 1 ? 0 : 1) }' "$dir/$header" &&
        [ "$(grep -cF -- "$old" "$header")" -eq 1 ] || { echo "GONE      $1: the text to change is not in $header exactly once: $old"; return 1; }
    if patience_s=20 prove "$1" "$dir" "$dir/log" "$function"; then echo "UNNOTICED $1: $header: $new"; return 1; fi
    grep -qhE 'Failed|Timeout|larm\]|status (unknown|invalid)' "$dir"/log.* || { echo "FAILED    $1 fails for another reason: $dir"; return 1; }
    echo "noticed   $1: $header: $new"
}
export -f one plant copy prove deductive values all_proved tells frama
root=$PWD
# A goal takes well below a second on an idle machine; a busy machine must not decide. A bug's goal is never proved.
patience_s=240
lengths=
[ "${1:-}" != all ] || lengths=-DEVERY_LENGTH
# Both plugins allocate much that they soon drop: a larger nursery (32 MB) saves wp a fifth of its time, and to collect
# less often saves a tenth.
export OCAMLRUNPARAM=s=4M,o=400
export out root patience_s lengths

for source in tests/proof/*.c; do
    if sed -n '1,20p' "$source" | grep -q '^// slow$' && [ "${1:-}" != all ]; then continue; fi
    echo "one $source"
    if grep -q '^// slow plants$' "$source" && [ "${1:-}" != all ]; then continue; fi
    seq "$(tells "$source" plant | grep -c .)" | sed "s,^,plant $source ,"
done >"$out/todo"
JOBS=$(( (JOBS + 1) / 2 )) side_by_side <"$out/todo" || { echo "not proved: see above and $out"; exit 1; }
grep -h '^// open:' tests/proof/*.c | sed 's|^// open:|not proved, but tested:|'
echo "$(grep -c '^one' "$out/todo") sources proved, $(grep -c '^plant' "$out/todo") planted bugs found"
finish
