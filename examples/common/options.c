// One table of options gives parsing (by getopt_long), --help, and error messages with a correct example.
#include "common.h"
#include "qos.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"k", UINT64_C(1) << 10},
    {"kB", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"MB", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"GB", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},
    {"TB", UINT64_C(1) << 40},
    {"TiB", UINT64_C(1) << 40},
    {NULL, 0},
};
static const struct unit count_units[] = {
    {"", 1}, {"k", 1000}, {"M", 1000000}, {"G", 1000000000}, {NULL, 0},
};
static const struct unit time_units[] = {
    {"", 1000000000},
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", 1000000000},
    {"m", UINT64_C(60000000000)},
    {"min", UINT64_C(60000000000)},
    {"h", UINT64_C(3600000000000)},
    {NULL, 0},
};

/* Reads digits[.digits]unit: the value times the unit's factor, rounded down. false: another form, or at least 2^64. */
static bool parse_number(const char *text, const struct unit *units, bool ignore_case, uint64_t *out)
{
    uint64_t whole = 0, fraction = 0, scale = 1, value;
    const char *p = text;
    bool digits = false;
    for (; *p >= '0' && *p <= '9'; p++, digits = true)
        if (!qos_checked_mul(whole, 10, &whole) || !qos_checked_add(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++, digits = true)
            if (scale < UINT64_C(1000000000)) {
                fraction = fraction * 10 + (uint64_t)(*p - '0');
                scale *= 10;
            }
    if (!digits)
        return false;
    for (; units->name; units++) {
        if ((ignore_case ? strcasecmp(p, units->name) : strcmp(p, units->name)) != 0)
            continue;
        if (!qos_checked_mul(whole, units->factor, &value) ||
            !qos_checked_add(value, qos_mul_div_floor(fraction, units->factor, scale), &value))
            return false;
        *out = value;
        return true;
    }
    return false;
}

const char *opt_size(const char *text, uint64_t *bytes)
{
    return parse_number(text, size_units, true, bytes) ? NULL : "not a size; write e.g. 20M, 4k or 512";
}

const char *opt_rate(const char *text, uint64_t *per_s)
{
    char copy[64];
    size_t n = strlen(text);
    if (n > 2 && n < sizeof copy && strcmp(text + n - 2, "/s") == 0) {
        memcpy(copy, text, n - 2);
        copy[n - 2] = 0;
        text = copy;
    }
    return parse_number(text, size_units, true, per_s) ? NULL : "not a rate; write e.g. 20M (bytes per second)";
}

const char *opt_time(const char *text, uint64_t *ns)
{
    return parse_number(text, time_units, false, ns) ? NULL : "not a time; write e.g. 1.5s, 200ms or 2m";
}

const char *opt_count(const char *text, uint64_t *count)
{
    return parse_number(text, count_units, true, count) ? NULL : "not a number; write e.g. 16 or 10k";
}

const char *opt_real(const char *text, double *value)
{
    char *end;
    double v;
    errno = 0;
    v = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(v))
        return "not a number; write e.g. 0.95";
    *value = v;
    return NULL;
}

int opt_choice(const char *text, const char *choices)
{
    size_t n = strlen(text);
    int index = 0;
    for (;; index++) {
        size_t len = strcspn(choices, "|");
        if (len == n && memcmp(choices, text, n) == 0)
            return index;
        if (!choices[len])
            return -1;
        choices += len + 1;
    }
}

bool opt_next_pair(char **rest, char **key, char **value)
{
    char *equals;
    if (!*rest || !**rest)
        return false;
    *key = *rest;
    *rest = strchr(*rest, ',');
    if (*rest)
        *(*rest)++ = 0;
    equals = strchr(*key, '=');
    *value = NULL;
    if (equals) {
        *equals = 0;
        *value = equals + 1;
    }
    return true;
}

void opt_check(const char *where, const char *key, const char *value, const char *why)
{
    if (why)
        tool_die(TOOL_USAGE, "%s%s%s%s%s: %s", where ? where : "", where ? ": " : "", key, value ? "=" : "",
                 value ? value : "", why);
}

/* Text in lines of at most HELP_COLUMNS, broken between words. It begins at column `at`; every further line is indented
 * by `indent`. */
enum { HELP_COLUMNS = 100, HELP_LEFT = 26 };
static void print_wrapped(const char *text, size_t at, size_t indent)
{
    while (*text) {
        size_t word = strcspn(text, " ");
        if (at > indent && at + 1 + word > HELP_COLUMNS) {
            printf("\n%*s", (int)indent, "");
            at = indent;
        } else if (at > indent) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)word, text);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_help(const char *program, const struct opt *o, const char *about, const char *examples)
{
    const char *slash = strrchr(program, '/');
    char left[64];
    const char *name = slash ? slash + 1 : program;
    printf("%s -", name);
    print_wrapped(about, strlen(name) + 2, 0);
    printf("\nusage: %s [options]\n\n", program);
    for (; o->name; o++) {
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->kind == OPT_FLAG ? "" : " ",
                 o->kind == OPT_FLAG || !o->argument ? "" : o->argument);
        if (strlen(left) > HELP_LEFT)
            printf("  %s\n  %-*s  ", left, HELP_LEFT, "");
        else
            printf("  %-*s  ", HELP_LEFT, left);
        print_wrapped(o->help, HELP_LEFT + 4, HELP_LEFT + 4);
    }
    printf("  %-*s  this text\n", HELP_LEFT, "--help");
    if (examples)
        printf("\n%s", examples);
}

/* Returns the fault of the value, or NULL. */
static const char *store(const struct opt *o, const char *value, char *why, size_t size)
{
    switch (o->kind) {
    case OPT_FLAG: *(bool *)o->to = true; return NULL;
    case OPT_TEXT: *(const char **)o->to = value; return NULL;
    case OPT_SIZE: return opt_size(value, o->to);
    case OPT_RATE: return opt_rate(value, o->to);
    case OPT_TIME: return opt_time(value, o->to);
    case OPT_COUNT: return opt_count(value, o->to);
    case OPT_REAL: return opt_real(value, o->to);
    case OPT_EACH: o->each(value); return NULL;
    case OPT_CHOICE: break;
    }
    if (opt_choice(value, o->argument) < 0) {
        snprintf(why, size, "must be one of %s", o->argument);
        return why;
    }
    *(int *)o->to = opt_choice(value, o->argument);
    return NULL;
}

int opt_parse(int argc, char **argv, const struct opt *opts, const char *about, const char *examples)
{
    size_t n = 0, i;
    struct option *list;
    int got;
    tool_set_name(argv[0]);
    while (opts[n].name)
        n++;
    list = tool_alloc((n + 2) * sizeof *list);
    for (i = 0; i < n; i++) {
        list[i].name = opts[i].name;
        list[i].has_arg = opts[i].kind == OPT_FLAG ? no_argument : required_argument;
        list[i].val = (int)i + 1000;
    }
    list[n].name = "help";
    list[n].val = 'h';
    opterr = 0;
    optind = 0;
    while ((got = getopt_long(argc, argv, ":h", list, NULL)) != -1) {
        char where[80], why[160];
        const char *wrong;
        if (got == 'h') {
            print_help(argv[0], opts, about, examples);
            exit(TOOL_OK);
        }
        if (got == ':')
            tool_die(TOOL_USAGE, "%s needs a value; --help lists the options", argv[optind - 1]);
        if (got == '?')
            tool_die(TOOL_USAGE, "%s: no such option; --help lists them", argv[optind - 1]);
        wrong = store(&opts[got - 1000], optarg, why, sizeof why);
        snprintf(where, sizeof where, "--%s", opts[got - 1000].name);
        opt_check(NULL, where, optarg, wrong);
    }
    free(list);
    return optind;
}
