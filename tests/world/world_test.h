/* world_test.h - what the worlds of all headers share: drawing a world by its seed, running many, shrinking, tracing
 *
 * A world is a list of fields, each with a few values; value 0 is the simplest one. A seed draws a world (a *swarm*:
 * first how many of the fields are switched on at all, then which, then their values), and the same seed feeds the
 * random numbers inside. So small worlds are as likely as large ones, and a world can be printed, read and shrunk
 * without knowing what its fields mean: shrinking sets fields to smaller values as long as the same oracle fails.
 *
 * Before the include:
 *     WORLD_HEADER "htb"
 *     WORLD_FIELDS(X)     X(NAME, "name", "value value ...") for each field; enumerations list words, the others numbers
 *     WORLD_COHORT(X)     the same for each of WORLD_COHORTS groups of clients: a.name, b.name, ...
 *     WORLD_DRAW_MORE(w, rng)   optional: changes what a seed has drawn
 *     WORLD_LATER, WORLD_LATER_COHORT   optional: from these fields on the seeds' own numbers draw none, so that the worlds
 *                               of all seeds stay as they are; world_draw_later draws them, for the seeds that call it
 *     WORLD_AGAIN               optional: see "again" below
 *     WORLD_REFERENCE           optional: --reference is known, and sets use_reference
 * After it:
 *     static void world_run(struct world *w)    runs it; calls world_fail(w, "oracle", now_ns, "...") if one is broken
 *     world_main(argc, argv)
 */
#ifndef QOS_TESTS_WORLD_TEST_H
#define QOS_TESTS_WORLD_TEST_H

#include "check.h"
#include "examples/world/world.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef WORLD_COHORTS
#define WORLD_COHORTS 3u
#endif
#define WORLD_FIELDS_MAX 160u
#define WORLD_VALUES_MAX 16u

#define WORLD_PRIV_ENUM(id, name, values) F_##id,
#define WORLD_PRIV_ROW(id, name, values) {name, values},
enum world_field_id { WORLD_FIELDS(WORLD_PRIV_ENUM) F_COUNT };
enum world_cohort_id { WORLD_COHORT(WORLD_PRIV_ENUM) F_COHORT };
static const struct {
    const char *name, *values;
} world_rows[] = {WORLD_FIELDS(WORLD_PRIV_ROW) WORLD_COHORT(WORLD_PRIV_ROW)};
#define WORLD_FIELD_COUNT ((uint32_t)F_COUNT + (uint32_t)F_COHORT * WORLD_COHORTS)

struct world {
    uint64_t seed;
    uint8_t choice[WORLD_FIELDS_MAX]; /* fields, then those of each cohort */
    /* the outcome */
    const char *broken; /* the oracle; NULL: none */
    uint64_t broken_ns, events;
    char message[256];
};

struct world_field {
    char name[32];
    char word[WORLD_VALUES_MAX][24];
    double number[WORLD_VALUES_MAX];
    uint32_t values;
};
static struct world_field world_field[WORLD_FIELDS_MAX];

static WORLD_UNUSED uint32_t world_choice(const struct world *w, uint32_t field)
{
    return w->choice[field];
}
static WORLD_UNUSED double world_value(const struct world *w, uint32_t field)
{
    return world_field[field].number[w->choice[field]];
}
/* Of cohort k. */
static WORLD_UNUSED uint32_t world_of(uint32_t k, uint32_t field)
{
    return (uint32_t)F_COUNT + k * (uint32_t)F_COHORT + field;
}

static void world_fields(void)
{
    uint32_t f;
    for (f = 0; f < WORLD_FIELD_COUNT; f++) {
        uint32_t row = f < (uint32_t)F_COUNT ? f : (uint32_t)F_COUNT + (f - (uint32_t)F_COUNT) % (uint32_t)F_COHORT;
        struct world_field *d = &world_field[f];
        const char *s = world_rows[row].values;
        if (f < (uint32_t)F_COUNT)
            (void)snprintf(d->name, sizeof d->name, "%s", world_rows[row].name);
        else
            (void)snprintf(d->name, sizeof d->name, "%c.%s", (char)('a' + (int)((f - F_COUNT) / F_COHORT)),
                           world_rows[row].name);
        while (*s) {
            size_t len = strcspn(s, " ");
            memcpy(d->word[d->values], s, len < 23 ? len : 23);
            d->number[d->values] = strtod(d->word[d->values], NULL);
            d->values++;
            s += len + strspn(s + len, " ");
        }
    }
}

#ifdef WORLD_LATER
static bool world_is_later(uint32_t f)
{
    return f < (uint32_t)F_COUNT ? f >= (uint32_t)WORLD_LATER
                                 : (f - (uint32_t)F_COUNT) % (uint32_t)F_COHORT >= (uint32_t)WORLD_LATER_COHORT;
}

/* In WORLD_DRAW_MORE, of worlds that have the later fields. */
static WORLD_UNUSED void world_draw_later(struct world *w, struct world_rng *r)
{
    uint32_t f;
    for (f = 0; f < WORLD_FIELD_COUNT; f++)
        if (world_is_later(f) && world_chance(r, 350))
            w->choice[f] = (uint8_t)world_between(r, 0, world_field[f].values - 1);
}
#else
static bool world_is_later(uint32_t f)
{
    (void)f;
    return false;
}
#endif

static void world_draw(struct world *w, uint64_t seed)
{
    static const uint32_t on[] = {80, 200, 350, 600};
    struct world_rng r;
    uint32_t f, permille;
    memset(w, 0, sizeof *w);
    w->seed = seed;
    world_rng_init(&r, seed, 0x5eed);
    permille = on[world_rand(&r) % 4];
    for (f = 0; f < WORLD_FIELD_COUNT; f++)
        if (!world_is_later(f) && world_chance(&r, permille))
            w->choice[f] = (uint8_t)world_between(&r, 0, world_field[f].values - 1);
#ifdef WORLD_DRAW_MORE
    WORLD_DRAW_MORE(w, &r);
#endif
#ifdef WORLD_AGAIN_PERMILLE
    world_rng_init(&r, seed, 0x7717); /* by its own numbers: a later field */
    if (world_chance(&r, WORLD_AGAIN_PERMILLE))
        w->choice[F_AGAIN] = (uint8_t)world_between(&r, 0, world_field[F_AGAIN].values - 1);
#endif
}

static void world_print(const struct world *w, FILE *to)
{
    uint32_t f;
    fprintf(to, "seed=%" PRIu64, w->seed);
    for (f = 0; f < WORLD_FIELD_COUNT; f++)
        if (w->choice[f])
            fprintf(to, " %s=%s", world_field[f].name, world_field[f].word[w->choice[f]]);
    fprintf(to, "\n");
}

/* Reads what world_print printed; what follows a # is a remark. False, and says why, if a word means nothing. */
static bool world_read(struct world *w, const char *text)
{
    char word[64];
    memset(w, 0, sizeof *w);
    while (*text && *text != '#' && *text != '\n') {
        size_t len = strcspn(text, " \n#");
        char *value;
        uint32_t f, v;
        if (len == 0 || len >= sizeof word) {
            text += len ? len : 1;
            continue;
        }
        memcpy(word, text, len);
        word[len] = 0;
        text += len;
        value = strchr(word, '=');
        if (!value)
            return false;
        *value++ = 0;
        if (strcmp(word, "seed") == 0) {
            w->seed = strtoull(value, NULL, 0);
            continue;
        }
        for (f = 0; f < WORLD_FIELD_COUNT && strcmp(world_field[f].name, word) != 0; f++) {
        }
        if (f == WORLD_FIELD_COUNT) {
            printf("no field is called %s\n", word);
            return false;
        }
        for (v = 0; v < world_field[f].values && strcmp(world_field[f].word[v], value) != 0; v++) {
        }
        if (v == world_field[f].values) {
            printf("%s has no value %s\n", word, value);
            return false;
        }
        w->choice[f] = (uint8_t)v;
    }
    return true;
}

/* ---- the run ---------------------------------------------------------------------------------------------------------- */

/* An oracle is broken. The first one counts. */
static WORLD_UNUSED void world_fail(struct world *w, const char *oracle, uint64_t now_ns, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static WORLD_UNUSED void world_fail(struct world *w, const char *oracle, uint64_t now_ns, const char *format, ...)
{
    va_list args;
    if (w->broken)
        return;
    w->broken = oracle;
    w->broken_ns = now_ns;
    va_start(args, format);
    (void)vsnprintf(w->message, sizeof w->message, format, args);
    va_end(args);
}

/* The trace: TRACE=1 prints every event, and collects what each client was given for a picture. */
static FILE *world_trace_data;
static bool world_tracing;
static WORLD_UNUSED void world_trace(uint64_t now_ns, uint32_t client, const char *what, uint64_t amount)
{
    if (!world_tracing)
        return;
    printf("%12.6f ms  client %-4" PRIu32 " %-10s %" PRIu64 "\n", (double)now_ns / 1e6, client, what, amount);
    if (world_trace_data && strcmp(what, "given") == 0)
        fprintf(world_trace_data, "%.6f %" PRIu32 " %" PRIu64 "\n", (double)now_ns / 1e6, client, amount);
}
/* A promised line of the picture: rate per ns from a time on. */
static double world_promised[64];
static WORLD_UNUSED void world_trace_promise(uint32_t client, double rate)
{
    if (client < 64)
        world_promised[client] = rate;
}

/* ---- again -------------------------------------------------------------------------------------------------------------
 *
 * The same world twice, with one thing changed that must not matter: another start of all clocks (`shifted`), other ids
 * (`permuted`), all weights or counts times a number (`scale_free`). A header's worlds name those that they know:
 *     WORLD_AGAIN "no shifted permuted scale_free"    in this order; values of the field AGAIN, and the oracles
 *     static double world_again_slack(const struct world *w, uint32_t client, double got)
 *         how much more or less than `got` the client may get the second time; below 0: not judged. Of WORLD_ALL, asked first:
 *         0 if everything must go to the same client at the same time, else below 0
 * The adapter reads world_again, and says with world_got what goes to whom, by its own numbers of clients. */
enum { WORLD_FIRST_RUN, WORLD_SHIFTED, WORLD_PERMUTED, WORLD_SCALED };
static WORLD_UNUSED uint32_t world_again; /* of the run that goes on */
#define WORLD_SHIFT_NS UINT64_C(123456789123)
#define WORLD_ALL UINT32_MAX
#define WORLD_GOT_MAX 4096u
struct world_account {
    uint64_t digest;
    uint32_t clients;
    double got[WORLD_GOT_MAX];
};
static struct world_account world_account;

static WORLD_UNUSED void world_got(uint64_t now_ns, uint32_t client, double amount)
{
    struct world_account *a = &world_account;
    a->digest = check_wrap_mul(a->digest ^ now_ns, UINT64_C(0x100000001b3));
    a->digest =
        check_wrap_mul(a->digest ^ ((uint64_t)client << 40) ^ (uint64_t)(int64_t)amount, UINT64_C(0x100000001b3));
    if (client < WORLD_GOT_MAX)
        a->got[client] += amount;
    if (client < WORLD_GOT_MAX && client >= a->clients)
        a->clients = client + 1;
}

static WORLD_UNUSED bool
    use_reference; /* a plain scheduler in place of the header: the oracles ask no more than that can do */

static void world_run(struct world *w);
#ifdef WORLD_AGAIN_PERMILLE
_Static_assert((uint32_t)F_AGAIN + 1 == (uint32_t)F_COUNT,
               "AGAIN is the last field: no seed draws those behind WORLD_LATER");
#endif
#ifdef WORLD_AGAIN
static double world_again_slack(const struct world *w, uint32_t client, double got);
static void world_run_twice(struct world *w)
{
    static struct world_account first;
    const char *oracle = world_field[F_AGAIN].word[world_choice(w, F_AGAIN)];
    uint64_t events;
    double slack;
    uint32_t i;
    world_again = WORLD_FIRST_RUN; /* the last one may have hung */
    memset(&world_account, 0, sizeof world_account);
    world_run(w);
    if (w->broken || world_choice(w, F_AGAIN) == 0)
        return;
    first = world_account;
    events = w->events;
    w->events = 0;
    world_again = world_choice(w, F_AGAIN);
    memset(&world_account, 0, sizeof world_account);
    world_run(w);
    w->events += events;
    slack = world_again_slack(w, WORLD_ALL, 0);
    if (slack >= 0 && !w->broken && world_account.digest != first.digest)
        world_fail(w, oracle, 0, "the same world again gives another schedule");
    for (i = 0; i < first.clients && !w->broken; i++) {
        const double got = first.got[i], again = world_account.got[i];
        slack = world_again_slack(w, i, got);
        if (slack >= 0 && (again > got + slack || again < got - slack))
            world_fail(w, oracle, 0, "client %" PRIu32 " got %.0f, and the second time %.0f; allowed are %.0f", i, got,
                       again, slack);
    }
}
#endif

static volatile uint64_t world_current; /* the seed, for a crash */

static sigjmp_buf world_hung; /* the value of a jump: a signal's number; 1: the world itself says that it hangs */
static volatile sig_atomic_t world_runs;

/* A header that crashes is one that is found: the world is over, and the next one begins. */
static void world_crash(int number)
{
    char text[128];
    int n;
    if (world_runs)
        siglongjmp(world_hung, number);
    n = snprintf(text, sizeof text, "\nworld %s: signal %d after the world of seed %llu\n", WORLD_HEADER, number,
                 (unsigned long long)world_current);
    (void)!write(1, text, (size_t)n);
    _exit(1);
}

/* A world may take 6 s of processor time, and as much again for each 100 ms of its own. */
static uint64_t world_gone_on_ns;
static WORLD_UNUSED void world_goes_on(uint64_t now_ns)
{
    static const struct itimerval limit = {{0, 0}, {6, 0}};
    if (now_ns != 0 && now_ns < world_gone_on_ns)
        return;
    world_gone_on_ns = now_ns + 100000000;
    (void)setitimer(ITIMER_PROF, &limit, NULL);
}

static void world_do(struct world *w)
{
    static const struct itimerval none = {{0, 0}, {0, 0}};
    world_current = w->seed;
    w->broken = NULL;
    w->events = 0;
    w->message[0] = 0;
    world_goes_on(0);
    world_runs = 1;
    switch (sigsetjmp(world_hung, 1)) {
#ifdef WORLD_AGAIN
    case 0: world_run_twice(w); break;
#else
    case 0: world_run(w); break;
#endif
    case SIGSEGV: world_fail(w, "crash", 0, "signal SIGSEGV: an address that is not"); break;
    case SIGFPE: world_fail(w, "crash", 0, "signal SIGFPE: a division by zero"); break;
    case SIGILL: world_fail(w, "crash", 0, "signal SIGILL: a trap"); break;
    case SIGABRT: world_fail(w, "crash", 0, "signal SIGABRT: an assertion, or the heap is damaged"); break;
    default: world_fail(w, "hang", 0, "6 s of processor time, and the world does not go on"); break;
    }
    world_runs = 0;
    (void)setitimer(ITIMER_PROF, &none, NULL);
}

/* Smaller values of each field, as long as the same oracle is broken. */
static void world_shrink(struct world *w, uint32_t most)
{
    bool smaller = true;
    uint32_t f, runs = 0;
    while (smaller && runs < most) {
        smaller = false;
        for (f = WORLD_FIELD_COUNT; f-- > 0;) {
            uint8_t v;
            for (v = 0; v < w->choice[f]; v++) {
                struct world t = *w;
                t.choice[f] = v;
                world_do(&t);
                runs++;
                if (t.broken && strcmp(t.broken, w->broken) == 0) {
                    *w = t;
                    smaller = true;
                    break;
                }
            }
        }
    }
}

static void world_report(struct world *w, bool shrink)
{
    printf("BROKEN %s at %.6f ms: %s\n    replay: make world HEADER=%s SEED=%" PRIu64 "\n    world:  ", w->broken,
           (double)w->broken_ns / 1e6, w->message, WORLD_HEADER, w->seed);
    world_print(w, stdout);
    if (shrink) {
        world_shrink(w, 3000);
        printf("    shrunk: ");
        world_print(w, stdout);
        printf("            %s at %.6f ms: %s\n", w->broken, (double)w->broken_ns / 1e6, w->message);
    }
    fflush(stdout);
}

/* ---- the picture ---------------------------------------------------------------------------------------------------------- */

#define WORLD_DRAWN 16u

/* build/world/HEADER-SEED.svg: time on the x axis, what each of the first clients was given so far, and, dashed, what it
 * was promised since the start. */
static void world_picture(const struct world *w)
{
    char name[128], plot[160], line[128];
    uint32_t i;
    FILE *f, *data;
    (void)snprintf(name, sizeof name, "build/world/%s-%" PRIu64, WORLD_HEADER, w->seed);
    (void)snprintf(plot, sizeof plot, "%s.plot", name);
    f = fopen(plot, "w");
    if (!f) {
        printf("no picture: cannot write %s\n", plot);
        return;
    }
    fprintf(f, "set terminal svg size 900,500 dynamic background '#ffffff'\nset output '%s.svg'\n", name);
    fprintf(f,
            "set title '%s, world %" PRIu64
            ": %s'\nset xlabel 'time, ms'\nset ylabel 'given so far'\nset key left top\n",
            WORLD_HEADER, w->seed, w->broken ? w->broken : "all oracles hold");
    if (w->broken)
        fprintf(f, "set arrow from %.6f, graph 0 to %.6f, graph 1 nohead dashtype 3\n", (double)w->broken_ns / 1e6,
                (double)w->broken_ns / 1e6);
    rewind(world_trace_data);
    data = world_trace_data;
    for (i = 0; i < WORLD_DRAWN; i++) {
        double sum = 0;
        fprintf(f, "$c%" PRIu32 " << END\n0 0\n", i);
        rewind(data);
        while (fgets(line, sizeof line, data)) {
            char *rest;
            double at = strtod(line, &rest);
            if (strtoul(rest, &rest, 10) != i)
                continue;
            sum += strtod(rest, NULL);
            fprintf(f, "%.6f %.0f\n", at, sum);
        }
        fprintf(f, "END\n");
    }
    fprintf(f, "plot ");
    for (i = 0; i < WORLD_DRAWN; i++) {
        fprintf(f, "%s$c%" PRIu32 " with steps title 'client %" PRIu32 "'", i ? ", " : "", i, i);
        if (world_promised[i] > 0)
            fprintf(f, ", %.9g * x dashtype 2 notitle", world_promised[i] * 1e6);
    }
    fprintf(f, "\n");
    fclose(f);
    (void)snprintf(plot, sizeof plot, "gnuplot %s.plot 2>/dev/null", name);
    printf(system(plot) == 0 ? "picture: %s.svg\n" : "no picture of %s: gnuplot failed\n", name);
}

/* ---- many worlds ------------------------------------------------------------------------------------------------------------ */

static uint32_t world_met[WORLD_FIELDS_MAX][WORLD_VALUES_MAX];
static uint32_t *world_pairs; /* [field, value][field, value] */

#define WORLD_FIRST ((uint32_t)F_COUNT + (uint32_t)F_COHORT) /* of cohorts the first speaks for all */

/* Counts a world: how many of its pairs of values were not met before. */
static uint32_t world_count(const struct world *w, bool adds)
{
    uint32_t f, g, new_pairs = 0;
    if (!world_pairs)
        world_pairs = (uint32_t *)world_alloc((size_t)WORLD_FIELDS_MAX * WORLD_VALUES_MAX,
                                              WORLD_FIELDS_MAX * WORLD_VALUES_MAX * sizeof *world_pairs);
    for (f = 0; f < WORLD_FIRST; f++) {
        world_met[f][w->choice[f]] += adds;
        for (g = 0; g < f; g++) {
            uint32_t *n =
                &world_pairs[((size_t)f * WORLD_VALUES_MAX + w->choice[f]) * WORLD_FIELDS_MAX * WORLD_VALUES_MAX +
                             (size_t)g * WORLD_VALUES_MAX + w->choice[g]];
            new_pairs += *n == 0;
            *n += adds;
        }
    }
    return new_pairs;
}

/* Fields without a meaning in worlds in which another one has this value. */
#ifndef WORLD_APART
#define WORLD_APART(field, value, other) false
#endif

/* How often each value was met, and how many pairs of values never were. */
static uint64_t world_coverage(bool print)
{
    uint32_t f, g, v, x;
    uint64_t never = 0, pairs = 0, rarest = UINT64_MAX;
    for (f = 0; f < WORLD_FIRST; f++) {
        if (print)
            printf("    %-18s", world_field[f].name);
        for (v = 0; v < world_field[f].values; v++) {
            if (print)
                printf(" %s:%" PRIu32, world_field[f].word[v], world_met[f][v]);
            for (g = 0; world_pairs && g < f; g++)
                for (x = 0; x < world_field[g].values; x++) {
                    uint64_t n;
                    if (WORLD_APART(g, x, f))
                        continue;
                    n = world_pairs[((size_t)f * WORLD_VALUES_MAX + v) * WORLD_FIELDS_MAX * WORLD_VALUES_MAX +
                                    (size_t)g * WORLD_VALUES_MAX + x];
                    pairs++;
                    never += n == 0;
                    rarest = n < rarest ? n : rarest;
                }
        }
        if (print)
            printf("\n");
    }
    printf("pairs of values: %" PRIu64 ", never met %" PRIu64 ", the rarest %" PRIu64 " times\n", pairs, never, rarest);
    return never;
}

#define WORLD_CLASSES_MAX 64u
static struct {
    const char *oracle;
    uint64_t count, seed;
    double at_s;
} world_class[WORLD_CLASSES_MAX];
static uint32_t world_classes, world_kinds;

static double world_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* A kind of failure: the oracle, and the fields that its shrunk world needs. Prints the first world of each, for
 * tests/world/v02/run.sh: one oracle may be broken by several faults. */
static void world_kind(struct world *w, double at_s)
{
    static struct {
        const char *oracle;
        bool needs[WORLD_FIELDS_MAX];
    } kind[256], k;
    uint32_t f, i;
    world_shrink(w, 500);
    memset(&k, 0, sizeof k);
    k.oracle = w->broken;
    for (f = 0; f < WORLD_FIELD_COUNT; f++) /* the same of any cohort */
        k.needs[f < (uint32_t)F_COUNT ? f : (uint32_t)F_COUNT + (f - (uint32_t)F_COUNT) % (uint32_t)F_COHORT] |=
            w->choice[f] != 0;
    for (i = 0; i < world_kinds; i++)
        if (strcmp(kind[i].oracle, k.oracle) == 0 && memcmp(kind[i].needs, k.needs, sizeof k.needs) == 0)
            return;
    if (world_kinds < 256)
        kind[world_kinds++] = k;
    printf("KIND %.1f %s | ", at_s, w->broken);
    world_print(w, stdout);
    fflush(stdout);
}

/* Runs seeds first, first + 1, ... until `count` are done or `seconds` of processor time are over. pairs: and then those of
 * the next million that have a pair of values which was not met. */
static uint64_t world_many(uint64_t first, uint64_t count, double seconds, bool shrink, bool kinds, bool stop,
                           bool pairs)
{
    double begin = world_seconds();
    uint64_t seed, events = 0, broken = 0, n = 0, more = 0;
    uint32_t i;
    for (seed = first;; seed++) {
        struct world w;
        const bool over = n >= count || world_seconds() - begin >= seconds;
        if (over && (!pairs || more++ == 1000000))
            break;
        world_draw(&w, seed);
        if (world_count(&w, !over) == 0 && over)
            continue;
        (void)(over && world_count(&w, true));
        n++;
        world_do(&w);
        events += w.events;
        if (!w.broken)
            continue;
        broken++;
        if (kinds) {
            world_kind(&w, world_seconds() - begin);
            continue;
        }
        for (i = 0; i < world_classes && strcmp(world_class[i].oracle, w.broken) != 0; i++) {
        }
        if (i == world_classes && i < WORLD_CLASSES_MAX) {
            world_class[world_classes].oracle = w.broken;
            world_class[world_classes].seed = seed;
            world_class[world_classes++].at_s = world_seconds() - begin;
            world_report(&w, shrink);
        }
        world_class[i].count++;
        if (stop)
            break;
    }
    printf("%s: %" PRIu64 " worlds, %" PRIu64 " events, %.1f s, %.0f events/s; %" PRIu64 " worlds broken in %" PRIu32
           " ways, %.0f of 10^6 worlds\n",
           WORLD_HEADER, n, events, world_seconds() - begin,
           (double)events / (world_seconds() - begin > 0 ? world_seconds() - begin : 1), broken,
           world_classes + world_kinds, (world_classes + world_kinds) * 1e6 / (double)n);
    for (i = 0; i < world_classes; i++)
        printf("    %-24s %6" PRIu64 " worlds, the first after %.1f s, seed %" PRIu64 "\n", world_class[i].oracle,
               world_class[i].count, world_class[i].at_s, world_class[i].seed);
    return broken;
}

/* A setting at a border of its range, or beside it: the header must refuse it if, and only if, it is outside. */
static WORLD_UNUSED uint64_t world_border(struct world_rng *r, uint64_t least, uint64_t most, bool *inside)
{
    const uint64_t kind = world_between(r, 0, 3), value = kind == 0                         ? least
                                                          : kind == 1 || most == UINT64_MAX ? most
                                                          : kind == 2                       ? most + 1
                                                          : least                           ? least - 1
                                                                  : world_between(r, least, most);
    *inside = value >= least && value <= most;
    return value;
}
/* wrong: gets the setting's name if it is refused or accepted wrongly */
#define WORLD_RANGE(wrong, r, kind, config, field, least, most)                                                        \
    do {                                                                                                               \
        bool inside;                                                                                                   \
        (config).field = (__typeof__((config).field))world_border(r, least, most, &inside);                            \
        if ((kind##_config_error(&(config)) == NULL) != inside)                                                        \
            (wrong) = #kind "_config." #field;                                                                         \
    } while (0)

/* The worlds of a file: each line one world. A line that begins with ! is a fault that is known and open: the oracle
 * after it must still be broken, so that the line goes when the fault is mended. */
static void world_file(const char *file)
{
    char line[2048];
    FILE *f = fopen(file, "r");
    uint32_t number = 0, open = 0;
    CHECK(f != NULL);
    while (f && fgets(line, sizeof line, f)) {
        struct world w;
        char *text = line, *oracle = NULL;
        number++;
        if (*text == '#' || *text == '\n')
            continue;
        if (*text == '!') {
            oracle = ++text;
            text += strcspn(text, " ");
            *text++ = 0;
        }
        CHECK(world_read(&w, text));
        world_do(&w);
        if (oracle && (w.broken ? strcmp(w.broken, oracle) == 0 : use_reference)) {
            open++;
            continue;
        }
        CHECK_CONTEXT("%s:%" PRIu32, file, number);
        if (oracle)
            printf("%s:%" PRIu32 ": %s is %s: change the line\n", file, number, oracle,
                   w.broken ? w.broken : "mended, so the mark ! can go");
        else if (w.broken)
            world_report(&w, true);
        CHECK(!oracle && !w.broken);
        CHECK_CONTEXT("%s", "");
    }
    if (f)
        fclose(f);
    if (open && !use_reference)
        printf("%s: %" PRIu32 " worlds of open faults are still broken, as marked there\n", file, open);
}

/* Fixed seeds: first..last. Those in `open` (pairs of a seed and its oracle, 0 ends) are known to be broken. */
struct world_open {
    uint64_t seed;
    const char *oracle;
};

static WORLD_UNUSED int world_main(int argc, char **argv, const char *file, uint64_t last,
                                   const struct world_open *open)
{
    struct world w;
    uint64_t from = 1, count = UINT64_MAX, seed, events = 0, known = 0;
    double seconds = 0;
    bool shrink = true, pairs = false, one = false, kinds = false, stop = false;
    int i;
    world_fields();
    signal(SIGSEGV, world_crash);
    signal(SIGFPE, world_crash);
    signal(SIGABRT, world_crash);
    signal(SIGILL, world_crash);
    signal(SIGPROF, world_crash);
    check_begin("world/" WORLD_HEADER);
    for (i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            world_draw(&w, strtoull(argv[++i], NULL, 0));
            one = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--world") == 0) {
            if (!world_read(&w, argv[++i]))
                return 2;
            one = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--from") == 0) {
            from = strtoull(argv[++i], NULL, 0);
        } else if (i + 1 < argc && strcmp(argv[i], "--count") == 0) {
            count = strtoull(argv[++i], NULL, 0);
            seconds = seconds > 0 ? seconds : 1e9;
        } else if (i + 1 < argc && strcmp(argv[i], "--for") == 0) {
            seconds = strtod(argv[++i], NULL);
#ifdef WORLD_REFERENCE
        } else if (strcmp(argv[i], "--reference") == 0) {
            use_reference = true;
#endif
        } else if (strcmp(argv[i], "--no-shrink") == 0) {
            shrink = false;
        } else if (strcmp(argv[i], "--kinds") == 0) {
            kinds = true;
        } else if (strcmp(argv[i], "--first") == 0) {
            stop = true;
        } else if (strcmp(argv[i], "--pairs") == 0) {
            pairs = true;
        } else {
            printf("usage: %s                       the fixed worlds (make test)\n"
                   "       --seed N | --world TEXT   one world; TRACE=1 shows its events and draws it\n"
                   "       --for SECONDS | --count N [--from SEED] [--pairs] [--no-shrink] [--kinds] [--first]   seeds "
                   "in a row\n",
                   argv[0]);
            return 2;
        }
    }
    if (one) {
        world_tracing = getenv("TRACE") != NULL;
        if (world_tracing)
            world_trace_data = tmpfile();
        world_print(&w, stdout);
        fflush(stdout);
        world_do(&w);
        if (world_tracing && world_trace_data && system("mkdir -p build/world") == 0)
            world_picture(&w);
        world_tracing = false;
        if (w.broken)
            world_report(&w, shrink);
        else
            printf("all oracles hold, %" PRIu64 " events\n", w.events);
        return w.broken != NULL;
    }
    if (seconds > 0) {
        bool broken = world_many(from, count, seconds, shrink, kinds, stop, pairs) > 0;
        if (world_coverage(pairs) && pairs)
            broken = true;
        return broken;
    }
    if (check_state.scale < 100) /* build/compilers.sh compares what is drawn */
        world_file(file);
    last = last / check_state.scale + 1;
    for (seed = 1; seed <= last; seed++) {
        const struct world_open *o = open;
        world_draw(&w, seed);
        (void)world_count(&w, true);
        world_do(&w);
        events += w.events;
        while (o && o->seed && o->seed != seed)
            o++;
        if (o && o->seed) {
            known++;
            if (!w.broken)
                printf("seed %" PRIu64 " was listed as broken (%s) and holds now: remove it from the list\n", seed,
                       o->oracle);
            continue;
        }
        if (w.broken)
            world_report(&w, true);
        CHECK(!w.broken);
    }
    (void)world_coverage(false);
    printf("%s: %" PRIu64 " worlds, %" PRIu64 " events, %.1f s of processor; %" PRIu64 " seeds listed as broken\n",
           WORLD_HEADER, last, events, world_seconds(), known);
    return check_end();
}

#endif
