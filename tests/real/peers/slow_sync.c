// A disk that stands still: with LD_PRELOAD, each fdatasync takes SLOW_SYNC_MS milliseconds, and is counted in
// SLOW_SYNC_LOG.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int file)
{
    const char *ms = getenv("SLOW_SYNC_MS"), *log = getenv("SLOW_SYNC_LOG");
    const long long ns = (ms ? atoll(ms) : 0) * 1000000;
    struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    int f = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (f >= 0) {
        (void)!write(f, "sync\n", 5);
        close(f);
    }
    while (nanosleep(&left, &left) != 0)
        ;
    return (int)syscall(SYS_fdatasync, file);
}
