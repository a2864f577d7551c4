/* simulate - the papers' experiments in simulated time, one subcommand for each header. Deterministic by seed. */
#include "simulate.h"
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} subcommands[] = {
    {"htb", simulate_htb, "AQuA, Figures 8 to 10: a shared disk without QoS, with reservations, with the maximizer"},
    {"haechi", simulate_haechi, "Haechi, Sets 1 to 4: tokens for one-sided I/O beside the bare system"},
    {"pshift", simulate_pshift, "pShift, Experiments 1 and 2: buckets on 64 servers whose demand moves"},
    {"reward", simulate_reward, "reward scheduling, Sections II to VI: who makes its requests cheap keeps the gain"},
    {"twochoice", simulate_twochoice,
     "two-choice, Figures 3 and 4: burst writes among stragglers, and ten times the size"},
};

void simulate_parse(int argc, char **argv, const struct opt *opts, const char *about, const char *example)
{
    int rest = opt_parse(argc, argv, opts, about, example);
    if (rest < argc)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", argv[rest]);
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
    fprintf(f, "usage: simulate SUBCOMMAND [options]        (simulate SUBCOMMAND --help says more)\n\n");
    for (i = 0; i < sizeof subcommands / sizeof *subcommands; i++)
        fprintf(f, "  %-10s %s\n", subcommands[i].name, subcommands[i].what);
    return f == stdout ? TOOL_OK : TOOL_USAGE;
}

int main(int argc, char **argv)
{
    size_t i;
    if (argc < 2)
        return usage(stderr);
    if (strcmp(argv[1], "--help") == 0)
        return usage(stdout);
    for (i = 0; i < sizeof subcommands / sizeof *subcommands; i++)
        if (strcmp(argv[1], subcommands[i].name) == 0)
            return subcommands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "simulate: no subcommand \"%s\"\n", argv[1]);
    return usage(stderr);
}
