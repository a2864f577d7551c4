// Messages, memory, clock, signals, temporary files.
#include "common.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEMP_MAX 256

static const char *tool_name = "tool";
static volatile sig_atomic_t stop_flag;
static char *temp_path[TEMP_MAX]; /* NULL: free. A slot is set or cleared by one store, so a handler may read it. */

void tool_set_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    int fd;
    tool_name = slash ? slash + 1 : name;
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) /* the lowest free number */
            _exit(TOOL_FAILED);
}

static void say(const char *fmt, va_list args)
{
    fflush(stdout);
    fprintf(stderr, "%s: ", tool_name);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}

void tool_warn(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
}

void tool_die(int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
    exit(status);
}

void *tool_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p)
        tool_die(TOOL_FAILED, "out of memory (%zu bytes)", bytes);
    return p;
}

void *tool_alloc_aligned(size_t bytes, size_t align)
{
    void *p = NULL;
    if (posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes ? bytes : 1) != 0)
        tool_die(TOOL_FAILED, "out of memory (%zu bytes)", bytes);
    memset(p, 0, bytes ? bytes : 1);
    return p;
}

void *tool_grow(void *old, size_t bytes)
{
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p)
        tool_die(TOOL_FAILED, "out of memory (%zu bytes)", bytes);
    return p;
}

char *tool_copy(const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(tool_alloc(n), text, n);
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

uint64_t tool_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t tool_cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

void tool_sleep_until_ns(uint64_t now_ns)
{
    struct timespec t = {.tv_sec = (time_t)(now_ns / UINT64_C(1000000000)),
                         .tv_nsec = (long)(now_ns % UINT64_C(1000000000))};
    while (!stop_flag && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* Async-signal-safe: unlink only. */
static void remove_everything(void)
{
    int i;
    for (i = 0; i < TEMP_MAX; i++)
        if (temp_path[i])
            unlink(temp_path[i]);
}

static void on_signal(int number)
{
    int saved = errno;
    (void)number;
    if (stop_flag) {
        remove_everything();
        _exit(TOOL_STOPPED);
    }
    stop_flag = 1;
    errno = saved;
}

void stop_on_signals(void)
{
    struct sigaction a, now;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGPIPE, &a, NULL);
    if (sigaction(SIGHUP, NULL, &now) != 0 || now.sa_handler != SIG_IGN) /* nohup */
        sigaction(SIGHUP, &a, NULL);
}

void stop_not_for_readers(void)
{
    signal(SIGPIPE, SIG_IGN);
}

bool stop_asked(void)
{
    return stop_flag != 0;
}

void stop_now(void)
{
    stop_flag = 1;
}

void temp_add(const char *path)
{
    static bool known;
    int i;
    if (!known)
        atexit(remove_everything);
    known = true;
    for (i = 0; i < TEMP_MAX && temp_path[i]; i++)
        ;
    if (i == TEMP_MAX)
        tool_die(TOOL_FAILED, "too many temporary files");
    temp_path[i] = tool_copy(path);
}

void temp_forget(const char *path)
{
    int i;
    for (i = 0; i < TEMP_MAX; i++)
        if (temp_path[i] && strcmp(temp_path[i], path) == 0) {
            char *held = temp_path[i];
            temp_path[i] = NULL;
            free(held);
        }
}
