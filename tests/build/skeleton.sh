#!/usr/bin/env bash
# proves: every header has the same shape: a first page of at most 100 lines and 90 columns (title, problem, model, calls,
# contract), then configuration and public types, the API at a glance, the API, and only then chapters with private
# names and bodies; and that this check finds a header of another shape; each chapter of twochoice.h compiles alone
set -u
. "$(dirname "$0")/../lib.sh"
out=build/skeleton
rm -rf "$out"
mkdir -p "$out"

# Prints one line for each fault of a header's shape.
shape_of() { # FILE NAME
    awk -v name="$2" '
        function complain(what) { print name ": " what }
        function chapter_ends() { if (chapters && NR - begins > 1000 && !map) complain("line " begins ": a chapter of more than 1,000 lines begins with a map") }
        NR == 1 && ($0 !~ "^/\\* " name " - " || $0 !~ /SPDX-License-Identifier: MIT$/) {
            complain("the first line should be /* " name " - what it is   SPDX-License-Identifier: MIT")
        }
        !page && length > 90 { complain("line " NR " of the first page is longer than 90 columns") }
        page && length > 120 { complain("line " NR " is longer than 120 columns") }
        !page && /^ \* THE [A-Z]+/ { sections = sections $3 " " }
        !page && /^ \*\/$/ { page = NR; if (NR > 100) complain("the first page has " NR " lines; at most 100") }
        /^\/\* ---- / { title = $0; sub(/^\/\* -+ /, "", title); sub(/ -+.*$/, "", title); parts = parts title "|" }
        # Before the first chapter there is nothing private and no body.
        page && !chapters && !/define QOS_PRIV_NOINLINE/ && /_priv_|_PRIV_/ { complain("line " NR " has a private name before the first chapter") }
        page && !chapters && /^{/ { complain("line " NR " has a function body before the first chapter") }
        /^\/\* ==== chapter: [a-z]/ { chapter_ends(); chapters++; begins = NR; map = 0 }
        /^ \* +Map \(without / { map = 1 }
        /^\/\* ==== / && !/^\/\* ==== chapter: [a-z]/ { complain("line " NR ": a chapter begins with /* ==== chapter: name") }
        /^#ifndef QOS_DECLARE_ONLY/ { bodies = 1 }
        /^#endif \/\* QOS_DECLARE_ONLY \*\// { bodies = 0 }
        chapters && /^QOS_(API|PRIV) / && !bodies { complain("line " NR " has a function outside #ifndef QOS_DECLARE_ONLY") }
        END {
            chapter_ends()
            if (sections != "PROBLEM MODEL CALLS CONTRACT ") complain("sections of the first page: " sections "; should be THE PROBLEM, MODEL, CALLS, CONTRACT")
            if (parts != "configuration and public types|the API at a glance|the API|") complain("parts: " parts "; should be configuration and public types|the API at a glance|the API|")
            if (!chapters) complain("no chapter")
        }' "$1"
}

bad=0
for h in *.h; do
    shape_of "$h" "$h" >"$out/$h.txt"
    if [ -s "$out/$h.txt" ]; then cat "$out/$h.txt"; bad=1; fi
done

# Each mistake below, made in qos.h, must be found.
planted() { # WHAT SED-SCRIPT
    sed -E "$2" qos.h >"$out/planted.h"
    cmp -s qos.h "$out/planted.h" && { echo "planted mistake changes nothing: $1"; bad=1; }
    [ -n "$(shape_of "$out/planted.h" qos.h)" ] || { echo "not found: $1"; bad=1; }
}
planted "another title" '1s/qos/QoS/'
planted "a wide first page" '5s/$/ and then some more words, so many that they do not fit on the page any longer/'
planted "a long first page" '4s/$/\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n *\n */'
planted "no drawing" '/^ \* THE MODEL/d'
planted "no glance" 's/---- the API at a glance ----/---- overview ----/'
planted "a private name in the API" 's/^(QOS_API const char \*qos_)(strerror\(int status\);)/\1priv_\2/'
planted "no chapters" 's/==== chapter: /---- /'
planted "a body for declarations only" 's/^#ifndef QOS_DECLARE_ONLY$//'
sed '/ Map (without /d' tags.h >"$out/planted.h"
[ -n "$(shape_of "$out/planted.h" tags.h)" ] || { echo "not found: a long chapter without a map"; bad=1; }
# Compiles one chapter and the part before all chapters: it must not need a function of another chapter.
alone() { # CHAPTER HEADER
    awk -v wanted="$1" '/^\/\* ==== chapter: / {here = $4 == wanted; cut = 1} /^#ifdef __cplusplus/ && cut {cut = 0} !cut || here' "$2" >"$out/alone.h"
    printf '#define QOS_API\n#include "alone.h"\n' >"$out/alone.c"
    gcc -std=c11 -w -Werror=implicit-function-declaration -I. -c -o "$out/alone.o" "$out/alone.c" 2>"$out/alone.log" &&
        ! nm -u "$out/alone.o" | grep -qvE ' (memcpy|memmove|memset|memcmp)$'
}
for chapter in table placement messages; do
    alone $chapter twochoice.h || { echo "twochoice.h: chapter $chapter needs another one"; cat "$out/alone.log"; bad=1; }
done
sed 's/qos_rng_seed(&p.rng/twochoice_priv_tag(&p.rng/' twochoice.h >"$out/entangled.h"
! alone placement "$out/entangled.h" || { echo "not found: a chapter that needs another one"; bad=1; }
[ $bad -eq 0 ] && echo "$(ls ./*.h | wc -l) headers share one shape"
finish $bad
