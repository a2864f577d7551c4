#!/usr/bin/env bash
# proves: make dist gives the same archive, byte for byte, from two checkouts made at different times and places under
# different users' settings, and the archive holds what the repository holds.
set -u
. "$(dirname "$0")/../lib.sh"
git rev-parse --git-dir >/dev/null 2>&1 || { echo "SKIP not a git repository: an unpacked archive has no history"; exit 77; }
out=build/dist
rm -rf "$out"
mkdir -p "$out"
for n in 1 2; do
    git clone -q --no-hardlinks . "$out/checkout_$n" || exit 1
done
touch -d '2001-02-03 04:05:06' "$out"/checkout_2/*.h
chmod -R g+w,o-r "$out/checkout_2"
(cd "$out/checkout_1" && make -s dist >/dev/null) || exit 1
(cd "$out/checkout_2" && umask 077 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 make -s dist >/dev/null) || exit 1
cmp "$out"/checkout_*/build/qoskit-*.tar.gz || { echo "two archives of one commit differ"; exit 1; }
mkdir "$out/unpacked"
tar xzf "$out"/checkout_1/build/qoskit-*.tar.gz -C "$out/unpacked"
diff <(git ls-tree -r --name-only HEAD | sort) <(cd "$out"/unpacked/qoskit-*/ && find . -type f -o -type l | sed 's,^\./,,' | sort) ||
    { echo "the archive does not hold the repository's files"; exit 1; }
sha256sum "$out"/checkout_1/build/qoskit-*.tar.gz
finish
