/* simulate.h - the subcommands of `simulate`, one file for each header.
 *
 * Each takes argv from its own name on, parses its options, prints its tables, and returns the exit status. */
#ifndef EXAMPLES_SIMULATE_H
#define EXAMPLES_SIMULATE_H

#include "common.h"

/* What a subcommand writes in addition to its tables: see its options --json and --figures. */
struct simulate_output {
    const char *json_path, *figure_dir; /* NULL: not wanted */
    struct json json;                   /* may always be written to */
};

/* The two options, as rows of a table of struct opt. */
#define SIMULATE_OUTPUT(out)                                                                                           \
    {"json", OPT_TEXT, &(out)->json_path, "FILE", "writes the results as JSON", NULL},                                 \
    {                                                                                                                  \
        "figures", OPT_TEXT, &(out)->figure_dir, "DIR", "draws the figures there as SVG", NULL                         \
    }

/* Parses argv; everything in it must be an option. */
void simulate_parse(int argc, char **argv, const struct opt *opts, const char *about, const char *example);
/* Opens the files of the options; ends the program if that fails. */
void simulate_open(struct simulate_output *out);
/* Draws a figure, if figures are wanted. false: it could not be drawn, and a message was printed. */
bool simulate_draw(const struct simulate_output *out, const struct plot *plot, const char *file);
/* Returns the exit status. ok: all figures were drawn. */
int simulate_close(struct simulate_output *out, bool ok);

int simulate_htb(int argc, char **argv);
int simulate_tags(int argc, char **argv);
int simulate_pshift(int argc, char **argv);
int simulate_twochoice(int argc, char **argv);
int simulate_placement(int argc, char **argv);
int simulate_tokenpool(int argc, char **argv);

#endif
