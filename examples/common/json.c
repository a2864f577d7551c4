// JSON to a file. The stream remembers errors; json_close reports them once.
#include "common.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", f);
        else if (c == '\t')
            fputs("\\t", f);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

/* Comma, new line, indentation and key before a value. */
static void begin(struct json *j, const char *key)
{
    fputs(j->filled[j->depth] ? ",\n" : "\n", j->f);
    j->filled[j->depth] = true;
    fprintf(j->f, "%*s", 2 * j->depth, "");
    if (key && !j->array[j->depth]) {
        put_text(j->f, key);
        fputs(": ", j->f);
    }
}

static void open_level(struct json *j, bool array)
{
    if (++j->depth == JSON_DEPTH_MAX)
        tool_die(TOOL_FAILED, "JSON is nested deeper than %d levels", JSON_DEPTH_MAX);
    j->filled[j->depth] = false;
    j->array[j->depth] = array;
    fputc(array ? '[' : '{', j->f);
}

bool json_open(struct json *j, const char *path)
{
    memset(j, 0, sizeof *j);
    j->f = path && strcmp(path, "-") == 0 ? stdout : fopen(path ? path : "/dev/null", "w");
    if (!j->f)
        return false;
    j->path = tool_copy(path ? path : "/dev/null");
    open_level(j, false);
    return true;
}

void json_object(struct json *j, const char *key)
{
    begin(j, key);
    open_level(j, false);
}

void json_array(struct json *j, const char *key)
{
    begin(j, key);
    open_level(j, true);
}

void json_end(struct json *j)
{
    bool array = j->array[j->depth], filled = j->filled[j->depth];
    j->depth--;
    if (filled)
        fprintf(j->f, "\n%*s", 2 * j->depth, "");
    fputc(array ? ']' : '}', j->f);
}

void json_text(struct json *j, const char *key, const char *text)
{
    begin(j, key);
    if (text)
        put_text(j->f, text);
    else
        fputs("null", j->f);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
    begin(j, key);
    fprintf(j->f, "%" PRIu64, value);
}

void json_i64(struct json *j, const char *key, int64_t value)
{
    begin(j, key);
    fprintf(j->f, "%" PRId64, value);
}

void json_real(struct json *j, const char *key, double value)
{
    begin(j, key);
    if (isfinite(value))
        fprintf(j->f, "%.9g", value);
    else
        fputs("null", j->f);
}

void json_bool(struct json *j, const char *key, bool value)
{
    begin(j, key);
    fputs(value ? "true" : "false", j->f);
}

bool json_close(struct json *j)
{
    bool ok;
    while (j->depth > 0)
        json_end(j);
    fputc('\n', j->f);
    ok = fflush(j->f) == 0 && !ferror(j->f);
    if (j->f != stdout && fclose(j->f) != 0)
        ok = false;
    if (!ok)
        tool_warn("%s: cannot write: %s", j->path, strerror(errno));
    free(j->path);
    return ok;
}
