// proves: whatever a server, a client or a damaged log claims: no log that lost durable records recovers as good, a server
// proves: that lies holds at most ceil(2k / servers up) writes of a request until the timeout, and a client that lies delays
// proves: each write of a victim by at most a stated time
#include "adversary/adversary.h"
#include "property/twochoice_disk.h"

/* The disk and the table of the logs. */
static struct {
    struct twochoice_table table;
    struct twochoice_table_config config;
    struct twochoice_storage storage;
    struct disk disk;
    struct check_rng rng;
} w;
static unsigned char byte_memory[65536] __attribute__((aligned(64)));

static void must(enum qos_status status)
{
    if (status != QOS_OK)
        CHECK_EQ(status, QOS_OK);
}

/* ---- a damaged log ------------------------------------------------------------------------------------------- */

enum { LOG_RECORDS = 52, LOG_BYTES = 32, SECTOR = 512 };
enum { FLIP, ZERO, CUT, SWAP, COPY, OLDER, MARK_FLIP, DAMAGES };
static const struct adversary_op log_ops[DAMAGES] = {
    {"flip", 0, 4095, 0, 7},   /* flips a bit */
    {"zero", 0, 7, 1, SECTOR}, /* zeroes bytes of a sector */
    {"cut", 0, 4095, 0, 0},    /* cuts off everything after byte a */
    {"swap", 0, 79, 0, 79},    /* exchanges two records */
    {"copy", 0, 79, 0, 79},    /* copies a record over another one */
    {"older", 0, 79, 1, 8},    /* b records, from the a-th on, are those of the log before the compaction */
    {"mark", 0, 1023, 0, 7},   /* flips a bit of the mark */
};

static struct {
    uint8_t log[4096], older[4096], mark[1024];
    size_t len, older_len;
    uint32_t state[2 * LOG_RECORDS][LOG_BYTES]; /* the place of each byte after this many records; + 1 */
    uint32_t records, durable;                  /* records in the log; records that the marks promised */
    uint32_t promised, said[2];                 /* by the compaction; by each mark */
    bool built, compacted;
} v;

static void places(uint32_t *out)
{
    uint32_t at;
    for (at = 0; at < LOG_BYTES; at++) {
        struct twochoice_piece p;
        twochoice_table_find(&w.table, 5, at, &p);
        out[at] = p.target == TWOCHOICE_LOCAL ? 0 : p.target * 1000 + (uint32_t)p.version;
    }
}

/* A log of changes, with commits and marks between them. The first half of the changes may be compacted. */
static void build_log(bool compacted)
{
    uint32_t i, before = 0, head;
    struct twochoice_piece replaced[LOG_BYTES];
    disk_free(&w.disk);
    memset(&w, 0, sizeof w);
    memset(&v, 0, sizeof v);
    check_rng_init(&w.rng, 7);
    disk_init(&w.disk, &w.rng, &w.storage);
    w.config.max_fragments = 64;
    w.config.max_writes = 8;
    w.config.mark_commits = 2;
    w.config.storage = &w.storage;
    must(twochoice_table_init(&w.table, byte_memory, sizeof byte_memory, &w.config));
    must(twochoice_table_format(&w.table));
    for (i = 0; i < LOG_RECORDS; i++) {
        uint64_t stamp = 0, from = check_between(&w.rng, 0, LOG_BYTES - 1);
        size_t n;
        must(twochoice_table_write_begin(&w.table, 5, (uint32_t)check_between(&w.rng, 1, 9), from,
                                         check_between(&w.rng, 1, LOG_BYTES - from), &stamp));
        must(twochoice_table_write_end(&w.table, stamp, replaced, LOG_BYTES, &n));
        head = (uint32_t)(counts_of(&w.table).log_bytes / 48);
        for (; before < head; before++) /* a prefix that ends inside a compaction's copy is never good: see `durable` */
            places(v.state[before + 1]);
        if (i % 3 == 2)
            must(twochoice_table_commit(&w.table));
        if (compacted && i == LOG_RECORDS / 2) {
            must(twochoice_table_commit(&w.table));
            v.older_len = w.disk.log[0].len;
            memcpy(v.older, w.disk.log[0].data, v.older_len);
            must(twochoice_table_compact(&w.table));
            disk_restart(&w.disk); /* only exchanges the logs' bytes: the table goes on in its log 1 */
            before = 0;
            memset(v.state, 0, sizeof v.state);
            v.records = 0;
            must(twochoice_table_init(&w.table, byte_memory, sizeof byte_memory, &w.config));
            must(twochoice_table_recover(&w.table, 0, NULL));
            before = (uint32_t)(counts_of(&w.table).log_bytes / 48);
            places(v.state[before]);
            v.durable = before;
        }
    }
    v.len = w.disk.log[0].len;
    v.records = (uint32_t)(v.len / 48);
    memcpy(v.log, w.disk.log[0].data, v.len);
    memcpy(v.mark, w.disk.log[TWOCHOICE_MARK_LOG].data, sizeof v.mark);
    v.promised = v.durable;
    for (i = 0; i < 2; i++) { /* by the format as the header documents it: the number of durable records */
        v.said[i] = qos_get_le32(v.mark + (size_t)i * SECTOR + 24);
        v.said[i] = v.said[i] <= v.records ? v.said[i] : 0;
        v.durable = v.said[i] > v.durable ? v.said[i] : v.durable;
    }
    v.built = true;
    v.compacted = compacted;
}

static void damage(uint8_t *log, size_t *len, uint8_t *mark, const struct adversary_step *s)
{
    uint8_t record[48];
    size_t a = (size_t)s->a, b = (size_t)s->b, at;
    switch (s->op) {
    case FLIP:
        if (a < *len)
            log[a] ^= (uint8_t)(1u << b);
        break;
    case ZERO:
        for (at = a * SECTOR; at < a * SECTOR + b && at < *len; at++)
            log[at] = 0;
        break;
    case CUT: *len = a < *len ? a : *len; break;
    case SWAP:
        if ((a + 1) * 48 <= *len && (b + 1) * 48 <= *len) {
            memcpy(record, log + a * 48, 48);
            memcpy(log + a * 48, log + b * 48, 48);
            memcpy(log + b * 48, record, 48);
        }
        break;
    case COPY:
        if ((a + 1) * 48 <= *len && (b + 1) * 48 <= *len)
            memcpy(log + b * 48, log + a * 48, 48);
        break;
    case OLDER:
        for (at = a * 48; at < (a + b) * 48 && at < *len && at < v.older_len; at++)
            log[at] = v.older[at];
        break;
    default: mark[a] ^= (uint8_t)(1u << b);
    }
}

static void play_log(const struct adversary_program *p, struct adversary_score *score, bool compacted)
{
    uint8_t log[4096], mark[1024];
    uint32_t now[LOG_BYTES], i, best = 0, durable;
    bool intact = false;
    size_t len;
    if (!v.built || v.compacted != compacted)
        build_log(compacted);
    durable = v.promised;
    memcpy(log, v.log, v.len);
    memcpy(mark, v.mark, sizeof mark);
    len = v.len;
    for (i = 0; i < p->steps && i < 3; i++)
        damage(log, &len, mark, &p->step[i]);
    disk_resize(&w.disk.log[0], 0);
    disk_resize(&w.disk.log[0], len);
    if (len)
        memcpy(w.disk.log[0].data, log, len);
    memcpy(w.disk.log[TWOCHOICE_MARK_LOG].data, mark, sizeof mark);
    must(twochoice_table_init(&w.table, byte_memory, sizeof byte_memory, &w.config));
    score->bound = 1;
    score->harm = 0.5 * (double)len / (double)v.len; /* for the climb: less damage scores higher */
    if (twochoice_table_recover(&w.table, 0, NULL) != QOS_OK)
        return;
    places(now);
    /* A slot that is damaged promises nothing: a crash may leave it so, while the next mark is written. Not both. */
    for (i = 0; i < 2; i++)
        if (memcmp(mark + (size_t)i * SECTOR, v.mark + (size_t)i * SECTOR, 48) == 0) {
            durable = v.said[i] > durable ? v.said[i] : durable;
            intact = true;
        }
    durable = intact ? durable : v.durable;
    for (i = durable; i <= v.records; i++) /* the prefixes that hold all that the marks promised */
        if (memcmp(now, v.state[i], sizeof now) == 0)
            best = i;
    if (best == 0 || !check_tree(&w.table))
        score->harm = 2;
    else
        score->harm = 0.5 + 0.4 * (double)(v.records - best) / (double)(v.records - durable + 1);
}

static void play_plain_log(const struct adversary_program *p, struct adversary_score *score)
{
    play_log(p, score, false);
}

static void play_compacted_log(const struct adversary_program *p, struct adversary_score *score)
{
    play_log(p, score, true);
}

/* ---- a server that lies to a client ---------------------------------------------------------------------------- */

enum { SAYS, ASKS, HONEST_SAYS, HONEST_ASKS, PASSES, LIES };
static const struct adversary_op lie_ops[LIES] = {
    {"says", 0, UINT64_MAX, 0, UINT64_MAX}, /* the liar answers: wait, service */
    {"asks", 0, UINT64_MAX, 0, UINT64_MAX}, /* it asks with these bounds */
    {"busy", 0, 63, 1, 3000},               /* an honest server answers that it waits b us */
    {"honest", 0, 63, 1, 3000},             /* an honest server asks, and takes b us */
    {"passes", 1, 3000, 0, 0},              /* a us pass */
};

/* Server 0 lies and never writes; it holds at most ceil(2k / servers up) writes of a request until the timeout. */
static void play_lies(const struct adversary_program *p, struct adversary_score *score)
{
    static unsigned char memory[65536] __attribute__((aligned(64)));
    static struct twochoice_placement placement;
    struct twochoice_placement_config config;
    struct twochoice_place_order o;
    struct twochoice_message reserved[64], answer, m;
    struct twochoice_write writes[8];
    uint64_t request = 0, now = 0;
    uint32_t n = 0, held = 0, most = 0, at[8], step, i;
    bool honest;
    const uint32_t servers = 2 + p->step[0].op % LIES + p->step[1].op % LIES, k = 1 + (uint32_t)(p->step[2].b % 8);
    memset(&config, 0, sizeof config);
    config.servers = servers;
    config.max_writes = 8;
    config.timeout_ns = UINT64_C(1000000000); /* never in this game */
    config.seed = p->steps;
    must(twochoice_placement_init(&placement, memory, sizeof memory, &config));
    for (i = 0; i < 8; i++) {
        writes[i].home = i % servers;
        writes[i].len_bytes = 1 << 20;
        at[i] = QOS_NONE;
    }
    must(twochoice_placement_begin(&placement, 0, writes, k, 0, &request));
    for (step = 0; step < 60; step++) {
        const struct adversary_step *s = adversary_at(p, step);
        while (twochoice_placement_step(&placement, now, &o), o.todo != TWOCHOICE_PLACE_WAIT) {
            if (o.todo == TWOCHOICE_PLACE_BIND) {
                held -= at[o.write] == 0; /* it was taken back */
                at[o.write] = o.server;
                held += o.server == 0;
                most = held > most ? held : most;
            } else if (o.message.type == TWOCHOICE_RESERVE && n < 64) {
                reserved[n++] = o.message;
            }
        }
        m = reserved[n ? s->a % n : 0];
        honest = s->op == HONEST_SAYS || s->op == HONEST_ASKS;
        for (i = 0; i < n && !honest; i++) /* the liar's last reservation */
            m = reserved[i].server == 0 ? reserved[i] : m;
        if (s->op == PASSES || n == 0 || (m.server == 0) == honest) {
            now += s->op == PASSES ? s->a * 1000 : 1;
            continue;
        }
        m.type = s->op == SAYS || s->op == HONEST_SAYS ? TWOCHOICE_ANSWER : TWOCHOICE_ASK;
        m.wait_ns = s->op == HONEST_SAYS ? s->b * 1000 : honest ? 0 : s->a;
        m.service_ns = honest ? s->b * 1000 : s->b;
        (void)twochoice_placement_heard(&placement, now, &m, &answer);
    }
    score->harm = most;
    score->bound = (2 * k + servers - 1) / servers;
}

/* ---- a client that lies to a server ----------------------------------------------------------------------------- */

enum { RESERVES, RELEASES, WAITS, TELLS };
static const struct adversary_op tell_ops[TELLS] = {
    {"reserves", 0, 90, 0, UINT64_MAX}, /* request, bytes */
    {"releases", 0, 90, 0, 0},          /* request */
    {"waits", 1, 200, 0, 0},            /* a times 50 us */
};

#define TICK UINT64_C(50000)
#define LEAD UINT64_C(100000)
#define SERVICE UINT64_C(1000000)

static void tell(struct twochoice_intake *intake, uint64_t now, uint64_t client, uint64_t request, uint64_t len,
                 bool reserve)
{
    struct twochoice_message m, answer;
    memset(&m, 0, sizeof m);
    m.type = reserve ? TWOCHOICE_RESERVE : TWOCHOICE_RELEASE;
    m.count = reserve;
    m.client = client;
    m.request = request;
    m.len_bytes = len;
    (void)twochoice_intake_heard(intake, now, &m, &answer);
}

/* The victim, 1, keeps writes of 1 ms reserved, and each comes a lead after its ask. The liar, 2, never writes. The
   victim's writes come one service apart. An ask of the liar's goes out three leads before the device is free, and holds
   its place for four: so behind each write the device is idle for one lead, and for another until the victim's own
   comes; a lead for the ticks of this game. The server asks when something happens, and when it said that it would. At
   first, when no rate is known, an ask of the liar's holds up all for 50 ms. */
static void play_tells(const struct adversary_program *p, struct adversary_score *score)
{
    static unsigned char memory[65536] __attribute__((aligned(64)));
    static struct twochoice_intake intake;
    struct twochoice_intake_config config;
    struct twochoice_message ask;
    uint64_t now, comes[64], request[64], served = 0, ends = 0, number = 1000, last = 0, next = 0;
    uint32_t coming = 0, queued = 0, step = 0, waits = 0, i;
    bool busy = false;
    memset(&config, 0, sizeof config);
    config.max_reservations = 100;
    must(twochoice_intake_init(&intake, memory, sizeof memory, &config));
    for (i = 0; i < 4; i++)
        tell(&intake, 0, 1, number++, 1 << 20, true);
    for (now = 0; now < 150000000; now += TICK) {
        for (i = 0; i < 32 && waits == 0; i++, step++) {
            const struct adversary_step *s = adversary_at(p, step);
            if (s->op == WAITS)
                waits = (uint32_t)s->a;
            else
                tell(&intake, now, 2, s->a, s->b, s->op == RESERVES);
            next = 0; /* something happened */
        }
        waits -= waits > 0;
        if (busy && ends <= now) {
            twochoice_intake_end(&intake, now, 1 << 20);
            busy = false;
            served += now > 60000000;
            last = now;
            next = 0;
        }
        for (i = 0; i < coming;) {
            if (comes[i] > now) {
                i++;
                continue;
            }
            twochoice_intake_arrived(&intake, now, 1, request[i], 0, 1 << 20);
            next = 0;
            queued++;
            comes[i] = comes[--coming];
            request[i] = request[coming];
        }
        if (queued > 0 && !busy) {
            queued--;
            busy = true;
            ends = now + SERVICE;
        }
        while (next <= now && twochoice_intake_ask(&intake, now, &ask))
            if (ask.client == 1 && coming < 64) {
                comes[coming] = now + LEAD;
                request[coming++] = ask.request;
                tell(&intake, now, 1, number++, 1 << 20, true);
            }
        next = next <= now ? twochoice_intake_next_ns(&intake, now) : next;
    }
    score->harm = served ? (double)(last - 60000000) / (double)served : 1e9;
    score->bound = (double)(SERVICE + 3 * LEAD);
}

int main(void)
{
    static const struct adversary_game games[] = {
        {"log", log_ops, DAMAGES, play_plain_log, "good without what was durable", 10000},
        {"compacted_log", log_ops, DAMAGES, play_compacted_log, "good without what was durable", 10000},
        {"lies", lie_ops, LIES, play_lies, "writes that a liar holds", 20000},
        {"tells", tell_ops, TELLS, play_tells, "ns for each write of the victim", 1500},
    };
    unsigned i;
    adversary_begin("adversary/twochoice");
    for (i = 0; i < sizeof games / sizeof *games; i++)
        adversary_search(&games[i]);
    disk_free(&w.disk);
    return adversary_end();
}
