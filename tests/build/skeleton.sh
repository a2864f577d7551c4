#!/usr/bin/env bash
# proves: every header has the same skeleton: title, then the same sections in the same order, then configuration, types,
# API, implementation; and every root header says on its first line what it is.
set -u
. "$(dirname "$0")/../lib.sh"
bad=0
complain() { echo "$*"; bad=1; }
for h in *.h; do
    head -1 "$h" | grep -q "^/\* $h - .*SPDX-License-Identifier: MIT$" || complain "$h: first line: /* $h - what it is ... SPDX-License-Identifier: MIT"
    want="THE PROBLEM|SYNOPSIS|CONTRACT|WORKED EXAMPLE|ALGORITHM|WHERE WE DIFFER|TUNABLES|REFERENCES"
    [ "$h" = qos.h ] && want=${want/WHERE WE DIFFER|/} # the vocabulary follows no paper
    have=$(awk '/^ \*\// {exit} /^ \* [A-Z][A-Z]/ {sub(/^ \* /, ""); print}' "$h" |
        sed -nE "s/^($want).*/\1/p" | tr '\n' '|')
    [ "${have%|}" = "$want" ] || complain "$h: sections are ${have%|}; they should be $want"
    parts=$(sed -nE 's,^/\* -+ (configuration|constants and types|API|implementation)[^a-z].*,\1,p' "$h" | uniq | tr '\n' '|')
    case $parts in
    "configuration|constants and types|API|implementation|"* | "constants and types|API|implementation|"*) ;;
    *) complain "$h: parts are $parts; they should be configuration, constants and types, API, implementation" ;;
    esac
    long=$(awk 'length > 120 {n++} END {print n + 0}' "$h")
    [ "$long" -eq 0 ] || complain "$h: $long lines are longer than 120 columns"
done
[ $bad -eq 0 ] && echo "$(ls ./*.h | wc -l) headers share one skeleton"
exit $bad
