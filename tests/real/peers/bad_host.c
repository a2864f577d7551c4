// A host with a bad disk or a bad clock, for LD_PRELOAD: each fsync and fdatasync takes SLOW_SYNC_MS milliseconds
// and adds a line to the file SLOW_SYNC_LOG; the wall clock is CLOCK_AHEAD_S seconds ahead.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static void slow_sync(void)
{
    const char *log = getenv("SLOW_SYNC_LOG");
    const long ms = number("SLOW_SYNC_MS");
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    int f = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (f >= 0) {
        (void)!write(f, "sync\n", 5);
        close(f);
    }
    while (nanosleep(&left, &left) != 0)
        ;
}

int fdatasync(int file)
{
    slow_sync();
    return (int)syscall(SYS_fdatasync, file);
}

int fsync(int file)
{
    slow_sync();
    return (int)syscall(SYS_fsync, file);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    const int result = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME)
        t->tv_sec += number("CLOCK_AHEAD_S");
    return result;
}
