/* common.h - shared by the example tools: options, tables, JSON, histograms, progress, plots, temporary files.
 *
 * Each part is one small .c file. Nothing here depends on a scheduler.
 * Include "qos.h" beside it for the seeded generator (struct qos_rng) and exact arithmetic. Needs libc only.
 *
 *     options.c   opt_*        one table of options gives parsing, --help and error messages
 *     human.c     human_*      numbers with units for people
 *     table.c     table_*      aligned text tables
 *     json.c      json_*       JSON to a file; write errors are reported
 *     base64.c    base64_*     base64, both ways
 *     hist.c      hist_*       latency histogram: log-linear, mergeable
 *     progress.c  progress_*   a live line on a terminal, a line every 5 s elsewhere
 *     live.c      live_*       what tenants get while they run, with sparklines
 *     plot.c      plot_*       SVG through gnuplot
 *     tidy.c      stop_*, temp_*, tool_*   signals, temporary files, messages, memory, clock
 *     draw.h      draw_*       random draws: even, and by Zipf's law (a header of its own)
 *
 * Exit statuses of every tool: 0 done, 1 failed (or partly failed), 2 wrong usage, 3 inconclusive, 130 stopped by a
 * signal.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define COMMON_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* TOOL_INCONCLUSIVE: nothing is broken, but the machine was too slow for a verdict. */
enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_INCONCLUSIVE = 3, TOOL_STOPPED = 130 };

/* ---- tidy.c: messages, clock, signals, temporary files ------------------------------------------------- */

/* The name that messages begin with; opt_parse sets it. What is closed of stdin, stdout and stderr becomes /dev/null,
 * for reading only: else messages would go into the next file that is opened. Output is an error then, as before. */
void tool_set_name(const char *name);
/* "name: message\n" to stderr. die exits with `status`; temporary files are removed first. */
void tool_warn(const char *fmt, ...) COMMON_PRINTF(1, 2);
_Noreturn void tool_die(int status, const char *fmt, ...) COMMON_PRINTF(2, 3);
/* malloc, realloc and strdup; without memory they end the tool with a message. tool_alloc gives zeroed memory.
 * align: a power of two. */
void *tool_alloc(size_t bytes);
void *tool_alloc_aligned(size_t bytes, size_t align);
void *tool_grow(void *old, size_t bytes);
char *tool_copy(const char *text);

uint64_t tool_now_ns(void);                /* CLOCK_MONOTONIC */
uint64_t tool_cpu_ns(void);                /* CPU time of this process, all threads */
void tool_sleep_until_ns(uint64_t now_ns); /* returns early when a signal has set the stop flag */

/* From now on SIGINT, SIGTERM, SIGHUP (a terminal that closes) and SIGPIPE (who read the output is gone) set a flag and
 * interrupt system calls (no SA_RESTART). A second signal ends the tool at once: temporary files are removed, exit status
 * 130. Call once, before threads are started. */
void stop_on_signals(void);
void stop_not_for_readers(void); /* then: a server goes on, though nobody reads what it says */
bool stop_asked(void);
void stop_now(void); /* sets the same flag, from anywhere */

/* Files that must not outlive the tool: they are removed at exit, or on the second signal. Main thread only, at most 256;
 * a child that is forked later removes them, too. */
void temp_add(const char *path);
void temp_forget(const char *path); /* it stays */

/* ---- options.c ----------------------------------------------------------------------------------------- */

/* Parsers. NULL: the value is set. Otherwise they return the fault ("not a size; write e.g. 20M"), and the value does
 * not change.
 * Fractions are allowed, exact to nine digits and rounded down: "1.5k" is 1536. */
const char *opt_size(const char *text, uint64_t *bytes);  /* k, M, G, T are powers of 1024; 20M, 4k, 512, 2GiB */
const char *opt_rate(const char *text, uint64_t *per_s);  /* the same per second: 20M or 20M/s */
const char *opt_time(const char *text, uint64_t *ns);     /* ns, us, ms, s, m, h; a plain number is seconds: 1.5s */
const char *opt_count(const char *text, uint64_t *count); /* k, M, G are powers of 1000: 10k, 3000000 */
const char *opt_real(const char *text, double *value);    /* finite decimal number */
/* Index of text in choices ("none|htb|tags"), or -1. */
int opt_choice(const char *text, const char *choices);

enum opt_kind {
    OPT_FLAG, /* bool *: no argument; set to true */
    OPT_TEXT, /* const char ** */
    OPT_SIZE, /* uint64_t *, opt_size; likewise the next three */
    OPT_RATE,
    OPT_TIME,
    OPT_COUNT,
    OPT_REAL,   /* double * */
    OPT_CHOICE, /* int *: `argument` lists the choices, "none|htb" */
    OPT_EACH    /* void (*each)(const char *value): called for every occurrence, in order */
};
struct opt {
    const char *name; /* without the dashes; NULL ends the list */
    enum opt_kind kind;
    void *to;
    const char *argument;            /* in --help: "SIZE"; for OPT_CHOICE the choices */
    const char *help;                /* one sentence; names the default */
    void (*each)(const char *value); /* OPT_EACH only */
};
/* Parses argv. --help prints `about`, the options and `examples` (may be NULL), and exits with 0. A wrong option
 * prints the reason and exits with 2. Returns the index of the first argument that is not an option; argc if there is
 * none. */
int opt_parse(int argc, char **argv, const struct opt *opts, const char *about, const char *examples);
/* Splits "key=value,key=value" in place: the next pair, or false at the end. value is NULL if there is no '='. */
bool opt_next_pair(char **rest, char **key, char **value);
/* Prints "name: tenant 2: reserve=2X: not a size; write e.g. 20M" and exits with 2; `where` is "tenant 2". It returns
 * if why is NULL. */
void opt_check(const char *where, const char *key, const char *value, const char *why);

/* ---- human.c: use as printf("%s", human_bytes(n).text) --------------------------------------------------- */

struct human {
    char text[24];
};
struct human human_bytes(double bytes);      /* 1.5 MiB */
struct human human_rate(double bytes_per_s); /* 1.5 MiB/s */
struct human human_count(double count);      /* 1.5 k */
struct human human_ns(double ns);            /* 1.5 ms */
struct human human_percent(double ratio);    /* 98.7 % */

/* ---- table.c ----------------------------------------------------------------------------------------------- */

struct table;
/* Column headings separated by '|'; a heading that begins with '<' is left-aligned, others right-aligned. */
struct table *table_new(const char *headings);
/* The next cell, row by row; a row has as many cells as there are headings. NULL text: "-". */
void table_cell(struct table *t, const char *text);
void table_cellf(struct table *t, const char *fmt, ...) COMMON_PRINTF(2, 3);
void table_rule(struct table *t); /* a line before the next row */
void table_print(const struct table *t, FILE *f);
void table_free(struct table *t);

/* ---- json.c ------------------------------------------------------------------------------------------------- */

#define JSON_DEPTH_MAX 32
struct json {
    FILE *f;
    char *path;
    int depth;
    bool filled[JSON_DEPTH_MAX]; /* this level already has a value */
    bool array[JSON_DEPTH_MAX];
};
/* Opens path ("-": stdout; NULL: /dev/null) and begins the top object. false: errno has the reason. */
bool json_open(struct json *j, const char *path);
/* Inside an array key is NULL. Texts are escaped. A real that is not finite becomes null. */
void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
void json_end(struct json *j);                                     /* of the innermost object or array */
void json_text(struct json *j, const char *key, const char *text); /* NULL text: null */
void json_u64(struct json *j, const char *key, uint64_t value);
void json_i64(struct json *j, const char *key, int64_t value);
void json_real(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);
/* Ends all open objects and arrays and closes the file. false: it could not be written; a message was printed. */
bool json_close(struct json *j);

/* ---- base64.c ------------------------------------------------------------------------------------------------ */

#define BASE64_ROOM(bytes) (((bytes) + 2) / 3 * 4 + 1) /* of the text, with its end */
void base64_encode(const void *data, size_t bytes, char *text);
/* Writes at most bytes / 4 * 3 bytes and returns their number. 0: the text is empty, or no base64: whole groups of four
 * letters, the last one with at most two '='. */
size_t base64_decode(const char *text, size_t bytes, void *data);

/* ---- hist.c -------------------------------------------------------------------------------------------------- */

/* Counts of values 0..2^64-1: exact below 128, above that in 64 steps for each power of two. A quantile is the upper
 * end of its step: never below the true value, at most 1/64 (1.6 %) above it. 30 KiB. Additions and merges may come in
 * any order: the histogram is the same. */
#define HIST_STEPS 64
#define HIST_BUCKETS (59 * HIST_STEPS)
struct hist {
    uint64_t count, sum_low, sum_high; /* sum in 128 bits */
    uint64_t min, max;
    uint64_t bucket[HIST_BUCKETS];
};
void hist_clear(struct hist *h);
void hist_add(struct hist *h, uint64_t value);
void hist_merge(struct hist *into, const struct hist *from);
/* The smallest step end that at least the share p (0..1) of all values does not exceed. p = 1: the largest value,
 * exactly. 0 if there is no value. */
uint64_t hist_quantile(const struct hist *h, double p);
double hist_mean(const struct hist *h);

/* ---- progress.c ------------------------------------------------------------------------------------------------ */

struct progress {
    FILE *out; /* stderr */
    bool live; /* one line is drawn again and again; otherwise a new line now and then */
    uint64_t next_ns;
    int drawn; /* columns of the line on the screen */
};
/* Live if stderr is a terminal, or if `force` is set (the tool's --progress). */
void progress_init(struct progress *p, bool force);
/* True when it is time for a line: 5 times a second if live, else every 5 s. Costs one comparison. */
bool progress_due(struct progress *p, uint64_t now_ns);
void progress_show(struct progress *p, const char *fmt, ...) COMMON_PRINTF(2, 3);
/* Clears the live line, before other output. */
void progress_end(struct progress *p);

/* ---- live.c ---------------------------------------------------------------------------------------------------- */

struct live;
struct live_row {
    const char *name;
    double got;              /* per second */
    uint64_t reserve, limit; /* per second; 0: none */
    uint64_t p99_ns;         /* 0: not known */
    const char *waits;       /* what it waits for, in a few words */
    uint64_t waits_ns;       /* how long it has waited; UINT64_MAX: not known */
};
/* amount: how rates are written, human_rate or human_count. */
struct live *live_new(FILE *out, struct human (*amount)(double per_s));
uint64_t live_every_ns(const struct live *v); /* how often to show it */
/* On a terminal: a table in place of the last one. Otherwise: a line for each tenant, which begins with the heading. */
void live_show(struct live *v, const char *heading, const struct live_row *row, uint32_t rows);
void live_free(struct live *v); /* may be NULL */

/* ---- plot.c ------------------------------------------------------------------------------------------------------ */

/* One curve; x and y have n values. A y that is NaN leaves a gap. */
struct plot_curve {
    const char *name;
    const double *x, *y;
    size_t n;
};
/* A horizontal or vertical line with a label: a reservation, the start of a tenant. */
struct plot_mark {
    const char *name;
    double at;
    bool vertical;
    int colour_of; /* index of the curve whose colour it shares, -1: grey */
};
struct plot {
    const char *title, *x_label, *y_label;
    const struct plot_curve *curve;
    size_t curves;
    const struct plot_mark *mark;
    size_t marks;
    double y_max; /* 0: chosen by gnuplot */
    double y_min; /* with log_y; 0: chosen by gnuplot. Without log_y the axis begins at 0 */
    bool log_x, log_y;
    bool log2_x;   /* numbers of 1, 2, 4, ... */
    bool steps;    /* a function of time: the value holds until the next one */
    bool points;   /* measured at these places only; the lines are a guide for the eye */
    bool dots;     /* points without lines: x is a category, or the points have no order */
    bool bars;     /* a group of bars for each x: categories, 1 apart */
    bool nested;   /* curves that may overlap: each is narrower than the one before */
    size_t colour; /* of the first curve */
};
/* Draws to an SVG file. false: a message was printed (only once if gnuplot is missing). */
bool plot_svg(const struct plot *p, const char *path);
/* Several plots in one file, row by row. */
bool plot_panels(const struct plot *p, size_t count, size_t columns, const char *path);
/* Runs gnuplot with a script of your own on its stdin. The script sets output and terminal. */
bool plot_script(const char *script);
/* mkdir -p for output directories. false: errno has the reason. */
bool plot_mkdir(const char *path);

#endif
