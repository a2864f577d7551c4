#!/usr/bin/env bash
# Faults that somebody who had not read the worlds planted into the headers: does a world find each, by plain random seeds within
# SECONDS_EACH=60 of processor time? tests/world/faults/HEADER.txt, second/ to ninth/ list them (tests/build/plant.pl
# documents the format). Each had 20 (of qos.h 10: all are found); what became a plant of tests/plants/, which the world's fixed seeds must catch, is
# not here again, and counts as found; nor is what a unit test of today catches at once; so does, in lists that say "Of N faults", what these seeds found. A list is blind until a
# world is changed for it: the first ones are not any more, as their texts tell. Each takes the first broken oracle as found, if the
# same world holds without the fault; a hang, too.
# usage: tests/world/faults/run.sh [[second/|third/|fourth/|fifth/|sixth/|seventh/|eighth/|ninth/]HEADER[:FAULT]...] (SEED=1). Status 1 if less than 80 % of a header's are found.
set -u
cd "$(dirname "$0")/../../.." || exit 1
[ $# -gt 0 ] || { mapfile -t all < <(cd tests/world/faults && ls -- *.txt */*.txt | sed 's/\.txt$//'); set -- "${all[@]}"; }
out=build/faults
bad=0
TIMEFORMAT=%U # of processor time

# build_world FOLDER WORLD: with the headers of the folder
build_world() {
    local hook=
    [ "$2" != tokenpool ] || hook=-DQOS_ATOMIC_HOOK
    # shellcheck disable=SC2086
    gcc -std=gnu11 -O2 -w -ffp-contract=off $hook -I"$1" -I. -Itests -o "$1/$2" "tests/world/$2.c" examples/world/*.c -lm
}

# Is this world broken without a fault, too?
breaks_anyway() { # FOLDER WORLD SEED
    mkdir -p "$1/plain" && cp ./*.h "$1/plain" && build_world "$1/plain" "$2" && ! "$1/plain/$2" --seed "$3" --no-shrink >/dev/null 2>&1
}

for what; do
    header=$(basename "${what%%:*}") faults=0 found=0 of=20
    list=tests/world/faults/${what%%:*}.txt worlds=$header
    [ "$header" != tags ] || worlds='tags tags_servers'
    while IFS=$'\t' read -r _ name _; do
        [[ $what != *:* ]] || [ "${what#*:}" = "$name" ] || continue
        faults=$((faults + 1)) verdict='not found'
        rm -rf "$out/$name" && mkdir -p "$out/$name" && cp ./*.h "$out/$name" || exit 1
        if ! tests/build/plant.pl apply "$list" "$name" "$out/$name" >"$out/$name/log" 2>&1; then
            verdict="cannot be planted: $(tail -1 "$out/$name/log")" bad=1
        else
            for w in $worlds; do
                build_world "$out/$name" "$w" || { verdict='does not compile' bad=1; break; }
                from=${SEED:-1} left=${SECONDS_EACH:-60}
                while :; do
                    used=$({ time (ulimit -St $((left * 2)) # of processor time, too: the machine may be shared
                        stdbuf -oL "$out/$name/$w" --for "$left" --from "$from" --no-shrink --first >"$out/$name/log" 2>&1
                    ); } 2>&1; exit $?)
                    status=$? used=${used##*$'\n'}
                    seed=$(sed -n 's/.*replay: .*SEED=//p;T;q' "$out/$name/log")
                    [ "$status" = 1 ] && [ -n "$seed" ] && breaks_anyway "$out/$name" "$w" "$seed" || break
                    echo "world/$w breaks without a fault: SEED=$seed"
                    bad=1 from=$((seed + 1)) left=$((left - ${used%.*}))
                    [ $left -gt 0 ] || { status=0; break; }
                done
                case $status in
                0) continue ;;
                152) verdict='found: a world does not end' ;;
                *) verdict="found: $(grep -m1 '^BROKEN' "$out/$name/log" || tail -1 "$out/$name/log")" ;;
                esac
                found=$((found + 1))
                break
            done
        fi
        printf '%-10s %-36s %.110s\n' "$header" "$name" "$verdict"
        rm -rf "$out/$name"/{plain,qos,qos_no_int128,htb,tags,tags_servers,tokenpool,pshift,twochoice}
    done < <(tests/build/plant.pl list "$list")
    left=$(sed -n 's/^Of \([0-9]*\) faults .*/\1/p' "$list") of=${left:-$of}
    [[ $what == *:* ]] || found=$((found + of - faults)) faults=$of
    echo "${what%%:*}: $found of $faults found"
    [ $((found * 100)) -ge $((faults * 80)) ] || bad=1
done
exit $bad
