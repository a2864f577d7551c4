// What tenants get while they run. On a terminal: a table that is redrawn. Elsewhere: a line for each tenant every second.
#include "common.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_EVERY_NS UINT64_C(500000000)
#define LINES_EVERY_NS UINT64_C(1000000000)
#define HISTORY 40 /* values of a sparkline, at most */
#define SPARK_LEVELS 8
#define TABLE_COLUMNS 86 /* without the sparkline */
#define COLUMNS_DEFAULT 110
#define LINES_DEFAULT 24
#define SPARK_LEAST 8 /* else none */

struct live {
    FILE *out;
    struct human (*amount)(double per_s);
    bool terminal, utf8;
    uint32_t rows, lines, values; /* lines: on the screen; values: filled in of the history */
    double (*got)[HISTORY];
};

static bool speaks_utf8(void)
{
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"}, *value = NULL;
    size_t i;
    for (i = 0; i < 3 && !(value && *value); i++)
        value = getenv(names[i]);
    return value && (strstr(value, "UTF-8") || strstr(value, "utf8"));
}

struct live *live_new(FILE *out, struct human (*amount)(double per_s))
{
    struct live *v = tool_alloc(sizeof *v);
    v->out = out;
    v->amount = amount;
    v->terminal = isatty(fileno(out)) != 0;
    v->utf8 = speaks_utf8();
    return v;
}

void live_free(struct live *v)
{
    if (v)
        free(v->got);
    free(v);
}

uint64_t live_every_ns(const struct live *v)
{
    return v->terminal ? DRAW_EVERY_NS : LINES_EVERY_NS;
}

/* The last values as a line of blocks. The tallest block is the largest value, or the promise if that is larger. */
static void put_spark(const struct live *v, const struct live_row *row, const double *got, uint32_t width)
{
    static const char *const block[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, plain[] = "_.-~=+*#";
    double most = (double)(row->reserve > row->limit ? row->reserve : row->limit);
    uint32_t i, n = v->values < width ? v->values : width;
    most = most > 1 ? most : 1;
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

static uint32_t terminal_size(const struct live *v, bool lines)
{
    struct winsize size;
    if (ioctl(fileno(v->out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
        return lines ? LINES_DEFAULT : COLUMNS_DEFAULT;
    return lines ? size.ws_row : size.ws_col;
}

static uint32_t spark_width(const struct live *v)
{
    uint32_t columns = terminal_size(v, false), room;
    room = columns > TABLE_COLUMNS ? columns - TABLE_COLUMNS : 0;
    return room < SPARK_LEAST ? 0 : room < HISTORY ? room : HISTORY;
}

/* The columns after the sparkline, cut off at the width of the terminal. */
static void put_columns(const struct live *v, const char *got, const char *reserve, const char *limit, const char *p99,
                        const char *waits)
{
    const uint32_t used = spark_width(v) + 13, all = terminal_size(v, false);
    char text[160];
    snprintf(text, sizeof text, " %11s %11s %11s %9s  %s", got, reserve, limit, p99, waits);
    fprintf(v->out, "%.*s\n", (int)(all > used ? all - used : 0), text);
}

static void draw(struct live *v, const char *heading, const struct live_row *row, const double *got)
{
    const struct human none = {"-"};
    const struct human now = v->amount(row->got), reserve = row->reserve ? v->amount((double)row->reserve) : none,
                       limit = row->limit ? v->amount((double)row->limit) : none,
                       p99 = row->p99_ns ? human_ns((double)row->p99_ns) : none;
    char waiting[64] = "", why[64];
    if (row->waits_ns != UINT64_MAX)
        snprintf(waiting, sizeof waiting, ", %s", human_ns((double)row->waits_ns).text);
    if (!v->terminal) {
        fprintf(v->out, "%s  %s: got %s, reserved %s, limit %s, p99 %s, waits for %s%s\n", heading, row->name, now.text,
                reserve.text, limit.text, p99.text, row->waits, waiting);
        return;
    }
    fprintf(v->out, "\033[2K%-12.12s ", row->name);
    put_spark(v, row, got, spark_width(v));
    snprintf(why, sizeof why, "%.20s%.18s", row->waits, waiting);
    put_columns(v, now.text, reserve.text, limit.text, p99.text, why);
    v->lines++;
}

void live_show(struct live *v, const char *heading, const struct live_row *row, uint32_t rows)
{
    uint32_t i, most = terminal_size(v, true);
    if (v->lines)
        fprintf(v->out, "\033[%" PRIu32 "A\033[J", v->lines);
    v->lines = 0;
    if (rows != v->rows) { /* other tenants: a new history */
        free(v->got);
        v->got = tool_alloc(rows * sizeof *v->got);
        v->rows = rows;
        v->values = 0;
    }
    v->values = v->values < HISTORY ? v->values + 1 : HISTORY;
    if (v->terminal) {
        fprintf(v->out, "\033[2K%-*.*s", (int)spark_width(v) + 13, (int)spark_width(v) + 13, heading);
        put_columns(v, "got", "reserved", "limit", "p99", "waits for");
        v->lines = 1;
    }
    for (i = 0; i < rows; i++) {
        memmove(v->got[i], v->got[i] + 1, sizeof v->got[i] - sizeof v->got[i][0]);
        v->got[i][HISTORY - 1] = row[i].got;
        if (!v->terminal || rows + 2 <= most || v->lines + 2 < most)
            draw(v, heading, &row[i], v->got[i]);
    }
    if (v->terminal && v->lines < rows + 1) {
        fprintf(v->out, "\033[2Kand %" PRIu32 " more: this terminal has too few lines\n", rows + 1 - v->lines);
        v->lines++;
    }
    fflush(v->out);
}
