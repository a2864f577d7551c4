/* placement.c - `simulate placement`: how long requests take under each rule that chooses servers (the model is
 * placement.h). */
#include "common.h"
#include "placement_cases.h"
#include "simulate.h"
#include <string.h>

static struct simulate_output out;

static void cell_ratio(struct table *t, double a, double b)
{
    if (b > 0 && b < 1e12 && a < 1e12)
        table_cellf(t, "%.2f", a / b);
    else
        table_cell(t, "-");
}
static void cell_ms(struct table *t, double ms)
{
    if (ms < 1e12)
        table_cellf(t, "%.2f", ms);
    else
        table_cell(t, "never");
}

static void say(const struct place_config *c, enum place_rule rule, const struct place_result *r, double p50,
                double p99)
{
    json_object(&out.json, NULL);
    json_text(&out.json, "case", c->name);
    json_text(&out.json, "rule", place_rule_names[rule]);
    json_u64(&out.json, "requests", r->requests);
    json_real(&out.json, "p50_ms", p50 < 1e12 ? p50 : -1);
    json_real(&out.json, "p99_ms", p99 < 1e12 ? p99 : -1);
    json_real(&out.json, "worst_p99_ms", r->worst_p99 < 1e12 ? r->worst_p99 : -1);
    json_u64(&out.json, "writes", r->writes);
    json_u64(&out.json, "messages", r->messages);
    json_u64(&out.json, "sent_twice", r->twice);
    json_end(&out.json);
}

static void one_case(const struct place_config *c, const char *only, uint64_t seed, uint32_t seeds)
{
    struct table *t = table_new("<rule|p50 ms|p99 ms|worst seed|x oracle|x same 2k|messages a write|sent twice %");
    double p99[PLACE_RULES] = {0};
    int rule;
    printf("\n%s: %u clients with %u writes each, %u servers\n", c->name, c->clients, c->k, c->servers);
    for (rule = PLACE_RULES - 1; rule >= 0 && !stop_asked(); rule--) {
        struct place_result r;
        double p50;
        if (!place_has(c, (enum place_rule)rule) ||
            (only && rule < PLACE_SAME && strcmp(only, place_rule_names[rule]) != 0))
            continue;
        place_pooled(c, (enum place_rule)rule, seed, seeds, &r);
        p50 = place_quantile(r.ms, r.requests, 0.5);
        p99[rule] = place_quantile(r.ms, r.requests, 0.99);
        table_cell(t, place_rule_names[rule]);
        cell_ms(t, p50);
        cell_ms(t, p99[rule]);
        cell_ms(t, r.worst_p99);
        cell_ratio(t, p99[rule], p99[PLACE_ORACLE]);
        cell_ratio(t, p99[rule], p99[PLACE_SAME]);
        table_cellf(t, "%.1f", (double)r.messages / (double)r.writes);
        table_cellf(t, "%.2f", 100 * (double)r.twice / (double)r.writes);
        say(c, (enum place_rule)rule, &r, p50, p99[rule]);
        if (c->change_ms > 0) {
            double calm, recovers = place_recovers_ms(c, &r, &calm);
            printf("%s: p99 of who begins within %.0f ms of a change %.2f ms, long after it %.2f ms; it recovers in "
                   "%.0f ms\n",
                   place_rule_names[rule], c->change_ms / PLACE_SLOTS, place_slot_p99(&r, 0), calm, recovers);
        }
        place_free(&r);
    }
    table_print(t, stdout);
    table_free(t);
}

int simulate_placement(int argc, char **argv)
{
    uint64_t seeds = 3, seed = 1;
    const char *only = NULL, *name = NULL;
    const struct opt opts[] = {
        {"case", OPT_TEXT, &name, "NAME", "only cases whose name begins so", NULL},
        {"rule", OPT_TEXT, &only, "NAME", "only this rule, and the oracles", NULL},
        {"seeds", OPT_COUNT, &seeds, "N", "runs of each case, 1 to 99, whose requests are pooled; default 3", NULL},
        {"seed", OPT_COUNT, &seed, "N", "of the first run; default 1", NULL},
        {"json", OPT_TEXT, &out.json_path, "FILE", "writes the results as JSON", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    size_t i, found = 0;
    simulate_parse(argc, argv, opts, "Clients write to many servers; a rule chooses the servers of each request.",
                   "simulate placement --case light --seeds 1\n");
    if (seeds == 0 || seeds > 99)
        tool_die(TOOL_USAGE, "--seeds: 1 to 99");
    simulate_open(&out);
    for (i = 0; i < PLACE_CASE_COUNT && !stop_asked(); i++) {
        if (name && strncmp(name, place_cases[i].name, strlen(name)) != 0)
            continue;
        found++;
        one_case(&place_cases[i], only, seed, (uint32_t)seeds);
    }
    if (found == 0)
        tool_die(TOOL_USAGE, "--case %s: no case has this name", name);
    return simulate_close(&out, true);
}
