#!/usr/bin/env bash
# The main job on this machine's disk, in about a minute.   usage: examples/uring_files/demo.sh OUT
# Needs build/examples/uring_files. Writes a test file of at most 2 GiB into OUT and removes it at the end.
set -u
out=${1:-build/demo}
tool=build/examples/uring_files
file=$out/demo-file
[ -x "$tool" ] || { echo "$tool is missing: run make demo" >&2; exit 1; }
mkdir -p "$out" || exit 1
trap 'rm -f "$file"' EXIT
rm -f "$file"

free=$(df -k --output=avail "$out" | tail -1)
size=2G
[ "$free" -gt 4194304 ] || size=256M
[ "$free" -gt 524288 ] || { echo "$out: at least 512 MiB of free space is needed" >&2; exit 1; }

cat <<END
Four tenants share one file on this disk.
  db      small random reads (4 KiB), 32 at a time: a database. Should get a fifth of what the disk can do for it.
  scan    large random reads (128 KiB), 64 at a time: an analytics job. Should get a fifth, too. Comes after 2 s.
  backup  large random reads, 16 at a time. Should never get more than a tenth. Comes after 4 s.
  web     small random reads, one at a time. 99 of 100 should be done within 5 ms of their turn.

First the disk is measured. Then all four run three times: as they come ("without"), through htb.h ("with"), and as they
come with only as many requests at the disk as htb.h had there ("same depth").
A promise of a rate is judged over eligible seconds: those in which the disk gave what was measured.

END
"$tool" --file "$file" --size "$size" --keep --compare --explain --judge --flight --dispatch-depth 112 --runtime 7s \
    --slice 1s --json "$out/demo.json" --plot "$out" \
    --tenant db:rw=randread,bs=4k,depth=32,reserve=20% \
    --tenant scan:rw=randread,bs=128k,depth=64,reserve=20%,start=2s \
    --tenant backup:rw=randread,bs=128k,depth=16,limit=10%,start=4s \
    --tenant web:rw=randread,bs=4k,depth=1,reserve=1%,latency=5ms
status=$?
case $status in
0) printf '\nEvery promise was kept: look at %s/compare.svg.\n' "$out" ;;
3) # not the scheduler's fault; the reason is printed above
    printf '\nCannot tell on this machine whether every promise was kept: the disk gave less than in its profile.\n'
    status=0 ;;
130) ;;
*) printf '\nuring_files ended with status %d.\n' "$status" ;;
esac
exit "$status"
