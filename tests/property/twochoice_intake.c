// proves: a server asks whom its reservations say, in turn over the clients, one write each, and first come first served
// proves: for each client; an ask without an answer frees its place, a full table refuses, and a model in plain arrays has
// proves: the same reservations after every call. In a world of constant rates: the device is never idle for long while
// proves: writes are reserved, few writes wait at it, and its bounds are right. Messages survive the wire.
// whole: san i386 s390x
#include "check.h"
#include "twochoice.h"

#define MOST 40      /* reservations */
#define EACH 12      /* of one client */
#define CLIENTS 9u   /* 0..8 */
#define PATIENCE 900 /* ns */

static struct check_rng rng;
static struct twochoice_intake intake;
static uint64_t now;

/* ---- the model: reservations in the order of their RESERVEs, clients in the order of their turn ---------------- */

struct entry {
    uint64_t client, request, turn, len;
    uint32_t left, asked;
    uint64_t asked_at;
};
static struct entry list[MOST];
static size_t listed;
static uint64_t turn[CLIENTS];
static size_t turns;
static uint64_t lost;

static uint32_t left_of(uint64_t client)
{
    uint32_t n = 0;
    size_t i;
    for (i = 0; i < listed; i++)
        n += list[i].client == client ? list[i].left : 0;
    return n;
}

static void out_of_turn(uint64_t client)
{
    size_t i, j;
    for (i = j = 0; i < turns; i++)
        if (turn[i] != client)
            turn[j++] = turn[i];
    turns = j;
}

static bool in_turn(uint64_t client)
{
    size_t i;
    for (i = 0; i < turns; i++)
        if (turn[i] == client)
            return true;
    return false;
}

static size_t find(uint64_t client, uint64_t request, uint64_t number)
{
    size_t i;
    for (i = 0; i < listed; i++)
        if (list[i].client == client && list[i].request == request && list[i].turn == number)
            return i;
    return MOST;
}

static void drop(size_t i)
{
    const uint64_t client = list[i].client;
    memmove(&list[i], &list[i + 1], (--listed - i) * sizeof *list);
    if (left_of(client) == 0)
        out_of_turn(client);
}

static size_t entries_of(uint64_t client)
{
    size_t i, n = 0;
    for (i = 0; i < listed; i++)
        n += list[i].client == client;
    return n;
}

/* What is overdue is given up, the oldest ask first; an ask that is younger than one that is kept stays, too. */
static void give_up(void)
{
    for (;;) {
        size_t i, oldest = MOST;
        for (i = 0; i < listed; i++)
            if (list[i].asked && (oldest == MOST || list[i].asked_at < list[oldest].asked_at))
                oldest = i;
        if (oldest == MOST || list[oldest].asked_at + PATIENCE > now)
            return;
        lost += list[oldest].asked;
        drop(oldest);
    }
}

/* ---- any calls ------------------------------------------------------------------------------------------------ */

static void same(void)
{
    struct twochoice_intake_state state;
    uint32_t asked = 0;
    size_t i;
    for (i = 0; i < listed; i++)
        asked += list[i].asked;
    CHECK_EQ(twochoice_intake_info(&intake, &state), QOS_OK);
    CHECK_EQ(state.reservations, listed);
    CHECK_EQ(state.asked, asked);
    CHECK_EQ(state.lost, lost);
}

static void ask_all(uint64_t ops)
{
    struct twochoice_message ask;
    uint32_t asked = 0;
    size_t i;
    give_up();
    for (i = 0; i < listed; i++)
        asked += list[i].asked;
    for (;;) {
        const bool must = ops + asked == 0 && turns > 0; /* an idle device asks */
        if (!twochoice_intake_ask(&intake, now, &ask)) {
            CHECK(!must);
            break;
        }
        CHECK(turns > 0);
        CHECK_EQ(ask.type, TWOCHOICE_ASK);
        CHECK_EQ(ask.client, turn[0]);
        for (i = 0; i < listed && (list[i].client != turn[0] || list[i].left == 0); i++)
            continue;
        CHECK_EQ(ask.request, list[i].request); /* the client's first that is left */
        CHECK_EQ(ask.turn, list[i].turn);
        CHECK_EQ(ask.len_bytes, list[i].len);
        list[i].left--;
        list[i].asked++;
        list[i].asked_at = now;
        asked++;
        out_of_turn(ask.client);
        if (left_of(ask.client))
            turn[turns++] = ask.client;
    }
    same();
}

static void heard(struct twochoice_message *m)
{
    struct twochoice_message answer;
    const size_t i = find(m->client, m->request, m->turn);
    const bool answered = twochoice_intake_heard(&intake, now, m, &answer);
    CHECK_EQ(answered, m->type == TWOCHOICE_RESERVE);
    if (m->type == TWOCHOICE_RELEASE && i != MOST)
        drop(i);
    if (m->type != TWOCHOICE_RESERVE)
        return;
    CHECK_EQ(answer.type, TWOCHOICE_ANSWER);
    CHECK(answer.client == m->client && answer.request == m->request && answer.turn == m->turn);
    CHECK_EQ(answer.server, 77);
    if (i != MOST) { /* repeated */
        CHECK_EQ(answer.state, TWOCHOICE_UP);
    } else if (listed == MOST || entries_of(m->client) >= EACH || m->count == 0) {
        CHECK_EQ(answer.state, TWOCHOICE_FULL);
    } else {
        const struct entry e = {m->client, m->request, m->turn, m->len_bytes, m->count, 0, 0};
        CHECK_EQ(answer.state, TWOCHOICE_UP);
        list[listed++] = e;
        if (!in_turn(m->client))
            turn[turns++] = m->client;
    }
}

/* Asks are answered after half the timeout or more, so that all are given up after exactly the timeout. */
static void any_calls(uint64_t steps)
{
    struct twochoice_intake_config config;
    struct check_mem mem;
    uint64_t step, ops = 0;
    memset(&config, 0, sizeof config);
    config.server = 77;
    config.max_reservations = MOST;
    config.max_per_client = EACH;
    config.timeout_ns = PATIENCE;
    check_mem_new(&mem, twochoice_intake_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_intake_init(&intake, mem.mem, mem.size, &config), QOS_OK);
    listed = turns = 0;
    now = lost = 0;
    for (step = 0; step < steps; step++) {
        const uint64_t what = check_between(&rng, 0, 99);
        struct twochoice_message m;
        size_t i;
        CHECK_CONTEXT("step %u", (unsigned)step);
        memset(&m, 0, sizeof m);
        now += check_between(&rng, 0, 3) ? 0 : check_between(&rng, 0, 200);
        m.client = check_between(&rng, 0, check_between(&rng, 0, 1) ? 1 : CLIENTS - 1);
        m.request = check_between(&rng, 1, 6);
        m.turn = check_between(&rng, 1, 3);
        m.len_bytes = check_between(&rng, 0, 20) ? check_between(&rng, 1, 1 << 20) : UINT64_MAX;
        m.count = (uint32_t)(check_between(&rng, 0, 3) ? 1 : check_between(&rng, 0, 4));
        give_up();
        if (what < 45) {
            m.type = TWOCHOICE_RESERVE;
            ask_all(ops); /* the server gives up only when it asks */
            heard(&m);
        } else if (what < 60) {
            m.type = check_between(&rng, 0, 4) ? TWOCHOICE_RELEASE : (uint32_t)check_between(&rng, 2, 3);
            ask_all(ops);
            heard(&m);
        } else if (what < 85) { /* a write comes, asked for or not */
            ask_all(ops);
            i = listed ? (size_t)check_between(&rng, 0, listed - 1) : 0;
            if (listed && list[i].asked && now - list[i].asked_at >= PATIENCE / 2) {
                twochoice_intake_arrived(&intake, now, list[i].client, list[i].request, list[i].turn, 1000);
                if (--list[i].asked + list[i].left == 0)
                    drop(i);
                ops++;
            } else if (check_between(&rng, 0, 9) == 0) {
                twochoice_intake_arrived(&intake, now, 99, m.request, m.turn, 1000);
                ops++;
            }
        } else if (ops) {
            twochoice_intake_end(&intake, now, 1000);
            ops--;
        }
        ask_all(ops);
        if (ops == 0 && listed == 0)
            CHECK_EQ(twochoice_intake_next_ns(&intake, now), QOS_NEVER);
        else
            CHECK_GE(twochoice_intake_next_ns(&intake, now), now);
    }
    CHECK(check_mem_free(&mem));
}

/* ---- constant rates: S for a write, L from an ask to its write ------------------------------------------------- */

#define SLOTS 256
struct coming {
    uint64_t at, request;
    uint32_t client;
};

static uint64_t reserve(uint64_t client)
{
    static uint64_t requests;
    struct twochoice_message m, answer;
    memset(&m, 0, sizeof m);
    m.type = TWOCHOICE_RESERVE;
    m.count = 1;
    m.len_bytes = 1 << 20;
    m.client = client;
    m.request = ++requests;
    CHECK(twochoice_intake_heard(&intake, now, &m, &answer));
    CHECK_EQ(answer.state, TWOCHOICE_UP);
    return answer.wait_ns;
}

/* Twenty clients keep four writes reserved each, and one keeps 60. Each silent_every-th ask is never answered. */
static void constant(uint64_t s_ns, uint64_t l_ns, uint32_t parallel, uint64_t silent_every)
{
    struct twochoice_intake_config config;
    struct twochoice_message ask;
    struct check_mem mem;
    struct coming coming[SLOTS];
    uint64_t ends[8], busy_ns = 0, from = 0, asks = 0, comes = 0, k;
    uint32_t n = 0, queued = 0, working = 0, most = 0, served[21] = {0}, total = 0, i, c;
    memset(&config, 0, sizeof config);
    config.parallel = parallel;
    check_mem_new(&mem, twochoice_intake_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_intake_init(&intake, mem.mem, mem.size, &config), QOS_OK);
    CHECK_CONTEXT("a write takes %u ns, an ask %u ns, %u at once, 1 ask in %u silent", (unsigned)s_ns, (unsigned)l_ns,
                  parallel, (unsigned)silent_every);
    now = 1;
    for (k = 0; k < 140; k++)
        (void)reserve(k < 80 ? k % 20 : 20);
    for (; total < 2100; comes++) {
        uint64_t next;
        while (twochoice_intake_ask(&intake, now, &ask)) {
            (void)reserve(ask.client);
            if (silent_every && ++asks % silent_every == 0)
                continue;
            CHECK(n < SLOTS);
            coming[n].at = now + l_ns;
            coming[n].request = ask.request;
            coming[n++].client = (uint32_t)ask.client;
        }
        next = twochoice_intake_next_ns(&intake, now);
        CHECK_GE(next, now);
        next = next > now ? next : UINT64_MAX; /* it was asked just now */
        for (i = 0; i < n; i++)
            next = coming[i].at < next ? coming[i].at : next;
        for (i = 0; i < working; i++)
            next = ends[i] < next ? ends[i] : next;
        CHECK(next != UINT64_MAX && next >= now);
        busy_ns += from ? (next - now) * working : 0;
        now = next;
        for (i = 0; i < working;)
            if (ends[i] <= now) {
                twochoice_intake_end(&intake, now, 1 << 20);
                ends[i] = ends[--working];
                if (++total == 100)
                    from = now;
            } else {
                i++;
            }
        for (i = 0; i < n;)
            if (coming[i].at <= now) {
                c = coming[i].client;
                twochoice_intake_arrived(&intake, now, c, coming[i].request, 0, 1 << 20);
                served[c] += from != 0;
                queued++;
                coming[i] = coming[--n];
            } else {
                i++;
            }
        for (; queued && working < parallel; queued--)
            ends[working++] = now + s_ns;
        most = from && queued > most ? queued : most;
    }
    printf("a write %u ns, an ask %u, %u at once, silent 1 in %u: busy %.3f, at most %u wait; large %u, small %u\n",
           (unsigned)s_ns, (unsigned)l_ns, parallel, (unsigned)silent_every,
           (double)busy_ns / (double)(now - from) / parallel, most, served[20], served[0]);
    CHECK_LE(comes, 8 * total); /* it comes when there is something to do */
    /* Each silent ask costs four leads at most; otherwise the device is busy. */
    if (silent_every == 0) {
        CHECK_WITHIN((double)busy_ns / (double)(now - from) / parallel, 0.95, 1.0001);
        CHECK_LE(most, (3 * l_ns / s_ns + 4) * parallel); /* three leads, what is at work, and what the rate lags */
        for (c = 0; c < 20; c++)                          /* the large client waits like a small one */
            CHECK_WITHIN((double)served[20] / (double)served[c], 0.95, 1.05);
    } else {
        const double worst = (double)s_ns / ((double)s_ns + 5 * (double)l_ns * parallel / ((double)silent_every - 1));
        CHECK_WITHIN((double)busy_ns / (double)(now - from) / parallel, worst, 1.0001);
    }
    CHECK(check_mem_free(&mem));
}

/* One client always writes, beside one that reserves and never does: for each ask of that one the device, which could work
 * on `parallel` operations, is idle for 4 leads at most, and for the lead of the next write. */
static void never_writes(uint64_t s_ns, uint64_t l_ns, uint32_t parallel)
{
    struct twochoice_intake_config config;
    struct twochoice_message ask;
    struct check_mem mem;
    uint64_t at[SLOTS], request[SLOTS], ends[8], idle_ns = 0, silent = 0, total = 0;
    uint32_t n = 0, queued = 0, working = 0, i;
    memset(&config, 0, sizeof config);
    config.parallel = parallel;
    check_mem_new(&mem, twochoice_intake_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_intake_init(&intake, mem.mem, mem.size, &config), QOS_OK);
    CHECK_CONTEXT("one never writes: a write %u ns, an ask %u ns, %u at once", (unsigned)s_ns, (unsigned)l_ns,
                  parallel);
    now = 1;
    for (i = 0; i < 64; i++)
        (void)reserve(i % 2);
    while (total < 2000) {
        struct twochoice_intake_state state;
        uint64_t next, told;
        while (twochoice_intake_ask(&intake, now, &ask)) {
            CHECK(n < SLOTS);
            at[n] = now + l_ns;
            request[n] = ask.request;
            n += ask.client == 0;
            silent += ask.client == 1;
            if (ask.client == 0)
                (void)reserve(0);
        }
        CHECK_EQ(twochoice_intake_info(&intake, &state), QOS_OK);
        for (i = state.reservations; i < 64; i++) /* as many as were given up */
            (void)reserve(1);
        told = twochoice_intake_next_ns(&intake, now);
        next = told > now ? told : UINT64_MAX;
        for (i = 0; i < n; i++)
            next = at[i] < next ? at[i] : next;
        for (i = 0; i < working; i++)
            next = ends[i] < next ? ends[i] : next;
        CHECK(next != UINT64_MAX && next >= now);
        idle_ns += total ? (next - now) * (parallel - working) / parallel : 0;
        now = next;
        for (i = 0; i < working;)
            if (ends[i] <= now) {
                twochoice_intake_end(&intake, now, 1 << 20);
                ends[i] = ends[--working];
                total++;
            } else {
                i++;
            }
        for (i = 0; i < n;)
            if (at[i] <= now) {
                twochoice_intake_arrived(&intake, now, 0, request[i], 0, 1 << 20);
                queued++;
                at[i] = at[--n];
                request[i] = request[n];
            } else {
                i++;
            }
        for (; queued && working < parallel; queued--)
            ends[working++] = now + s_ns;
    }
    CHECK(silent > 0);
    printf("one never writes: a write %u ns, an ask %u, %u at once: %.2f leads idle for each of its %u asks\n",
           (unsigned)s_ns, (unsigned)l_ns, parallel, (double)idle_ns / (double)silent / (double)l_ns, (unsigned)silent);
    CHECK_WITHIN((double)idle_ns / (double)silent / (double)l_ns, 0.0, 5.1);
    CHECK(check_mem_free(&mem));
}

/* Operations of 1 ms, one after the other: the rate is learned. Then three are in flight. */
static void learn(void)
{
    uint32_t i;
    for (i = 0; i < 40; i++) {
        twochoice_intake_begin(&intake, now, 1 << 20);
        now += 1000000;
        twochoice_intake_end(&intake, now, 1 << 20);
    }
    for (i = 0; i < 3; i++)
        twochoice_intake_begin(&intake, now, 1 << 20);
}

/* What a reservation is told, with a learned rate: 3 of 1 ms are in flight, `others` clients have 2 writes reserved. */
static void bounds(uint32_t others)
{
    struct twochoice_intake_config config;
    struct twochoice_message m, answer;
    struct check_mem mem;
    uint32_t i;
    memset(&config, 0, sizeof config);
    check_mem_new(&mem, twochoice_intake_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_intake_init(&intake, mem.mem, mem.size, &config), QOS_OK);
    CHECK_CONTEXT("%u others", others);
    now = 1000;
    memset(&m, 0, sizeof m);
    m.type = TWOCHOICE_RESERVE;
    m.count = 1;
    m.len_bytes = 1 << 20;
    m.client = 1000;
    CHECK(twochoice_intake_heard(&intake, now, &m, &answer));
    CHECK_EQ(answer.service_ns, 0); /* not known */
    m.type = TWOCHOICE_RELEASE;
    CHECK(!twochoice_intake_heard(&intake, now, &m, &answer));
    learn();
    m.type = TWOCHOICE_RESERVE;
    for (i = 0; i < others; i++) {
        m.client = i;
        for (m.request = 1; m.request <= 2; m.request++)
            CHECK(twochoice_intake_heard(&intake, now, &m, &answer));
    }
    m.client = 1000;
    for (m.request = 1; m.request <= 3;
         m.request++) { /* the first one waits for one write of each other, the next for two */
        const uint64_t turns_of = m.request - 1, ahead = others * (m.request < 2 ? m.request : 2) + turns_of;
        CHECK(twochoice_intake_heard(&intake, now, &m, &answer));
        CHECK_WITHIN((double)answer.wait_ns / 1e6, 0.98 * (3 + 0.75 * (double)ahead),
                     1.02 * (3 + 0.75 * (double)ahead));
        CHECK_WITHIN((double)answer.service_ns / 1e6, 0.98, 1.02);
    }
    m.len_bytes = UINT64_MAX; /* a claim that would drive all others away counts as four writes */
    CHECK(twochoice_intake_heard(&intake, now, &m, &answer));
    m.client = 1001;
    m.len_bytes = 1 << 20;
    CHECK(twochoice_intake_heard(&intake, now, &m, &answer));
    CHECK_LE(answer.wait_ns, (uint64_t)(1e6 * (3 + others + 4 + 4) * 1.02));
    now += 500000; /* half of the first operation is over */
    m.client = 1002;
    CHECK(twochoice_intake_heard(&intake, now, &m, &answer));
    CHECK_LE(answer.wait_ns, (uint64_t)(1e6 * (2.5 + others + 4 + 5) * 1.02));
    now += 20000000; /* it hangs: what is told grows */
    m.client = 1003;
    CHECK(twochoice_intake_heard(&intake, now, &m, &answer));
    CHECK_GE(answer.service_ns, 4000000);
    CHECK(check_mem_free(&mem));
}

/* Operations hang: a server that comes at each told time comes a few times, not for ever. */
static void hangs(uint32_t parallel)
{
    struct twochoice_intake_config config;
    struct twochoice_message ask;
    struct check_mem mem;
    uint64_t next;
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.parallel = parallel;
    check_mem_new(&mem, twochoice_intake_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_intake_init(&intake, mem.mem, mem.size, &config), QOS_OK);
    CHECK_CONTEXT("operations hang, %u at once", parallel);
    now = 1000;
    learn();
    (void)reserve(7);
    for (i = 0; (next = twochoice_intake_next_ns(&intake, now)) != QOS_NEVER && i < 100; i++) {
        CHECK(next > now);
        now = next;
        CHECK(!twochoice_intake_ask(&intake, now, &ask)); /* three work, or wait, before it */
    }
    CHECK_LE(i, 3);
    twochoice_intake_end(&intake, now, 1 << 20);
    twochoice_intake_end(&intake, now, 1 << 20);
    twochoice_intake_end(&intake, now, 1 << 20);
    CHECK(twochoice_intake_ask(&intake, now, &ask));
    CHECK_EQ(ask.client, 7);
    CHECK(check_mem_free(&mem));
}

/* A long operation beside an ask, before the first write has told a lead: a server that comes at each told time comes a
 * few times until the ask holds no place any more. */
static void no_lead_yet(void)
{
    struct twochoice_intake_config config;
    struct twochoice_message ask;
    struct check_mem mem;
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.parallel = 2;
    config.timeout_ns = UINT64_C(10000000000);
    check_mem_new(&mem, twochoice_intake_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_intake_init(&intake, mem.mem, mem.size, &config), QOS_OK);
    CHECK_CONTEXT("no lead yet");
    now = 1000;
    learn();
    for (i = 0; i < 3; i++)
        twochoice_intake_end(&intake, now, 1 << 20);
    twochoice_intake_begin(&intake, now, 16 << 20);
    (void)reserve(7);
    (void)reserve(8);
    CHECK(twochoice_intake_ask(&intake, now, &ask));
    for (i = 0; !twochoice_intake_ask(&intake, now, &ask) && i < 100; i++) {
        const uint64_t next = twochoice_intake_next_ns(&intake, now);
        CHECK(next > now);
        now = next;
    }
    CHECK_LE(i, 3);
    CHECK(check_mem_free(&mem));
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static void messages(uint64_t count)
{
    uint8_t buf[TWOCHOICE_MESSAGE_BYTES + 1];
    for (; count > 0; count--) {
        struct twochoice_message m, got;
        size_t len = 0, i;
        memset(&m, 0, sizeof m);
        m.type = (uint32_t)check_between(&rng, 1, 4);
        m.server = (uint32_t)check_between(&rng, 0, UINT32_MAX);
        m.state = (uint32_t)check_between(&rng, 0, 2);
        m.count = (uint32_t)check_between(&rng, 0, TWOCHOICE_WRITES_MAX);
        m.client = check_between(&rng, 0, UINT64_MAX);
        m.request = check_between(&rng, 0, UINT64_MAX);
        m.turn = check_between(&rng, 0, UINT64_MAX);
        m.len_bytes = check_between(&rng, 0, UINT64_MAX);
        m.wait_ns = check_between(&rng, 0, UINT64_MAX);
        m.service_ns = check_between(&rng, 0, UINT64_MAX);
        m.idle_ns = check_between(&rng, 0, UINT64_MAX);
        CHECK_EQ(twochoice_message_encode(&m, buf, sizeof buf, &len), QOS_OK);
        CHECK_EQ(len, TWOCHOICE_MESSAGE_BYTES);
        memset(&got, 0, sizeof got);
        CHECK_EQ(twochoice_message_decode(buf, len, &got), QOS_OK);
        CHECK(memcmp(&got, &m, sizeof m) == 0);
        CHECK_EQ(twochoice_message_decode(buf, (size_t)check_between(&rng, 0, len - 1), &got), QOS_ETRUNCATED);
        i = (size_t)check_between(&rng, 0, len - 1);
        buf[i] ^= (uint8_t)(1u << check_between(&rng, 0, 7));
        CHECK(twochoice_message_decode(buf, len, &got) != QOS_OK);
        CHECK_EQ(twochoice_message_encode(&m, buf, TWOCHOICE_MESSAGE_BYTES - 1, &len), QOS_EMEMORY);
        m.count = TWOCHOICE_WRITES_MAX + 1;
        CHECK_EQ(twochoice_message_encode(&m, buf, sizeof buf, &len), QOS_ERANGE);
    }
}

/* One operation that takes 5 s, or a clock that jumps ahead, is one operation: it counts as at most 8 of those before. */
static void stalls(uint64_t stall_ns)
{
    struct twochoice_intake_config config;
    struct twochoice_intake_state state;
    struct check_mem mem;
    uint32_t i;
    memset(&config, 0, sizeof config);
    check_mem_new(&mem, twochoice_intake_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_intake_init(&intake, mem.mem, mem.size, &config), QOS_OK);
    now = 1000;
    learn();
    now += stall_ns;
    for (i = 0; i < 3; i++)
        twochoice_intake_end(&intake, now, 1 << 20);
    CHECK_EQ(twochoice_intake_info(&intake, &state), QOS_OK);
    CHECK_LE(state.mib_ns, 8000000);
    for (i = 0; i < 20; i++) {
        twochoice_intake_begin(&intake, now, 1 << 20);
        now += 1000000;
        twochoice_intake_end(&intake, now, 1 << 20);
    }
    CHECK_EQ(twochoice_intake_info(&intake, &state), QOS_OK);
    CHECK(state.mib_ns >= 990000 && state.mib_ns <= 1010000);
    CHECK(check_mem_free(&mem));
}

/* A device that does 16 writes at once, all begin and end together: the server states what each takes, not a 16th of it or less. */
static void ends_together(void)
{
    static unsigned char memory[1 << 16] __attribute__((aligned(64)));
    struct twochoice_intake_config config;
    struct twochoice_message m, answer;
    uint32_t i, round;
    uint64_t t = 0;
    memset(&config, 0, sizeof config);
    config.parallel = 16;
    config.max_reservations = 64;
    CHECK(twochoice_intake_init(&intake, memory, sizeof memory, &config) == QOS_OK);
    CHECK_CONTEXT("16 writes end together");
    memset(&m, 0, sizeof m);
    m.type = TWOCHOICE_RESERVE;
    m.count = 1;
    m.len_bytes = 1000000;
    for (round = 0; round < 20; round++) {
        for (i = 0; i < 16; i++)
            twochoice_intake_begin(&intake, t, 1000000);
        t += 1000000;
        for (i = 0; i < 16; i++) {
            m.turn++;
            twochoice_intake_end(&intake, t, 1000000);
            CHECK(twochoice_intake_heard(&intake, t, &m, &answer));
            if (round > 10)
                CHECK_WITHIN((double)answer.service_ns, 700000, 1500000);
            answer.type = TWOCHOICE_RELEASE;
            (void)twochoice_intake_heard(&intake, t, &answer, &answer);
        }
    }
}

int main(void)
{
    uint32_t silent, parallel;
    check_begin("twochoice_intake");
    ends_together();
    check_rng_init(&rng, check_seed());
    any_calls(check_scaled(200000));
    for (silent = check_state.scale < 20 ? 0 : 8; silent < 12; silent += 4)
        for (parallel = check_state.scale < 20 ? 1 : 4; parallel <= 4; parallel *= 4) {
            constant(1000000, 100000, parallel, silent);
            constant(100000, 100000, parallel, silent);
            constant(50000, 200000, parallel, silent);
        }
    for (parallel = check_state.scale < 20 ? 1 : 4; parallel <= 8; parallel *= 2) {
        never_writes(10000000, 100000, parallel);
        never_writes(1000000, 100000, parallel);
    }
    bounds(0);
    bounds(1);
    bounds(5);
    for (parallel = 1; parallel <= 3; parallel++)
        hangs(parallel);
    no_lead_yet();
    stalls(UINT64_C(5000000000));
    stalls(UINT64_C(3600000000000));
    messages(check_scaled(2000));
    return check_end();
}
