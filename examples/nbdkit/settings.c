/* settings.c - parses, merges and checks. See settings.h. */
#include "settings.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-filter.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

__attribute__((format(printf, 2, 3))) static int wrong(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, WHY_MAX, format, args);
    va_end(args);
    return -1;
}

struct settings *settings_new(void)
{
    struct settings *s = calloc(1, sizeof *s);
    if (s)
        s->request_cost = s->no_data_cost = QOS_NEVER;
    return s;
}

void settings_free(struct settings *s)
{
    uint32_t i;
    for (i = 0; s && i < s->classes; i++)
        free(s->class_of[i].export_name);
    free(s);
}

uint64_t charge_of(const struct charge *c, uint64_t bytes)
{
    return qos_min(qos_mul_div_ceil(bytes, c->percent, 100), c->most_bytes);
}

const char *export_word(const char *name, char buf[WORD_MAX])
{
    const unsigned char *p = (const unsigned char *)name;
    char *out = buf;
    if (*p == 0)
        return "\"\"";
    for (; *p && out < buf + WORD_MAX - 4; p++) {
        if (*p <= ' ' || *p == '%' || *p == 0x7f || (*p == '*' && p[1] == 0 && out == buf))
            out += sprintf(out, "%%%02X", *p);
        else
            *out++ = (char)*p;
    }
    *out = 0;
    return buf;
}

/* ---- values */

static int parse_rate(const char *key, const char *text, uint64_t *per_s, char *why)
{
    int64_t n = nbdkit_parse_size(text);
    if (n <= 0 || (uint64_t)n > QOS_RATE_MAX)
        return wrong(why, "%s=%s: give bytes per second, such as 20M; 1 to 1T", key, text);
    *per_s = (uint64_t)n;
    return 0;
}

static int parse_cost(const char *key, const char *text, uint64_t *cost, char *why)
{
    int64_t n = nbdkit_parse_size(text);
    if (n < 0 || (uint64_t)n > REQUEST_COST_MAX)
        return wrong(why, "%s=%s: give bytes, such as 4K; 0 to 64M", key, text);
    *cost = (uint64_t)n;
    return 0;
}

static int parse_charge(const char *key, const char *text, struct charge *charge, char *why)
{
    char *end = NULL;
    size_t length = strlen(text);
    int64_t n = -1;
    if (length > 0 && text[length - 1] == '%') {
        n = strtol(text, &end, 10);
        if (n < 0 || n > 100 || end != text + length - 1 || end == text)
            n = -1;
        charge->percent = (uint32_t)n;
        charge->most_bytes = QOS_TOKENS_MAX;
    } else {
        n = nbdkit_parse_size(text);
        if ((uint64_t)n > REQUEST_COST_MAX)
            n = -1;
        charge->percent = 100;
        charge->most_bytes = (uint64_t)n;
    }
    if (n < 0)
        return wrong(why, "%s=%s: give 0%% to 100%% of its bytes, or how many of them at most: 0 to 64M", key, text);
    charge->given = true;
    return 0;
}

/* One of reserve=20M, limit=60M, weight=2, burst=100. given: one bit for each word already seen. */
static int parse_term(const char *value, const char *part, struct htb_class *c, unsigned *given, char *why)
{
    static const char *const words[] = {"reserve=", "limit=", "weight=", "burst="};
    const char *text = NULL;
    unsigned i, n = 0;
    for (i = 0; i < 4 && !text; i++)
        if (strncmp(part, words[i], strlen(words[i])) == 0)
            text = part + strlen(words[i]);
    if (!text)
        return wrong(why, "qos-class=%s: \"%s\": give reserve=RATE, limit=RATE, weight=N or burst=MS", value, part);
    if (*given & (1u << i))
        return wrong(why, "qos-class=%s: %.*s is given twice; give it once", value, (int)strcspn(part, "="), part);
    *given |= 1u << i;
    if (i == 1)
        return parse_rate("reserve", text, &c->rate_per_s[0], why);
    if (i == 2)
        return parse_rate("limit", text, &c->limit_per_s[0], why);
    if (nbdkit_parse_unsigned(i == 3 ? "weight" : "burst", text, &n) == -1 || n == 0 ||
        n > (i == 3 ? HTB_WEIGHT_MAX : 10000u))
        return wrong(why, i == 3 ? "weight=%s: give 1 to 1000000" : "burst=%s: give milliseconds, 1 to 10000", text);
    if (i == 3)
        c->weight = n;
    else
        c->burst_ns = (uint64_t)n * 1000000;
    return 0;
}

/* Index of the class of that name; s->classes if there is none. */
static uint32_t find(const struct settings *s, const char *name)
{
    uint32_t i;
    for (i = 0; i < s->classes; i++)
        if (strcmp(s->class_of[i].export_name, name) == 0)
            break;
    return i;
}

static int add(struct settings *s, const char *name, const struct htb_class *terms, char *why)
{
    uint32_t i = find(s, name);
    if (i == CLASSES_MAX - 1)
        return wrong(why, "qos-class=%s: give at most %u classes", name, CLASSES_MAX - 1);
    if (i == s->classes) {
        s->class_of[i].export_name = strdup(name);
        if (!s->class_of[i].export_name)
            return wrong(why, "out of memory");
        s->classes++;
    }
    s->class_of[i].terms = *terms;
    return 0;
}

/* NAME,reserve=20M,limit=60M,weight=2,burst=100; NAME is * for all others, "" for the default export. */
static int parse_class(struct settings *s, const char *value, char *why)
{
    struct htb_class terms = {0};
    unsigned given = 0;
    char *text = strdup(value), *rest = NULL, *part;
    size_t name = strcspn(value, ",");
    bool others = name == 1 && value[0] == '*';
    int rc = -1;
    if (!text)
        return wrong(why, "out of memory");
    text[name] = 0;
    if (name == 0)
        wrong(why, "qos-class=%s: it names no export; give one, \"\" for the default export, * for all others", value);
    else if (others ? s->others_given : find(s, strcmp(text, "\"\"") == 0 ? "" : text) < s->classes)
        wrong(why, "qos-class=%s: %s a class already; give one line for each", value,
              others ? "all other exports have" : "this export has");
    else
        rc = 0;
    part = rc == 0 && value[name] ? strtok_r(text + name + 1, ",", &rest) : NULL;
    if (rc == 0 && !part)
        rc = wrong(why, "qos-class=%s: it promises nothing; give reserve=RATE, limit=RATE or weight=N", value);
    for (; rc == 0 && part; part = strtok_r(NULL, ",", &rest))
        rc = parse_term(value, part, &terms, &given, why);
    if (rc == 0 && terms.limit_per_s[0] != 0 && terms.limit_per_s[0] < terms.rate_per_s[0])
        rc = wrong(why, "qos-class=%s: the limit is below the reservation; give a limit of at least %llu", value,
                   (unsigned long long)terms.rate_per_s[0]);
    if (rc == 0 && others) {
        s->others = terms;
        s->others_given = true;
    } else if (rc == 0) {
        rc = add(s, strcmp(text, "\"\"") == 0 ? "" : text, &terms, why);
    }
    free(text);
    return rc;
}

int settings_set(struct settings *s, const char *key, const char *value, char why[WHY_MAX])
{
    bool twice = false;
    int rc;
    if (strcmp(key, "qos-class") == 0) {
        rc = parse_class(s, value, why);
    } else if (strcmp(key, "qos-rate") == 0) {
        twice = s->rate_per_s != 0;
        rc = parse_rate(key, value, &s->rate_per_s, why);
    } else if (strcmp(key, "qos-zero") == 0) {
        twice = s->zero.given;
        rc = parse_charge(key, value, &s->zero, why);
    } else if (strcmp(key, "qos-trim") == 0) {
        twice = s->trim.given;
        rc = parse_charge(key, value, &s->trim, why);
    } else if (strcmp(key, "qos-request") == 0) {
        twice = s->request_cost != QOS_NEVER;
        rc = parse_cost(key, value, &s->request_cost, why);
    } else if (strcmp(key, "qos-no-data") == 0) {
        twice = s->no_data_cost != QOS_NEVER;
        rc = parse_cost(key, value, &s->no_data_cost, why);
    } else {
        return 0;
    }
    if (rc == 0 && twice)
        rc = wrong(why, "%s=%s: it is given twice; give it once", key, value);
    return rc == 0 ? 1 : -1;
}

/* ---- the control file */

static int read_line(struct settings *s, char *line, char *why)
{
    char *value, *end;
    line += strspn(line, " \t\r\n");
    if (*line == 0 || *line == '#')
        return 0;
    for (end = line + strlen(line); end > line && strchr(" \t\r\n", end[-1]); end--)
        ;
    *end = 0;
    value = strchr(line, '=');
    if (!value)
        return wrong(why, "%s: give KEY=VALUE, such as qos-rate=80M", line);
    *value++ = 0;
    switch (settings_set(s, line, value, why)) {
    case 1: return 0;
    case 0:
        return wrong(why, "%s: give qos-rate, qos-class, qos-zero, qos-trim, qos-request or qos-no-data here", line);
    default: return -1;
    }
}

int settings_read(struct settings *s, const char *path, char why[WHY_MAX])
{
    char problem[WHY_MAX], *line = NULL;
    size_t size = 0;
    int rc = 0, number = 0;
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!f) {
        int error = errno;
        (void)wrong(why, "%s: %s", path, strerror(error));
        errno = error;
        return -1;
    }
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)) { /* it would hold up all exports */
        (void)wrong(problem, "a pipe is no file of settings");
        rc = -1;
    }
    errno = 0;
    while (rc == 0 && getline(&line, &size, f) != -1) {
        number++;
        rc = read_line(s, line, problem);
    }
    if (rc != 0)
        (void)wrong(why, "%s:%d: %.*s", path, number, WHY_MAX / 2, problem);
    else if (ferror(f))
        rc = wrong(why, "%s: %s", path, strerror(errno));
    free(line);
    (void)fclose(f);
    errno = 0;
    return rc;
}

/* ---- the whole */

static int check(const struct settings *s, char *why)
{
    char word[WORD_MAX];
    uint64_t left = s->rate_per_s, total = s->others.rate_per_s[0];
    uint32_t i;
    for (i = 0; i < s->classes; i++)
        total = qos_sat_add(total, s->class_of[i].terms.rate_per_s[0]);
    if (total != 0 && s->rate_per_s == 0)
        return wrong(why,
                     "qos-rate: give it to reserve anything; what the device always sustains, in bytes per second");
    if (s->rate_per_s == 0)
        return 0;
    if (s->others.rate_per_s[0] > left)
        return wrong(why, "qos-class=*: its reservation does not fit; %llu bytes per second are left",
                     (unsigned long long)left);
    left -= s->others.rate_per_s[0];
    for (i = 0; i < s->classes; i++) {
        if (s->class_of[i].terms.rate_per_s[0] > left)
            return wrong(why, "qos-class=%.200s: its reservation does not fit; %llu bytes per second are left",
                         export_word(s->class_of[i].export_name, word), (unsigned long long)left);
        left -= s->class_of[i].terms.rate_per_s[0];
    }
    return 0;
}

struct settings *settings_merged(const struct settings *under, const struct settings *over, char why[WHY_MAX])
{
    static const struct charge whole = {true, 100, QOS_TOKENS_MAX}, little = {true, 100, 65536};
    struct settings *s = settings_new();
    const struct settings *from;
    uint32_t i;
    int rc = 0;
    if (!s) {
        (void)wrong(why, "out of memory");
        return NULL;
    }
    for (from = under; from; from = from == under ? over : NULL) {
        s->rate_per_s = qos_default(from->rate_per_s, s->rate_per_s);
        s->zero = from->zero.given ? from->zero : s->zero;
        s->trim = from->trim.given ? from->trim : s->trim;
        s->request_cost = from->request_cost != QOS_NEVER ? from->request_cost : s->request_cost;
        s->no_data_cost = from->no_data_cost != QOS_NEVER ? from->no_data_cost : s->no_data_cost;
        s->others = from->others_given ? from->others : s->others;
        s->others_given = s->others_given || from->others_given;
        for (i = 0; rc == 0 && i < from->classes; i++)
            rc = add(s, from->class_of[i].export_name, &from->class_of[i].terms, why);
    }
    if (rc == 0)
        rc = check(s, why);
    s->zero = s->zero.given ? s->zero : whole;
    s->trim = s->trim.given ? s->trim : little;
    s->request_cost = s->request_cost != QOS_NEVER ? s->request_cost : 0;
    s->no_data_cost = s->no_data_cost != QOS_NEVER ? s->no_data_cost : 4096;
    s->rate_per_s = qos_default(s->rate_per_s, QOS_RATE_MAX);
    if (rc == 0)
        return s;
    settings_free(s);
    return NULL;
}
