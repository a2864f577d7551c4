#!/usr/bin/env bash
# proves: make install puts the headers and a pkg-config file below PREFIX (and DESTDIR), and a program builds with them
set -u
. "$(dirname "$0")/../lib.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES # this make is nobody's child
out=$PWD/build/install
rm -rf "$out"
mkdir -p "$out"
make -s install PREFIX="$out/usr" >"$out/log" || { cat "$out/log"; exit 1; }
for h in *.h; do cmp "$h" "$out/usr/include/qoskit/$h" || exit 1; done

export PKG_CONFIG_PATH=$out/usr/lib/pkgconfig
version=$(sed -n 's/^#define QOS_VERSION_STRING "\(.*\)"/\1/p' qos.h)
[ -n "$version" ] && [ "$(pkg-config --modversion qoskit)" = "$version" ] || { echo "pkg-config does not say $version"; exit 1; }
# From elsewhere, so that nothing but the installed files is found.
printf '#include <%s>\n' *.h >"$out/main.c"
printf 'int main(void)\n{\n    return qos_min(0, 1) != 0;\n}\n' >>"$out/main.c"
(cd "$out" && gcc -std=c11 -Wall -Werror $(pkg-config --cflags qoskit) -o main main.c && ./main) || exit 1

# For packagers: everything below DESTDIR, while the file says where it will be.
make -s install DESTDIR="$out/stage" PREFIX=/usr >"$out/log" || { cat "$out/log"; exit 1; }
grep -qx 'prefix=/usr' "$out/stage/usr/lib/pkgconfig/qoskit.pc" || { echo "DESTDIR leaked into qoskit.pc"; exit 1; }
[ "$(find "$out/stage" -type f | wc -l)" -eq $(($(ls ./*.h | wc -l) + 1)) ] || { find "$out/stage" -type f; exit 1; }
make -s help | grep -q 'make test ' || { echo "make help says nothing"; exit 1; }
echo "installed $(ls "$out/usr/include/qoskit")"
