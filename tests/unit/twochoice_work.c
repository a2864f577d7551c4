// proves: what the first page says a call costs, counted in basic blocks that are run, not in time. A write, a query and
// proves: refers() cost O(log n), however many fragments there are, and writes are open at home or away, in order or not;
// proves: a message of a client O(1), however many reservations it has, or others have. 100 times as many may cost 3
// proves: times as much. A message to a client O(k), also if many asks of many writes were declined.
// flags: -O1 -fsanitize-coverage=trace-pc -DCOUNTS_BLOCKS
// variants: native
// coverage: no
#include "blocks.h"
#include "check.h"
#include "twochoice.h"
#include "twochoice_calls.h"

static struct twochoice_table t;
static struct check_rng rng;

/* What one kind of call costs with few of the others (0) and with many (1). */
struct work {
    uint64_t blocks[2], calls[2];
};

static void add(struct work *w, int many, uint64_t before)
{
    w->blocks[many] += blocks - before;
    w->calls[many]++;
}

static void judge(const char *what, const struct work *w)
{
    const double few = (double)w->blocks[0] / (double)w->calls[0], many = (double)w->blocks[1] / (double)w->calls[1];
    printf("%-40s %7.1f blocks a call, %7.1f with 100 times as many\n", what, few, many);
    CHECK_CONTEXT("%s", what);
    CHECK_WITHIN(many / few, 0, 3);
}

static void open_table(struct check_mem *m, uint32_t max_fragments, uint32_t open)
{
    struct twochoice_table_config config;
    memset(&config, 0, sizeof config);
    config.max_fragments = max_fragments;
    config.max_writes = config.max_pulls = open;
    config.home = 1;
    check_mem_new(m, twochoice_table_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_table_init(&t, m->mem, m->size, &config), QOS_OK);
}

/* Of all the pulls that may be open one is, and writes at home. */
static void open_pull(void)
{
    struct twochoice_piece p;
    uint64_t stamp = 0;
    uint32_t pull = 0;
    size_t n;
    CHECK_EQ(twochoice_table_write_begin(&t, 2, 2, 0, 4096, &stamp), QOS_OK);
    CHECK_EQ(twochoice_table_write_end(&t, stamp, &p, 1, &n), QOS_OK);
    CHECK_EQ(twochoice_table_pull_start(&t, 2, 0, 4096, &pull, &p), QOS_OK);
    CHECK_EQ(twochoice_table_pull_ready(&t, pull, &p, 1, &n), QOS_OK);
}

/* Writes that are open: all are begun, then each is ended, or cancelled, and another one is begun. */
static void open_writes(bool home, bool in_order)
{
    static uint64_t stamp[20000], place[20000];
    struct work begins = {{0, 0}, {0, 0}}, ends = {{0, 0}, {0, 0}}, cancels = {{0, 0}, {0, 0}};
    char what[64];
    int many;
    for (many = 0; many < 2; many++) {
        const uint32_t n = many ? 20000 : 200;
        struct twochoice_piece p;
        struct check_mem m;
        uint64_t before, next = 0;
        uint32_t i, k, refers = 0;
        size_t pieces;
        open_table(&m, 300000, n);
        open_pull();
        for (i = 0; i < n + 3000; i++) {
            k = in_order ? i % n : i < n ? i : (uint32_t)check_between(&rng, 0, n - 1);
            if (i >= n) {
                before = blocks;
                refers += twochoice_table_refers(&t, 1, stamp[k], place[k], 4096);
                if (i % 2) {
                    CHECK_EQ(twochoice_table_write_end(&t, stamp[k], &p, 1, &pieces), QOS_OK);
                    add(&ends, many, before);
                } else {
                    CHECK_EQ(twochoice_table_write_cancel(&t, stamp[k]), QOS_OK);
                    add(&cancels, many, before);
                }
            }
            place[k] = 4096 * (in_order ? next++ : check_between(&rng, 0, UINT64_C(1) << 40));
            before = blocks;
            CHECK_EQ(twochoice_table_write_begin(&t, 1, home ? TWOCHOICE_LOCAL : 2, place[k], 4096, &stamp[k]), QOS_OK);
            if (i >= n)
                add(&begins, many, before);
        }
        CHECK_EQ(refers, 3000);
        CHECK(check_mem_free(&m));
    }
    (void)snprintf(what, sizeof what, "begin %s, %s", home ? "at home" : "away", in_order ? "in order" : "anywhere");
    judge(what, &begins);
    (void)snprintf(what, sizeof what, "end %s, %s", home ? "at home" : "away", in_order ? "in order" : "anywhere");
    judge(what, &ends);
    (void)snprintf(what, sizeof what, "cancel %s, %s", home ? "at home" : "away", in_order ? "in order" : "anywhere");
    judge(what, &cancels);
}

/* Fragments that are there. */
static void fragments(bool in_order)
{
    struct work writes = {{0, 0}, {0, 0}}, finds = {{0, 0}, {0, 0}}, references = {{0, 0}, {0, 0}};
    char what[64];
    int many;
    for (many = 0; many < 2; many++) {
        const uint32_t n = many ? 200000 : 2000;
        struct twochoice_piece p;
        struct check_mem m;
        uint64_t before;
        uint32_t i;
        open_table(&m, n + 2000, 8);
        for (i = 0; i < n + 1000; i++) {
            const uint64_t at = 16384 * (in_order ? i : check_between(&rng, 0, UINT64_C(1) << 40));
            before = blocks;
            CHECK_EQ(redirect(&t, 7, at, 4096, 2), QOS_OK);
            if (i >= n)
                add(&writes, many, before);
        }
        for (i = 0; i < 1000; i++) {
            const uint64_t at =
                in_order ? 16384 * check_between(&rng, 0, n) : check_between(&rng, 0, UINT64_C(15) << 50);
            before = blocks;
            twochoice_table_find(&t, 7, at, &p);
            CHECK_EQ(twochoice_table_query(&t, 7, at, 1, &p, 1), 1);
            CHECK_EQ(twochoice_table_next(&t, 7, at, &p), true);
            add(&finds, many, before);
            before = blocks;
            CHECK(twochoice_table_refers(&t, 7, p.version, p.offset, p.end - p.offset));
            add(&references, many, before);
        }
        CHECK(check_mem_free(&m));
    }
    (void)snprintf(what, sizeof what, "a write, %s", in_order ? "in order" : "anywhere");
    judge(what, &writes);
    (void)snprintf(what, sizeof what, "find, query, next; %s", in_order ? "in order" : "anywhere");
    judge(what, &finds);
    (void)snprintf(what, sizeof what, "refers, %s", in_order ? "in order" : "anywhere");
    judge(what, &references);
}

/* Reservations at a server, of as many clients or of one. open: all have been asked for and have not come; they come, or
 * are released, in any order. */
static void reservations(bool one, bool open)
{
    static struct twochoice_message asked_for[6010];
    struct work heard = {{0, 0}, {0, 0}}, asked = {{0, 0}, {0, 0}}, released = {{0, 0}, {0, 0}};
    const char *whose = one ? "of one client" : "of as many";
    char what[64];
    int many;
    for (many = 0; many < 2; many++) {
        const uint32_t n = many ? 6000 : 60;
        static struct twochoice_intake intake;
        struct twochoice_intake_config config;
        struct twochoice_message r, answer;
        struct check_mem m;
        uint64_t before, now = 0;
        uint32_t i, k, waits = 0;
        memset(&config, 0, sizeof config);
        config.max_reservations = config.max_per_client = n + 10;
        config.parallel = open ? n + 10 : 1;
        check_mem_new(&m, twochoice_intake_memsize(&config), 64, 0);
        CHECK_EQ(twochoice_intake_init(&intake, m.mem, m.size, &config), QOS_OK);
        memset(&r, 0, sizeof r);
        r.len_bytes = 1 << 20;
        for (i = 0; i < n + 3000; i++) {
            r.type = TWOCHOICE_RESERVE;
            r.count = 1;
            r.request = r.turn = i;
            r.client = one ? 7 : i % (n + 5);
            before = blocks;
            CHECK(twochoice_intake_heard(&intake, now, &r, &answer));
            CHECK_EQ(answer.state, TWOCHOICE_UP);
            if (i >= n)
                add(&heard, many, before);
            else if (!open)
                continue;
            now += open ? 0 : 1000000;
            before = blocks;
            CHECK(twochoice_intake_ask(&intake, now, &asked_for[waits++]));
            if (i < n)
                continue;
            k = (uint32_t)check_between(&rng, 0, waits - 1);
            r = asked_for[k];
            asked_for[k] = asked_for[--waits];
            if (i % 4) {
                twochoice_intake_arrived(&intake, now, r.client, r.request, r.turn, 1 << 20);
                now += open ? 0 : 100000;
                twochoice_intake_end(&intake, now, 1 << 20);
                add(&asked, many, before);
            } else {
                r.type = TWOCHOICE_RELEASE;
                CHECK(!twochoice_intake_heard(&intake, now, &r, &answer));
                add(&released, many, before);
            }
        }
        CHECK(check_mem_free(&m));
    }
    (void)snprintf(what, sizeof what, "RESERVE, %s%s", whose, open ? ", open" : "");
    judge(what, &heard);
    (void)snprintf(what, sizeof what, "ask, arrive, end; %s%s", whose, open ? ", open" : "");
    judge(what, &asked);
    (void)snprintf(what, sizeof what, "ask, RELEASE; %s%s", whose, open ? ", open" : "");
    judge(what, &released);
}

/* A request of k writes: k servers are slow and ask, and are declined, as k others will be faster. Then these ask, and
 * the writes go there one by one. The cost of a message and of what it leads to, for each of the k writes. */
static void messages(void)
{
    static struct twochoice_write w[TWOCHOICE_WRITES_MAX];
    static struct twochoice_message reserve[2 * TWOCHOICE_WRITES_MAX];
    struct work declines = {{0, 0}, {0, 0}}, binds = {{0, 0}, {0, 0}};
    int many;
    for (many = 0; many < 2; many++) {
        const uint32_t k = many ? 500 : 5;
        static struct twochoice_placement placement;
        struct twochoice_placement_config config;
        struct twochoice_place_order o;
        struct twochoice_message answer, m;
        struct check_mem mem;
        uint64_t before, request, now = 1000;
        uint32_t i, asked = 0, bound = 0, declined = 0;
        memset(&config, 0, sizeof config);
        config.servers = 4 * k;
        config.max_writes = k;
        check_mem_new(&mem, twochoice_placement_memsize(&config), 64, 0);
        CHECK_EQ(twochoice_placement_init(&placement, mem.mem, mem.size, &config), QOS_OK);
        for (i = 0; i < k; i++) {
            w[i].home = i;
            w[i].len_bytes = 1 << 20;
        }
        CHECK_EQ(twochoice_placement_begin(&placement, now, w, k, 0, &request), QOS_OK);
        while (twochoice_placement_step(&placement, now, &o), o.todo == TWOCHOICE_PLACE_SEND)
            reserve[asked++] = o.message;
        CHECK_EQ(asked, 2 * k);
        for (i = 0; i < 5 * k; i++) { /* the fast ones answer, the slow ones ask, time passes, the fast ones ask */
            m = reserve[i < 2 * k ? i : i < 4 * k ? 2 * k - 1 : i - 4 * k];
            m.type = i < k ? TWOCHOICE_ANSWER : TWOCHOICE_ASK;
            m.wait_ns = i < k ? 1000000 : 0;
            m.service_ns = i < k || i >= 4 * k ? 100000 : 50000000;
            now += i < 4 * k ? 10 : 0;
            before = blocks;
            if (i < 2 * k || i >= 4 * k)
                CHECK(!twochoice_placement_heard(&placement, now, &m, &answer));
            for (;;) {
                twochoice_placement_step(&placement, now, &o);
                if (o.todo == TWOCHOICE_PLACE_WAIT)
                    break;
                bound += o.todo == TWOCHOICE_PLACE_BIND;
                declined += o.message.type == TWOCHOICE_RELEASE && bound < k;
            }
            if (i >= k)
                add(i < 2 * k ? &declines : &binds, many, before);
        }
        CHECK_EQ(bound, k);
        CHECK_EQ(declined, k);
        CHECK(check_mem_free(&mem));
    }
    declines.calls[1] *= 100; /* of 100 times as many writes */
    binds.calls[1] *= 100;
    judge("an ASK that is declined; many: / 100", &declines);
    judge("an ASK that gets a write; many: / 100", &binds);
}

int main(void)
{
    int i;
    check_begin("unit/twochoice_work");
    check_rng_init(&rng, check_seed());
    for (i = 0; i < 4; i++)
        open_writes(i / 2, i % 2);
    for (i = 0; i < 2; i++)
        fragments(i);
    for (i = 0; i < 4; i++)
        reservations(i / 2, i % 2);
    messages();
    return check_end();
}
