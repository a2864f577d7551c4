// A live line on a terminal, a line every 5 s elsewhere.
#include "common.h"
#include <stdarg.h>
#include <unistd.h>

#define LIVE_EVERY_NS UINT64_C(200000000)
#define SPARSE_EVERY_NS UINT64_C(5000000000)

void progress_init(struct progress *p, bool force)
{
    p->out = stderr;
    p->live = force || isatty(STDERR_FILENO);
    p->next_ns = 0;
    p->drawn = 0;
}

bool progress_due(struct progress *p, uint64_t now_ns)
{
    if (now_ns < p->next_ns)
        return false;
    p->next_ns = now_ns + (p->live ? LIVE_EVERY_NS : SPARSE_EVERY_NS);
    return true;
}

void progress_show(struct progress *p, const char *fmt, ...)
{
    char line[512];
    va_list args;
    int n;
    va_start(args, fmt);
    n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    if (n >= (int)sizeof line)
        n = (int)sizeof line - 1;
    if (p->live)
        fprintf(p->out, "\r%s%*s", line, p->drawn > n ? p->drawn - n : 0, "");
    else
        fprintf(p->out, "%s\n", line);
    fflush(p->out);
    p->drawn = n;
}

void progress_end(struct progress *p)
{
    if (p->live && p->drawn)
        fprintf(p->out, "\r%*s\r", p->drawn, "");
    fflush(p->out);
    p->drawn = 0;
}
