// Aligned text tables.
#include "common.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_COLUMNS_MAX 32

struct table {
    size_t columns, cells, room;
    char **cell;       /* cells in reading order; the headings are the first row */
    bool *rule_before; /* by cell index; only the first of a row counts */
    bool left[TABLE_COLUMNS_MAX];
    bool rule;
};

static void add(struct table *t, char *text)
{
    if (t->cells == t->room) {
        t->room = t->room * 2 + 64;
        t->cell = tool_grow(t->cell, t->room * sizeof *t->cell);
        t->rule_before = tool_grow(t->rule_before, t->room * sizeof *t->rule_before);
    }
    t->rule_before[t->cells] = t->rule;
    t->rule = false;
    t->cell[t->cells++] = text;
}

struct table *table_new(const char *headings)
{
    struct table *t = tool_alloc(sizeof *t);
    for (;;) {
        size_t n = strcspn(headings, "|");
        bool left = *headings == '<';
        char *text = tool_alloc(n + 1);
        if (t->columns == TABLE_COLUMNS_MAX)
            tool_die(TOOL_FAILED, "a table has at most %d columns", TABLE_COLUMNS_MAX);
        t->left[t->columns++] = left;
        memcpy(text, headings + left, n - left);
        add(t, text);
        if (!headings[n])
            break;
        headings += n + 1;
    }
    t->rule = true;
    return t;
}

void table_cell(struct table *t, const char *text)
{
    add(t, tool_copy(text ? text : "-"));
}

void table_cellf(struct table *t, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    table_cell(t, text);
}

void table_rule(struct table *t)
{
    t->rule = true;
}

void table_print(const struct table *t, FILE *f)
{
    size_t width[TABLE_COLUMNS_MAX] = {0}, i, c;
    for (i = 0; i < t->cells; i++)
        if (strlen(t->cell[i]) > width[i % t->columns])
            width[i % t->columns] = strlen(t->cell[i]);
    for (i = 0; i < t->cells; i += t->columns) {
        if (t->rule_before[i])
            for (c = 0; c < t->columns; c++) {
                size_t dashes = width[c] + (c ? 2 : 0);
                for (; dashes > 0; dashes--)
                    fputc('-', f);
            }
        if (t->rule_before[i])
            fputc('\n', f);
        for (c = 0; c < t->columns && i + c < t->cells; c++) {
            bool last = c + 1 == t->columns;
            if (t->left[c])
                fprintf(f, "%s%-*s", c ? "  " : "", last ? 0 : (int)width[c], t->cell[i + c]);
            else
                fprintf(f, "%s%*s", c ? "  " : "", (int)width[c], t->cell[i + c]);
        }
        fputc('\n', f);
    }
}

void table_free(struct table *t)
{
    size_t i;
    if (!t)
        return;
    for (i = 0; i < t->cells; i++)
        free(t->cell[i]);
    free(t->cell);
    free(t->rule_before);
    free(t);
}
