// proves: the token scheduler picks what a literal transcription of Algorithm 1 picks, also with weights; each of the
// proves: two steps has its own position. No request waits longer than the header's formulas allow
// variants: native san i386 s390x aarch64 riscv64
#include "pshift.h"
#include "check.h"

/* Algorithm 1: each step searches the queues one by one, from its own position. Section V: a queue keeps its turn for
 * `weight` requests. */
#define QUEUES_MOST 5000
static struct {
    uint32_t queues, next[2], turn[2], left[2];
    uint64_t pending[QUEUES_MOST], r[QUEUES_MOST], l[QUEUES_MOST], debt[QUEUES_MOST];
    uint32_t weight[QUEUES_MOST];
} loop;

static uint32_t loop_search(int step, const uint64_t *tokens)
{
    uint32_t k;
    for (k = 0; k < loop.queues; k++) {
        uint32_t q = (loop.next[step] + k) % loop.queues;
        if (loop.pending[q] > 0 && tokens[q] > 0)
            return q;
    }
    return UINT32_MAX;
}

static void loop_take(int step, uint32_t q, uint64_t *tokens)
{
    if (*tokens != UINT64_MAX)
        --*tokens;
    loop.pending[q]--;
    if (q != loop.turn[step]) {
        loop.turn[step] = q;
        loop.left[step] = loop.weight[q];
    }
    loop.left[step]--;
    loop.next[step] = q;
    if (loop.left[step] == 0) {
        loop.turn[step] = UINT32_MAX;
        loop.next[step] = (q + 1) % loop.queues;
    }
}

/* 0: nothing; 1: with an R-token; 2: with an L-token. */
static int loop_pick(uint32_t *queue)
{
    uint32_t q = loop_search(0, loop.r); /* Step 1a */
    if (q != UINT32_MAX) {
        loop_take(0, q, &loop.r[q]); /* Step 1b */
        *queue = q;
        return 1;
    }
    q = loop_search(1, loop.l); /* Step 2a */
    if (q != UINT32_MAX) {
        loop_take(1, q, &loop.l[q]); /* Step 2b */
        *queue = q;
        return 2;
    }
    return 0; /* Step 3 */
}

/* 1 if a request waits. */
static uint64_t loop_waiting(void)
{
    uint32_t q;
    for (q = 0; q < loop.queues; q++)
        if (loop.pending[q] > 0)
            return 1;
    return 0;
}

static void loop_grant(uint32_t q, uint64_t r, uint64_t l)
{
    uint64_t debt = loop.debt[q], pay = r < debt ? r : debt;
    loop.r[q] = r == UINT64_MAX ? r : r - pay;
    debt -= pay;
    pay = l < debt ? l : debt;
    loop.l[q] = l == UINT64_MAX ? l : l - pay;
    loop.debt[q] = debt - pay;
}

static uint64_t draw_tokens(struct check_rng *r)
{
    switch (check_between(r, 0, 9)) {
    case 0: return 0;
    case 1: return UINT64_MAX;
    default: return check_between(r, 0, 12);
    }
}

static void run(uint64_t stream, uint32_t queues, uint64_t steps)
{
    struct pshift_scheduler_config config = {queues, 3};
    struct pshift_scheduler sc;
    struct check_mem mem;
    struct check_rng r;
    struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
    struct qos_stats stats = {0, 0, 0, 0, 0}, each = {0, 0, 0, 0, 0};
    uint64_t n, picks = 0, borrowed = 0, refused = 0, arrived = 0, debt = 0, forced = 0;
    uint32_t i, spread;
    check_rng_init(&r, stream);
    (void)check_mem_new(&mem, pshift_scheduler_memsize(&config), 64, 0);
    CHECK_EQ(pshift_scheduler_init(&sc, mem.mem, mem.size, &config), QOS_OK);
    memset(&loop, 0, sizeof loop);
    loop.queues = queues;
    loop.turn[0] = loop.turn[1] = UINT32_MAX;
    spread = (uint32_t)check_between(&r, 1, queues); /* few busy queues, or many */
    for (i = 0; i < queues; i++) {
        loop.weight[i] = (stream + queues) % 2 ? (uint32_t)check_between(&r, 1, 4) : 1;
        CHECK_EQ(pshift_scheduler_change(&sc, i, loop.weight[i]), QOS_OK);
    }
    for (n = 0; n < steps; n++) {
        uint32_t q = (uint32_t)check_between(&r, 0, spread - 1) * (queues / spread), want = 0;
        uint64_t a, b;
        CHECK_CONTEXT("stream %" PRIu64 ", %u queues, step %" PRIu64, stream, queues, n);
        switch (check_between(&r, 0, 15)) {
        case 0:
        case 1:
        case 2:
            a = check_between(&r, 0, 5);
            CHECK_EQ(pshift_scheduler_arrive(&sc, q, a), QOS_OK);
            loop.pending[q] += a;
            arrived += a;
            break;
        case 3:
        case 4:
            a = draw_tokens(&r);
            b = draw_tokens(&r);
            debt -= loop.debt[q];
            CHECK_EQ(pshift_scheduler_set_tokens(&sc, q, a, b), QOS_OK);
            loop_grant(q, a, b);
            debt += loop.debt[q];
            break;
        case 5:
            a = check_between(&r, 0, 2);
            CHECK_EQ(pshift_scheduler_cancel(&sc, q, a), a <= loop.pending[q] ? QOS_OK : QOS_ERANGE);
            loop.pending[q] -= a <= loop.pending[q] ? a : 0;
            break;
        case 6:
            if (loop.pending[q] == 0) {
                CHECK_EQ(pshift_scheduler_force(&sc, 0, q), QOS_EAGAIN);
            } else if (loop.r[q] == 0 && loop.l[q] == 0 && loop.debt[q] >= 3) {
                CHECK_EQ(pshift_scheduler_force(&sc, 0, q), QOS_EDEBT);
            } else {
                uint64_t *from = loop.r[q] ? &loop.r[q] : &loop.l[q];
                CHECK_EQ(pshift_scheduler_force(&sc, 0, q), QOS_OK);
                forced++;
                borrowed += loop.r[q] == 0 && loop.l[q] != 0;
                loop.pending[q]--;
                if (*from == 0) {
                    loop.debt[q]++;
                    debt++;
                } else if (*from != UINT64_MAX) {
                    --*from;
                }
            }
            break;
        default: {
            struct pshift_pick pick = {0, PSHIFT_NORMAL};
            int kind = loop_pick(&want);
            enum qos_status got;
            CHECK_EQ(pshift_scheduler_next_ns(&sc, n) == n, kind != 0);
            got = pshift_scheduler_pick(&sc, 0, &pick);
            CHECK_EQ(got == QOS_OK, kind != 0);
            if (kind) {
                CHECK_EQ(pick.queue, want);
                CHECK_EQ(pick.backing, kind == 1 ? PSHIFT_RESERVATION : PSHIFT_NORMAL);
                picks++;
                borrowed += kind == 2;
            } else {
                refused += loop_waiting();
            }
        }
        }
        CHECK_EQ(pshift_scheduler_info(&sc, q, &info), QOS_OK);
        CHECK_EQ(info.pending, loop.pending[q]);
        CHECK_EQ(info.r_tokens, loop.r[q]);
        CHECK_EQ(info.l_tokens, loop.l[q]);
        CHECK_EQ(info.debt, loop.debt[q]);
    }
    CHECK_EQ(pshift_scheduler_stats(&sc, QOS_NONE, &stats), QOS_OK);
    CHECK_EQ(stats.granted, picks + forced);
    CHECK_EQ(stats.borrowed, borrowed);
    CHECK_EQ(stats.refused, refused);
    CHECK_EQ(stats.waited, arrived);
    CHECK_EQ(stats.debt, debt);
    CHECK(picks > 0);
    for (i = 0; i < queues; i++) { /* the sum of the queues' counters is the scheduler's */
        CHECK_EQ(pshift_scheduler_stats(&sc, i, &each), QOS_OK);
        stats.granted -= each.granted;
        stats.borrowed -= each.borrowed;
        stats.waited -= each.waited;
        stats.debt -= each.debt;
    }
    CHECK_EQ(stats.granted | stats.borrowed | stats.waited | stats.debt, 0);
    CHECK(check_mem_free(&mem));
}

/* The worst waits of THE CONTRACT, against neighbours that come and go: a request behind k others of a queue of weight
 * w is picked within (k / w + 1) * W + k picks. W is the sum of the others' weights. For R-tokens all picks count, for
 * L-tokens the picks without R-tokens. */
static void waits(uint64_t stream, bool reserved)
{
    enum { QUEUES = 9 };
    struct pshift_scheduler_config config = {QUEUES, 0};
    struct pshift_scheduler sc;
    struct check_mem mem;
    struct check_rng r;
    uint64_t others = 0, own_picks = 0, k, bound, n;
    uint32_t weight[QUEUES], i, victim;
    bool served = false;
    check_rng_init(&r, stream);
    (void)check_mem_new(&mem, pshift_scheduler_memsize(&config), 64, 0);
    CHECK_EQ(pshift_scheduler_init(&sc, mem.mem, mem.size, &config), QOS_OK);
    victim = (uint32_t)check_between(&r, 0, QUEUES - 1);
    for (i = 0; i < QUEUES; i++) {
        weight[i] = (uint32_t)check_between(&r, 1, 5);
        others += i == victim ? 0 : weight[i];
        CHECK_EQ(pshift_scheduler_change(&sc, i, weight[i]), QOS_OK);
        CHECK_EQ(pshift_scheduler_arrive(&sc, i, check_between(&r, 0, 9)), QOS_OK);
        CHECK_EQ(pshift_scheduler_set_tokens(&sc, i, reserved ? 1000000 : 0, 1000000), QOS_OK);
    }
    for (n = check_between(&r, 0, 60); n > 0; n--) { /* moves both positions anywhere */
        struct pshift_pick pick = {0, PSHIFT_NORMAL};
        (void)!pshift_scheduler_pick(&sc, 0, &pick);
    }
    CHECK_EQ(pshift_scheduler_arrive(&sc, victim, check_between(&r, 1, 12)), QOS_OK);
    {
        struct pshift_scheduler_state info = {0, 0, 0, 0, 0, 0};
        CHECK_EQ(pshift_scheduler_info(&sc, victim, &info), QOS_OK);
        k = info.pending - 1;
    }
    bound = (k / weight[victim] + 1) * others + k;
    for (n = 0; !served && own_picks <= bound; n++) {
        struct pshift_pick pick = {0, PSHIFT_NORMAL};
        for (i = 0; i < QUEUES; i++) { /* neighbours arrive one by one; they lose and get tokens */
            if (i == victim)
                continue;
            if (check_between(&r, 0, 2) != 0)
                CHECK_EQ(pshift_scheduler_arrive(&sc, i, 1), QOS_OK);
            if (!reserved && check_between(&r, 0, 3) == 0)
                CHECK_EQ(pshift_scheduler_set_tokens(&sc, i, check_between(&r, 0, 1), 1000000), QOS_OK);
        }
        CHECK_EQ(pshift_scheduler_pick(&sc, 0, &pick), QOS_OK);
        if (!reserved && pick.backing == PSHIFT_RESERVATION)
            continue;
        if (pick.queue == victim && k == 0) {
            served = true;
        } else {
            k -= pick.queue == victim;
            own_picks++;
        }
    }
    CHECK_CONTEXT("waits, stream %" PRIu64, stream);
    CHECK(served);
    CHECK_LE(own_picks, bound);
    CHECK(check_mem_free(&mem));
}

int main(void)
{
    static const uint32_t queues[8] = {1, 2, 7, 63, 64, 65, 300, 5000};
    uint64_t stream, rounds;
    check_begin("property/pshift_scheduler");
    rounds = check_scaled(12);
    for (stream = 0; stream < 8 * rounds; stream++)
        run(stream / 8 + (stream % 8) * 1000, queues[stream % 8], stream % 8 == 7 ? 3000 : 20000);
    for (stream = 0; stream < check_scaled(4000); stream++)
        waits(stream, stream % 2 == 0);
    return check_end();
}
