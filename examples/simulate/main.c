// links: examples/world/devices.c examples/world/clients.c examples/world/networks.c
// flags: -ffp-contract=off
/* simulate - the papers' experiments in simulated time. Each header has a subcommand of its name. The same seed gives
 * the same output on every machine. */
#include "simulate.h"
#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} subcommands[] = {
    {"htb", simulate_htb, "AQuA, Figures 8 to 10: one disk without QoS, with reservations, with the maximizer"},
    {"tags", simulate_tags, "reward scheduling, Sections II to VI: cheaper requests give more of them"},
    {"pshift", simulate_pshift, "pShift, Experiments 1 and 2: 10,000 buckets on 64 servers; demand moves"},
    {"twochoice", simulate_twochoice, "two-choice, Figures 3 and 4: burst writes while some servers are slow"},
    {"placement", simulate_placement, "which servers get a write: our rule beside Prequal, random servers, oracles"},
    {"tokenpool", simulate_tokenpool, "Haechi, Sets 1 to 4: one-sided I/O with tokens and without"},
};

void simulate_parse(int argc, char **argv, const struct opt *opts, const char *about, const char *example)
{
    int rest = opt_parse(argc, argv, opts, about, example);
    if (rest < argc)
        tool_die(TOOL_USAGE, "%s: not an option; --help lists the options", argv[rest]);
}

void simulate_open(struct simulate_output *out)
{
    if (out->figure_dir && !plot_mkdir(out->figure_dir))
        tool_die(TOOL_FAILED, "%s: cannot be created", out->figure_dir);
    if (!json_open(&out->json, out->json_path))
        tool_die(TOOL_FAILED, "%s: cannot be written", out->json_path);
}

bool simulate_draw(const struct simulate_output *out, const struct plot *plot, const char *file)
{
    char path[512];
    if (!out->figure_dir)
        return true;
    snprintf(path, sizeof path, "%s/%s", out->figure_dir, file);
    return plot_svg(plot, path);
}

int simulate_close(struct simulate_output *out, bool ok)
{
    return json_close(&out->json) && ok ? TOOL_OK : TOOL_FAILED;
}

static int usage(FILE *f)
{
    size_t i;
    fprintf(f, "usage: simulate SUBCOMMAND [options]\n\n");
    for (i = 0; i < sizeof subcommands / sizeof *subcommands; i++)
        fprintf(f, "  %-10s %s\n", subcommands[i].name, subcommands[i].what);
    fprintf(f, "\nsimulate SUBCOMMAND --help lists its options.\n");
    return f == stdout ? TOOL_OK : TOOL_USAGE;
}

/* Runs a subcommand under its full name ("simulate htb"), for its messages and its --help. */
static int run(size_t which, int argc, char **argv)
{
    static char name[32];
    int status;
    snprintf(name, sizeof name, "simulate %s", subcommands[which].name);
    argv[0] = name;
    status = subcommands[which].run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        tool_warn("the output could not be written: %s", strerror(errno));
        return TOOL_FAILED;
    }
    return status;
}

int main(int argc, char **argv)
{
    size_t i;
    tool_set_name("simulate");
    if (argc < 2)
        return usage(stderr);
    if (strcmp(argv[1], "--help") == 0)
        return usage(stdout);
    for (i = 0; i < sizeof subcommands / sizeof *subcommands; i++)
        if (strcmp(argv[1], subcommands[i].name) == 0)
            return run(i, argc - 1, argv + 1);
    tool_warn("there is no subcommand \"%s\"", argv[1]);
    return usage(stderr);
}
