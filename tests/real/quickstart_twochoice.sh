#!/usr/bin/env bash
# proves: examples/quickstart/twochoice.c sends writes past a busy server, reads every acknowledged byte back after kill
# -9 during writes, drops replaced pieces, refuses bad input with a message, and a damaged log with the server's name
# alone: no
set -u
. "$(dirname "$0")/../lib.sh"
program=$PWD/build/examples/quickstart_twochoice
[ -x "$program" ] || make -s build/examples/quickstart_twochoice >/dev/null || { echo "quickstart_twochoice was not built"; exit 1; }
d=$(mktemp -d)
trap 'rm -rf "${d%/long*}"' EXIT
d=$d/$(printf 'long%.0s' {1..30})
mkdir "$d" || exit 1
failed=0
trap '' PIPE # the program that we kill reads our commands

"$program" >"$d/usage" 2>&1
expect "without a directory: status 2 and a sentence" grep -q 'usage: quickstart_twochoice DIR' "$d/usage"
"$program" /dev/null/none </dev/null >"$d/none" 2>&1
expect "a directory that cannot be made is named" grep -q '/dev/null/none' "$d/none"
"$program" "/$(printf '%05000d' 0)" </dev/null >"$d/none" 2>&1
expect "so is one whose name is too long" grep -q 'DIR is too long' "$d/none"

# Server 1 is busy: no write goes there, not even of the objects whose home it is.
mkdir "$d/busy"
for i in $(seq 60); do echo "write $i $((i * 10)) text-$i"; done >"$d/in"
for i in $(seq 60); do echo "read $i $((i * 10)) $((5 + ${#i}))"; done >>"$d/in"
"$program" "$d/busy" 1 <"$d/in" >"$d/out" 2>&1
expect "60 writes are acknowledged" [ "$(grep -c '^ok [02]$' "$d/out")" = 60 ]
expect "none is sent to the busy server" [ "$(grep -c '^ok 1$' "$d/out")" = 0 ]
expect "all of them read back" [ "$(tail -60 "$d/out")" = "$(for i in $(seq 60); do echo "text-$i"; done)" ]
for i in 0 1 2; do grep -c "^ok $i\$" "$d/out"; (cd "$d/busy/$i" && ls | grep -cE '^[0-9]+\.[0-9]'); done | paste - - >"$d/said"
expect "each answer names the server that has the bytes" awk '$1 != $2 {exit 1}' "$d/said"
expect "20 of them are pieces" [ "$(cd "$d/busy" && ls 0 2 | grep -cE '^[0-9]+\.[1-9]')" -ge 20 ]

least=12 # descriptors with which it starts: a read finds none then
until (ulimit -n $least; exec "$program" "$d/busy" </dev/null 2>/dev/null) || [ $((++least)) -gt 40 ]; do :; done
for i in 2 3 5 6 8 9 11 12 14 15; do grep "^read $i " "$d/in" >"$d/one"; (ulimit -n $least; exec "$program" "$d/busy" <"$d/one" 2>&1) | tr '\0' 0; done >"$d/out"
expect "without a free descriptor nothing is read, also no zeros" [ "$(grep -c ': Too many open files$' "$d/out")" = 10 ]
rm "$d/one"
printf '%s\n' bad 'write 1 2' 'write x 2 abc' 'read 1 2 0' 'read 1 2 4097' 'read 1 99999999999999999999 3' 'erase 1 2 3' '' |
    "$program" "$d/busy" >"$d/out" 2>&1
expect "eight bad lines: an error for each, and it goes on" [ "$(grep -c '^error: ' "$d/out")" = 8 ]
expect "and it says what to write" [ "$(grep -c '^error: say write OBJECT' "$d/out")" -ge 4 ]

# A second process would replace the log that the first one writes.
mkdir "$d/one"
coproc one { exec "$program" "$d/one" 2>"$d/err"; }
pid=$one_PID
exec 8<&"${one[0]}" 9>&"${one[1]}"
echo 'write 1 0 first' >&9
IFS= read -r answer <&8
echo 'read 1 0 5' | "$program" "$d/one" >"$d/out" 2>&1
expect "while a process has the directory a second one is refused" [ "$?:$(grep -c "one/0: " "$d/out")" = 2:1 ]
echo 'write 1 0 SECOND' >&9
IFS= read -r answer <&8
expect "the first goes on: $answer" [ "${answer%% *}" = ok ]
exec 8<&- 9>&-
kill -9 "$pid"
wait "$pid" 2>/dev/null
expect "what it acknowledged is read" [ "$(echo 'read 1 0 6' | "$program" "$d/one")" = SECOND ]
mkdir -p "$d"/two/{0,1,2}/1.0 # nothing can be written there
echo 'write 1 0 third' | "$program" "$d/two" >&- 2>&-
expect "what it says without stdout and stderr is not written into a log" "$program" "$d/two" </dev/null

# Killed during writes, three times. Objects 0 to 2 have 8 places of 8 bytes each, written repeatedly. Afterwards each
# place holds the last acknowledged write, or the one that was under way.
mkdir "$d/store"
declare -A last next
number=0
for round in 1 2 3; do
    # Uses two descriptors of its own: bash closes those of a coprocess when it ends.
    coproc server { exec "$program" "$d/store" $((round - 1)) 2>"$d/err"; }
    pid=$server_PID
    exec 8<&"${server[0]}" 9>&"${server[1]}"
    last_one=$((number + 20 + RANDOM % 20))
    next=()
    while :; do
        place=$((RANDOM % 3)):$((RANDOM % 8 * 8)) number=$((number + 1))
        text=$(printf '%08d' "$number")
        next[$place]=$text
        [ "$number" -ne "$last_one" ] || { sleep "0.00$((RANDOM % 10))"; kill -9 "$pid"; } & # some time during this write
        echo "write ${place%:*} ${place#*:} $text" >&9 || break
        IFS= read -r answer <&8 || break
        case $answer in ok*) last[$place]=$text; unset "next[$place]" ;; *) echo "$answer"; failed=1 ;; esac
    done 2>/dev/null
    exec 8<&- 9>&-
    wait
    places=("${!last[@]}")
    for place in "${places[@]}"; do echo "read ${place%:*} ${place#*:} 8"; done | "$program" "$d/store" >"$d/out" 2>&1
    i=0 wrong=0
    while IFS= read -r got; do
        place=${places[i]} i=$((i + 1))
        if [ "$got" != "${last[$place]}" ]; then
            if [ "$got" = "${next[$place]:-}" ]; then last[$place]=$got
            else echo "object and offset $place: $got instead of ${last[$place]}"; wrong=$((wrong + 1)); fi
        fi
    done <"$d/out"
    expect "kill -9 number $round, after $number writes: ${#last[@]} places as acknowledged" [ "$wrong:$i" = "0:${#last[@]}" ]
done
expect "enough was written to be killed" [ "$number" -ge 60 ]
pieces=$(cd "$d/store" && ls 0 1 2 | grep -cE '^[0-9]+\.[1-9]')
expect "replaced pieces are dropped: $pieces of $number are left" [ "$pieces" -le $((${#last[@]} + 3 * 3)) ]

printf 'X' | dd of="$d/store/0/log" bs=1 seek=100 conv=notrunc status=none
"$program" "$d/store" </dev/null >"$d/out" 2>&1
status=$?
cat "$d/out"
expect "a damaged log: status 2, and which server" grep -q 'the log of server 0: ' "$d/out"
expect "status 2" [ "$status" = 2 ]
finish $failed
