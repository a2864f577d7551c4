# Sourced by the scripts of tests/: brings them to the repository root and says what they share.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
JOBS=${JOBS:-$(nproc)}
export LC_ALL=C

# What a source says of itself in its first lines: says FILE links
says() { sed -n "1,8s,^// $2: *,,p" "$1"; }

# The flags of the headers' contract; Wstrict-prototypes is for C alone.
WARNINGS="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wundef -Werror"
C_WARNINGS="$WARNINGS -Wstrict-prototypes"
CROSS="aarch64-linux-gnu arm-linux-gnueabihf i686-linux-gnu s390x-linux-gnu riscv64-linux-gnu"

# Runs each line of standard input as a command, $JOBS at a time; the status is 0 if all of them succeeded.
side_by_side() { tr '\n' '\0' | xargs -0 -r -n 1 -P "$JOBS" bash -c; }
