#!/usr/bin/env bash
# proves: make install puts the headers, a pkg-config file, a CMake package, the servers and the nbdkit filter with their manuals below
# PREFIX, which may have a space (and DESTDIR); a C and a C++ program build from the installed files alone by pkg-config and
# by CMake; make uninstall leaves nothing
set -u
. "$(dirname "$0")/../lib.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES # this make has no parent make
out="$PWD/build/install/a path"
rm -rf "$out"
mkdir -p "$out"
make -s install PREFIX="$out/usr" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
for h in *.h; do cmp "$h" "$out/usr/include/qoskit/$h" || exit 1; done
filter=$out/usr/lib/nbdkit/filters/nbdkit-qoskit-filter.so
if tests/packages.sh --quiet filter; then
    [ -f "$filter" ] || { echo "the nbdkit filter is not installed"; exit 1; }
    # nbdkit itself takes the installed one.
    nbdkit --dump-plugin --filter="$filter" null >/dev/null || { echo "nbdkit does not load the installed filter"; exit 1; }
    # Its manual has exactly the parameters of its help, in the synopsis, too.
    man=$out/usr/share/man/man1/nbdkit-qoskit-filter.1
    [ -f "$man" ] || { echo "the manual of the nbdkit filter is not installed"; exit 1; }
    nbdkit --help --filter="$filter" null | grep -oE '\bqos-[a-z-]+=' | sort -u >"$out/help"
    sed 's/\\-/-/g; s/^\.BI //; s/= .*/=/' "$man" | grep -xE 'qos-[a-z-]+=' | sort -u >"$out/manual"
    sed -n '/^\.SH SYNOPSIS/,/^\.SH DESC/s/\\-/-/gp' "$man" | grep -oE 'qos-[a-z-]+=' | sort -u >"$out/synopsis"
    [ -s "$out/help" ] && diff "$out/help" "$out/manual" && diff "$out/help" "$out/synopsis" ||
        { echo "the manual and the help of the filter differ"; exit 1; }
fi

for f in bin/memcached_gate bin/cluster_agent bin/qos_live share/man/man1/memcached_gate.1 share/man/man1/qos_live.1 share/man/man1/cluster_agent.1 lib/systemd/system/cluster_agent.service lib/systemd/system/memcached_gate.service share/qoskit/qoskit.rules.yml; do
    [ -s "$out/usr/$f" ] || { echo "$f is not installed"; cat "$out/log"; exit 1; }
done
"$out/usr/bin/memcached_gate" --check --settings "$out/usr/share/qoskit/memcached_gate.conf" || exit 1
! grep -q '@PREFIX@' "$out/usr/lib/systemd/system/"* || { echo "a unit does not know the prefix"; exit 1; }
if examples/nginx/build.sh --there >/dev/null 2>&1; then
    [ -s "$out/usr/lib/nginx/modules/ngx_http_qos_module.so" ] || { echo "nginx's module is not installed"; exit 1; }
fi

version=$(sed -n 's/^#define QOS_VERSION_STRING "\(.*\)"/\1/p' qos.h)
export PKG_CONFIG_PATH=$out/usr/lib/pkgconfig
[ -n "$version" ] && [ "$(pkg-config --modversion qoskit)" = "$version" ] || { echo "pkg-config does not print $version"; exit 1; }

# Builds in another directory, so that only the installed files are found.
user=$out/user
mkdir -p "$user"
{
    printf '#include <%s>\n' *.h
    printf 'int main(void)\n{\n    return qos_min(0, 1) != 0;\n}\n'
} | tee "$user/main.c" >"$user/main.cc"
cat >"$user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(user C CXX)
set(CMAKE_C_STANDARD 99) # too old: the package names what is needed
find_package(qoskit ${WANTED} REQUIRED)
add_executable(user_c main.c)
target_link_libraries(user_c PRIVATE qoskit::qoskit)
add_executable(user_cxx main.cc)
target_link_libraries(user_cxx PRIVATE qoskit::qoskit)
add_executable(user_shared main.c)
target_link_libraries(user_shared PRIVATE qoskit::shared)
add_executable(user_static main.cc)
target_link_libraries(user_static PRIVATE qoskit::static)
END
mkdir -p "$user/only_c" "$user/only_cxx" "$user/versions"
printf 'cmake_minimum_required(VERSION 3.16)\nproject(versions NONE)\nfind_package(qoskit ${WANTED} REQUIRED)\n' >"$user/versions/CMakeLists.txt"
# A project of one language, which includes the headers by their folder, beside a file of its own named as one of them.
for language in C CXX; do
    here=$user/only_${language,,}
    ext=c && [ $language = C ] || ext=cc
    printf 'cmake_minimum_required(VERSION 3.16)\nproject(one %s)\nfind_package(qoskit REQUIRED)\nadd_executable(one main.%s)\ntarget_link_libraries(one PRIVATE qoskit::qoskit)\n' $language $ext >"$here/CMakeLists.txt"
    printf '#define MINE 1\n' >"$here/tags.h"
    printf '#include "tags.h"\n#include <qoskit/tags.h>\nint main(void)\n{\n    return MINE == 1 && sizeof(struct tags) > 1 ? 0 : 1;\n}\n' >"$here/main.$ext"
done
(
    cd "$user" || exit 1
    eval "flags=($(pkg-config --cflags qoskit))" # as a shell reads it: the path may have a space
    gcc -std=c11 -Wall -Werror "${flags[@]}" -o c main.c && ./c || { echo "pkg-config, C"; exit 1; }
    g++ -std=c++17 -Wall -Werror "${flags[@]}" -o cxx main.cc && ./cxx || { echo "pkg-config, C++"; exit 1; }
    minor=${version%.*}
    cmake -DCMAKE_PREFIX_PATH="$out/usr" -DWANTED="$minor" -S . -B build >cmake.log 2>&1 && cmake --build build >>cmake.log 2>&1 &&
        build/user_c && build/user_cxx && build/user_shared && build/user_static || { cat cmake.log; echo "CMake"; exit 1; }
    for one in only_c only_cxx; do
        cmake -DCMAKE_PREFIX_PATH="$out/usr" -S $one -B $one/build >cmake.log 2>&1 && cmake --build $one/build >>cmake.log 2>&1 && $one/build/one ||
            { cat cmake.log; echo "CMake, $one alone"; exit 1; }
    done
    # A version that is not there must not be found. (Without a language cmake has no compiler to examine.)
    found() { cmake -DCMAKE_PREFIX_PATH="$out/usr" -DWANTED="$1" -S versions -B "build_$1" >cmake.log 2>&1; }
    found "$minor" || { cat cmake.log; echo "find_package(qoskit $minor) without a language"; exit 1; }
    for wanted in 99.0 "$((${minor%%.*} + 1)).0" 0.1; do
        ! found "$wanted" || { echo "find_package(qoskit $wanted) takes $version"; exit 1; }
        grep -q 'compatible' cmake.log || { cat cmake.log; echo "find_package(qoskit $wanted) fails for another reason"; exit 1; }
    done
    exit 0
) || exit 1

make -s uninstall PREFIX="$out/usr" >>"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
left=$(find "$out/usr" ! -type d -o -path '*qoskit*')
[ -z "$left" ] || { echo "make uninstall leaves $left"; exit 1; }

# For packagers: all files are below DESTDIR, while the file names the final place.
make -s install DESTDIR="$out/stage" PREFIX=/usr >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
grep -qx 'prefix=/usr' "$out/stage/usr/lib/pkgconfig/qoskit.pc" || { echo "DESTDIR leaked into qoskit.pc"; exit 1; }
! grep -rq "$out" "$out/stage/usr/lib/systemd" || { echo "DESTDIR leaked into a unit"; exit 1; }
! grep -rq "$out" "$out/stage/usr/lib/cmake" || { echo "DESTDIR leaked into the CMake package"; exit 1; }

# make help lists the targets quickly: it must not read the sources.
make -s help | grep -q 'make test ' || { echo "make help prints nothing"; exit 1; }
make -s help | awk 'length > 100 {print; wide = 1} END {exit wide}' || { echo "make help is wider than 100 columns"; exit 1; }
touch "$out/stamp"
make -s help >/dev/null
[ -z "$(find build -maxdepth 1 -name says.mk -newer "$out/stamp")" ] || { echo "make help reads all the sources"; exit 1; }
echo "installed $(ls "$out/stage/usr/include/qoskit" | tr '\n' ' ')"
finish
