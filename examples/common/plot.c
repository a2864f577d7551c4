// SVG by gnuplot. gnuplot reads its script from a file without a name. So if it dies early the tool prints a message
// and gets no SIGPIPE.
#include "common.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#7f3fbf", "#555555"};
#define COLOURS (sizeof colours / sizeof *colours)

static bool run_gnuplot(FILE *script)
{
    static bool told;
    char *argv[] = {(char[]){"gnuplot"}, (char[]){"-"}, NULL};
    posix_spawn_file_actions_t actions;
    int status = 0, rc;
    pid_t pid;
    if (fflush(script) != 0 || ferror(script) || fseek(script, 0, SEEK_SET) != 0) {
        tool_warn("cannot write the gnuplot script: %s", strerror(errno));
        return false;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
    rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        if (!told)
            tool_warn("no plots: gnuplot cannot be run (%s); on Debian: apt-get install gnuplot-nox", strerror(rc));
        told = true;
        return false;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        tool_warn("gnuplot failed");
        return false;
    }
    return true;
}

bool plot_script(const char *script)
{
    FILE *f = tmpfile();
    bool ok;
    if (!f || fputs(script, f) < 0) {
        tool_warn("cannot write the gnuplot script: %s", strerror(errno));
        if (f)
            fclose(f);
        return false;
    }
    ok = run_gnuplot(f);
    fclose(f);
    return ok;
}

/* In double quotes for gnuplot. Titles are in noenhanced mode, so only '"' and '\\' need escaping. */
static void put_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (; text && *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static void put_setting(FILE *f, const char *what, const char *text)
{
    fprintf(f, "set %s ", what);
    put_text(f, text);
    fputs(" noenhanced\n", f);
}

static bool in_right_half(const struct plot *p, double x)
{
    const struct plot_curve *c = p->curve;
    return p->curves > 0 && c->n > 0 && x > (c->x[0] + c->x[c->n - 1]) / 2;
}

static void put_marks(FILE *f, const struct plot *p)
{
    size_t i, beside = 0;
    for (i = 0; i < p->marks; i++) {
        const struct plot_mark *m = &p->mark[i];
        const char *colour = m->colour_of < 0 ? "#999999" : colours[((size_t)m->colour_of + p->colour) % COLOURS];
        if (m->vertical)
            fprintf(f, "set arrow from %.9g, graph 0 to %.9g, graph 1 nohead lc rgb \"%s\" dt 2\n", m->at, m->at,
                    colour);
        else
            fprintf(f, "set arrow from graph 0, first %.9g to graph 1, first %.9g nohead lc rgb \"%s\" dt 2\n", m->at,
                    m->at, colour);
        fputs("set label ", f);
        put_text(f, m->name);
        if (m->vertical) /* on the side of its line that has more room */
            fprintf(f, " at %.9g, graph 0.97 %s,0 noenhanced font \",10\" tc rgb \"%s\"\n", m->at,
                    in_right_half(p, m->at) ? "right offset -0.4" : "left offset 0.4", colour);
        else
            fprintf(f, " at graph 1, first %.9g left offset 0.5,0 noenhanced font \",10\" tc rgb \"%s\"\n", m->at,
                    colour); /* outside, where no curve is */
        beside = !m->vertical && strlen(m->name) > beside ? strlen(m->name) : beside;
    }
    if (beside)
        fprintf(f, "set rmargin %zu\n", beside + 1);
    else
        fputs("unset rmargin\n", f);
}

/* How curve i of the plot is drawn. A bar needs the middle of its group, and its own place in the group. */
static void put_style(FILE *f, const struct plot *p, size_t i)
{
    double width = 0.8 / (double)p->curves;
    if (p->bars)
        fprintf(f, "using ($1 + %.4f):2:(%.4f) with boxes fs solid 0.85 noborder",
                width * ((double)i - ((double)p->curves - 1) / 2), width);
    else
        fprintf(f, "using 1:2 with %s lw %g",
                p->steps    ? "steps"
                : p->dots   ? "points pt 7 ps 0.6"
                : p->points ? "linespoints pt 7 ps 0.5"
                            : "lines",
                p->nested ? 2 + 3 * (double)(p->curves - 1 - i) : 2.0);
}

/* Panel `index`; the names of its data blocks contain that number. */
static void put_plot(FILE *f, const struct plot *p, size_t index)
{
    size_t i, k;
    put_setting(f, "title", p->title);
    put_setting(f, "xlabel", p->x_label);
    fprintf(f, "set xlabel offset 0,0.4\nset offsets graph %s, 0, 0\n", p->dots ? "0.02, graph 0.02" : "0, graph 0");
    put_setting(f, "ylabel", p->y_label);
    if (p->log_y && p->y_min > 0)
        fprintf(f, "set yrange [%.9g:", p->y_min);
    else
        fprintf(f, "set yrange [%s:", p->log_y ? "*" : "0");
    if (p->y_max > 0)
        fprintf(f, "%.9g]\n", p->y_max);
    else
        fputs("*]\n", f);
    fprintf(f, "unset logscale\n%s%s", p->log_x || p->log2_x ? "set logscale x" : "", p->log2_x ? " 2" : "");
    fprintf(f, "\n%s\n", p->log_y ? "set logscale y" : "");
    if (p->bars && p->curve[0].n) /* whole groups, a number under each */
        fprintf(f, "set xrange [%.9g:%.9g]\nset xtics 1\n", p->curve[0].x[0] - 0.6,
                p->curve[0].x[p->curve[0].n - 1] + 0.6);
    else
        fputs("set xrange [*:*]\nset xtics autofreq\n", f);
    fputs("unset arrow\nunset label\n", f);
    put_marks(f, p);
    for (i = 0; i < p->curves; i++) {
        fprintf(f, "$p%zuc%zu << EOD\n", index, i);
        for (k = 0; k < p->curve[i].n; k++)
            if (isfinite(p->curve[i].y[k]) && (!p->log_y || p->curve[i].y[k] > 0))
                fprintf(f, "%.9g %.9g\n", p->curve[i].x[k], p->curve[i].y[k]);
            else
                fputs("\n", f);
        fputs("EOD\n", f);
    }
    for (i = 0; i < p->curves; i++) {
        fprintf(f, "%s$p%zuc%zu ", i ? ", " : "plot ", index, i);
        put_style(f, p, i);
        fprintf(f, " lc rgb \"%s\"%s title ", colours[(i + p->colour) % COLOURS], i < COLOURS ? "" : " dt 2");
        put_text(f, p->curves > 1 ? p->curve[i].name : NULL); /* one curve: the label of its axis is enough */
    }
    fputs("\n", f);
}

bool plot_panels(const struct plot *p, size_t count, size_t columns, const char *path)
{
    size_t width = columns > 1 ? 560 : 640, height = columns > 1 ? 230 : 440, rows = (count + columns - 1) / columns;
    FILE *f = tmpfile();
    size_t i;
    bool ok;
    if (!f) {
        tool_warn("cannot write the gnuplot script: %s", strerror(errno));
        return false;
    }
    fprintf(f, "set terminal svg size %zu,%zu font \"sans-serif,15\" background rgb \"white\"\nset output ",
            width * columns, height * rows);
    put_text(f, path);
    fputs("\nset grid lc rgb \"#dddddd\"\nset border 3\nset tics nomirror\nset title font \",14\"\n"
          "set key outside bottom center horizontal noenhanced textcolor variable font \",13\"\n",
          f);
    if (columns > 1) /* low panels: smaller numbers do not touch */
        fputs("set tics font \",11\"\n", f);
    if (count > 1)
        fprintf(f, "set multiplot layout %zu,%zu\n", rows, columns);
    for (i = 0; i < count; i++)
        put_plot(f, &p[i], i);
    if (count > 1)
        fputs("unset multiplot\n", f);
    ok = run_gnuplot(f);
    fclose(f);
    return ok;
}

bool plot_svg(const struct plot *p, const char *path)
{
    return plot_panels(p, 1, 1, path);
}

bool plot_mkdir(const char *path)
{
    char part[4096];
    size_t n = strlen(path), i;
    if (n == 0 || n >= sizeof part) {
        errno = n ? ENAMETOOLONG : ENOENT;
        return false;
    }
    for (i = 1; i <= n; i++)
        if (path[i] == '/' || path[i] == 0) {
            memcpy(part, path, i);
            part[i] = 0;
            if (mkdir(part, 0777) != 0 && errno != EEXIST)
                return false;
        }
    return true;
}
