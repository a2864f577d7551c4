// proves: the token scheduler picks what a literal transcription of Algorithm 1 picks, weighted too, step by step
// variants: native san i386 s390x aarch64 riscv64
#include "pshift.h"
#include "check.h"

/* Algorithm 1 as the paper prints it: the queues are searched one by one. Section V: a queue keeps its turn for
 * `weight` requests. */
#define QUEUES_MOST 5000
static struct {
    uint32_t queues, next, turn, left;
    uint64_t pending[QUEUES_MOST], r[QUEUES_MOST], l[QUEUES_MOST], debt[QUEUES_MOST];
    uint32_t weight[QUEUES_MOST];
} loop;

static uint32_t loop_search(const uint64_t *tokens)
{
    uint32_t k;
    for (k = 0; k < loop.queues; k++) {
        uint32_t q = (loop.next + k) % loop.queues;
        if (loop.pending[q] > 0 && tokens[q] > 0)
            return q;
    }
    return UINT32_MAX;
}

static void loop_take(uint32_t q, uint64_t *tokens)
{
    if (*tokens != UINT64_MAX)
        --*tokens;
    loop.pending[q]--;
    if (q != loop.turn) {
        loop.turn = q;
        loop.left = loop.weight[q];
    }
    loop.left--;
    loop.next = q;
    if (loop.left == 0) {
        loop.turn = UINT32_MAX;
        loop.next = (q + 1) % loop.queues;
    }
}

/* 0: nothing; 1: with an R-token; 2: with an L-token. */
static int loop_pick(uint32_t *queue)
{
    uint32_t q = loop_search(loop.r); /* Step 1a */
    if (q != UINT32_MAX) {
        loop_take(q, &loop.r[q]); /* Step 1b */
        *queue = q;
        return 1;
    }
    q = loop_search(loop.l); /* Step 2a */
    if (q != UINT32_MAX) {
        loop_take(q, &loop.l[q]); /* Step 2b */
        *queue = q;
        return 2;
    }
    return 0; /* Step 3 */
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
    struct pshift_sched_config cfg = {queues, 3};
    struct pshift_sched sc;
    struct check_mem mem;
    struct check_rng r;
    struct qos_stats stats;
    uint64_t n, picks = 0, borrowed = 0, refused = 0, arrived = 0, debt = 0, forced = 0;
    uint32_t i, spread;
    check_rng_init(&r, stream);
    (void)check_mem_new(&mem, pshift_sched_memsize(&cfg), 64, 0);
    CHECK_EQ(pshift_sched_init(&sc, mem.mem, mem.size, &cfg), QOS_OK);
    memset(&loop, 0, sizeof loop);
    loop.queues = queues;
    loop.turn = UINT32_MAX;
    spread = (uint32_t)check_between(&r, 1, queues); /* few busy queues, or many */
    for (i = 0; i < queues; i++) {
        loop.weight[i] = (stream + queues) % 2 ? (uint32_t)check_between(&r, 1, 4) : 1;
        CHECK_EQ(pshift_sched_set_weight(&sc, i, loop.weight[i]), QOS_OK);
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
            CHECK_EQ(pshift_sched_arrive(&sc, q, a), QOS_OK);
            loop.pending[q] += a;
            arrived += a;
            break;
        case 3:
        case 4:
            a = draw_tokens(&r);
            b = draw_tokens(&r);
            debt -= loop.debt[q];
            CHECK_EQ(pshift_sched_set_tokens(&sc, q, a, b), QOS_OK);
            loop_grant(q, a, b);
            debt += loop.debt[q];
            break;
        case 5:
            a = check_between(&r, 0, 2);
            CHECK_EQ(pshift_sched_cancel(&sc, q, a), a <= loop.pending[q] ? QOS_OK : QOS_ERANGE);
            loop.pending[q] -= a <= loop.pending[q] ? a : 0;
            break;
        case 6:
            if (loop.pending[q] == 0) {
                CHECK_EQ(pshift_sched_force(&sc, q), QOS_EAGAIN);
            } else if (loop.r[q] == 0 && loop.l[q] == 0 && loop.debt[q] >= 3) {
                CHECK_EQ(pshift_sched_force(&sc, q), QOS_EDEBT);
            } else {
                uint64_t *from = loop.r[q] ? &loop.r[q] : &loop.l[q];
                CHECK_EQ(pshift_sched_force(&sc, q), QOS_OK);
                forced++;
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
            CHECK_EQ(pshift_sched_next_ns(&sc, n) == n, kind != 0);
            got = pshift_sched_pick(&sc, &pick);
            CHECK_EQ(got == QOS_OK, kind != 0);
            if (kind) {
                CHECK_EQ(pick.queue, want);
                CHECK_EQ(pick.backing, kind == 1 ? PSHIFT_RESERVATION : PSHIFT_NORMAL);
                picks++;
                borrowed += kind == 2;
            } else {
                refused++;
            }
        }
        }
        CHECK_EQ(pshift_sched_pending(&sc, q), loop.pending[q]);
        CHECK_EQ(pshift_sched_r_tokens(&sc, q), loop.r[q]);
        CHECK_EQ(pshift_sched_l_tokens(&sc, q), loop.l[q]);
    }
    stats = pshift_sched_stats(&sc);
    CHECK_EQ(stats.granted, picks + forced);
    CHECK_EQ(stats.borrowed, borrowed);
    CHECK_EQ(stats.refused, refused);
    CHECK_EQ(stats.waited, arrived);
    CHECK_EQ(stats.debt, debt);
    CHECK(picks > 0);
    CHECK(check_mem_free(&mem));
}

int main(void)
{
    static const uint32_t queues[8] = {1, 2, 7, 63, 64, 65, 300, 5000};
    uint64_t stream, rounds;
    check_begin("property/pshift_sched");
    rounds = check_scaled(12);
    for (stream = 0; stream < 8 * rounds; stream++)
        run(stream / 8 + (stream % 8) * 1000, queues[stream % 8], stream % 8 == 7 ? 3000 : 20000);
    return check_end();
}
