// The live view (--live): what each tenant gets, was promised, and waits for. On a terminal a table that is drawn again
// and again; else a line for each tenant now and then.
#include "uring_files.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_EVERY_NS UINT64_C(500000000)
#define LINES_EVERY_NS QOS_NS_PER_S
#define HISTORY 40 /* values of a sparkline, at most */
#define SPARK_LEVELS 8
#define TABLE_COLUMNS 86 /* without the sparkline */
#define COLUMNS_DEFAULT 110

struct live {
    const struct settings *s;
    const struct loop_options *o;
    FILE *out;
    bool terminal, utf8;
    uint64_t start_ns, shown_ns, next_ns;
    uint32_t lines, values; /* drawn; filled in of the history */
    struct live_tenant {
        uint64_t bytes; /* since the last look, as is the latency */
        struct hist latency;
        double got[HISTORY];
    } tenant[];
};

static bool speaks_utf8(void)
{
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"}, *value = NULL;
    size_t i;
    for (i = 0; i < 3 && !(value && *value); i++)
        value = getenv(names[i]);
    return value && (strstr(value, "UTF-8") || strstr(value, "utf8"));
}

struct live *live_new(const struct settings *s, const struct loop_options *o, uint64_t now_ns)
{
    struct live *v = tool_alloc(sizeof *v + o->tenants * sizeof v->tenant[0]);
    uint32_t i;
    v->s = s;
    v->o = o;
    v->out = stderr;
    v->terminal = isatty(STDERR_FILENO) != 0;
    v->utf8 = speaks_utf8();
    v->start_ns = v->shown_ns = now_ns;
    v->next_ns = now_ns + (v->terminal ? DRAW_EVERY_NS : LINES_EVERY_NS);
    for (i = 0; i < o->tenants; i++)
        hist_clear(&v->tenant[i].latency);
    return v;
}

void live_free(struct live *v)
{
    free(v);
}

uint64_t live_next_ns(const struct live *v)
{
    return v->next_ns;
}

void live_note(struct live *v, uint32_t tenant, uint64_t bytes, uint64_t latency_ns)
{
    v->tenant[tenant].bytes += bytes;
    hist_add(&v->tenant[tenant].latency, latency_ns);
}

/* The last values as a line of blocks; the tallest is the most that the tenant got, or what it was promised. */
static void put_spark(const struct live *v, const struct tenant *t, const double *got, uint32_t width)
{
    static const char *const block[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, plain[] = "_.-~=+*#";
    double most = (double)qos_max(qos_max(t->reserve, t->limit), 1);
    uint32_t i, n = v->values < width ? v->values : width;
    for (i = 0; i < n; i++)
        most = got[HISTORY - 1 - i] > most ? got[HISTORY - 1 - i] : most;
    fprintf(v->out, "%*s", (int)(width - n), "");
    for (i = HISTORY - n; i < HISTORY; i++) {
        uint32_t level = (uint32_t)(got[i] / most * (SPARK_LEVELS - 1) + 0.5);
        if (v->utf8)
            fputs(block[level], v->out);
        else
            fputc(plain[level], v->out);
    }
}

static struct human rate_or_none(uint64_t rate)
{
    struct human h = {"-"};
    return rate ? human_rate((double)rate) : h;
}

static uint32_t spark_width(void)
{
    struct winsize size;
    uint32_t columns = COLUMNS_DEFAULT;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    return (uint32_t)qos_min(qos_max(qos_sat_sub(columns, TABLE_COLUMNS), 8), HISTORY);
}

static void draw(struct live *v, uint32_t tenant, uint64_t since_ns, const char *waits)
{
    const struct tenant *t = &v->o->tenant[tenant];
    const struct live_tenant *lt = &v->tenant[tenant];
    char waiting[64] = "";
    if (since_ns != QOS_NEVER)
        snprintf(waiting, sizeof waiting, ", %s", human_ns((double)qos_elapsed_ns(since_ns, v->shown_ns)).text);
    if (!v->terminal) {
        fprintf(v->out, "%s %.0f s  %s: got %s, reserved %s, limit %s, p99 %s, waits for %s%s\n", v->o->label,
                (double)qos_elapsed_ns(v->start_ns, v->shown_ns) / 1e9, t->name, human_rate(lt->got[HISTORY - 1]).text,
                rate_or_none(t->reserve).text, rate_or_none(t->limit).text,
                lt->latency.count ? human_ns((double)hist_quantile(&lt->latency, 0.99)).text : "-", waits, waiting);
        return;
    }
    fprintf(v->out, "\033[2K%-12.12s ", t->name);
    put_spark(v, t, lt->got, spark_width());
    fprintf(v->out, " %11s %11s %11s %9s  %.20s%.18s\n", human_rate(lt->got[HISTORY - 1]).text,
            rate_or_none(t->reserve).text, rate_or_none(t->limit).text,
            lt->latency.count ? human_ns((double)hist_quantile(&lt->latency, 0.99)).text : "-", waits, waiting);
    v->lines++;
}

void live_show(struct live *v, uint64_t now_ns, live_waits *waits, void *of)
{
    double seconds = (double)qos_elapsed_ns(v->shown_ns, now_ns) / 1e9;
    uint32_t i;
    if (v->lines)
        fprintf(v->out, "\033[%" PRIu32 "A", v->lines);
    v->lines = 0;
    v->shown_ns = now_ns;
    v->values = v->values < HISTORY ? v->values + 1 : HISTORY;
    if (v->terminal) {
        char heading[64];
        snprintf(heading, sizeof heading, "%.20s %.1f of %.0f s", v->o->label,
                 (double)qos_elapsed_ns(v->start_ns, now_ns) / 1e9, (double)v->o->duration_ns / 1e9);
        fprintf(v->out, "\033[2K%-*s %11s %11s %11s %9s  %s\n", (int)spark_width() + 13, heading, "got", "reserved",
                "limit", "p99", "waits for");
        v->lines = 1;
    }
    for (i = 0; i < v->o->tenants; i++) {
        struct live_tenant *t = &v->tenant[i];
        uint64_t since_ns = QOS_NEVER;
        const char *why = waits(of, i, &since_ns);
        memmove(t->got, t->got + 1, sizeof t->got - sizeof t->got[0]);
        t->got[HISTORY - 1] = seconds > 0 ? (double)t->bytes / seconds : 0;
        draw(v, i, since_ns, why);
        t->bytes = 0;
        hist_clear(&t->latency);
    }
    fflush(v->out);
    v->next_ns = now_ns + (v->terminal ? DRAW_EVERY_NS : LINES_EVERY_NS);
}
