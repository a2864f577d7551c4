/* pshift_reference.h - a solver and a scheduler that keep the promises of pshift.h in the plainest way, to judge the oracles
 *
 * Tokens are shifted from servers that have too many along the shortest path to one that has room, until there is none: the
 * servers that are then reached are the cut. Queues take turns of their weight. None of it is the header's; of a cluster and
 * of an agent the oracles are accounts of messages and grants, which a reference would have to send as the header does. */
#ifndef QOS_TESTS_WORLD_PSHIFT_REFERENCE_H
#define QOS_TESTS_WORLD_PSHIFT_REFERENCE_H

static WORLD_UNUSED void reference_solve(const struct pshift_problem *p, struct pshift_solution *s)
{
    static uint32_t row_of[ROWS * SERVERS];
    wide load[SERVERS] = {0};
    struct account a;
    uint32_t i, e, f, from[SERVERS], by[SERVERS], to[SERVERS], list[SERVERS];
    for (i = 0; i < p->buckets; i++) {
        wide left = p->reservation[i];
        for (e = p->row[i]; e < p->row[i + 1]; e++) {
            s->alloc[e] = left < p->demand[e] ? (uint64_t)left : p->demand[e];
            left -= s->alloc[e];
            load[p->server[e]] += s->alloc[e];
            row_of[e] = i;
        }
    }
    for (;;) {
        uint32_t count = 0, next, j, end = NONE;
        wide most;
        for (j = 0; j < p->servers; j++) {
            from[j] = load[j] > p->capacity[j] ? j : NONE;
            s->cut[j] = from[j] != NONE;
            if (from[j] != NONE)
                list[count++] = j;
        }
        for (next = 0; next < count && end == NONE; next++)
            for (e = 0; e < p->row[p->buckets] && end == NONE; e++)
                for (f = p->row[row_of[e]]; p->server[e] == list[next] && s->alloc[e] && f < p->row[row_of[e] + 1];
                     f++) {
                    j = p->server[f];
                    if (s->cut[j] || s->alloc[f] == p->demand[f])
                        continue;
                    s->cut[j] = 1;
                    from[j] = list[next];
                    by[j] = e;
                    to[j] = f;
                    list[count++] = j;
                    if (load[j] < p->capacity[j]) {
                        end = j;
                        break;
                    }
                }
        if (end == NONE)
            break;
        most = p->capacity[end] - load[end];
        for (j = end; from[j] != j; j = from[j]) {
            most = s->alloc[by[j]] < most ? s->alloc[by[j]] : most;
            most = p->demand[to[j]] - s->alloc[to[j]] < most ? p->demand[to[j]] - s->alloc[to[j]] : most;
        }
        most = load[j] - p->capacity[j] < most ? load[j] - p->capacity[j] : most;
        load[j] -= most;
        load[end] += most;
        for (j = end; from[j] != j; j = from[j]) {
            s->alloc[by[j]] -= (uint64_t)most;
            s->alloc[to[j]] += (uint64_t)most;
        }
    }
    a = account_of(p, s);
    s->tokens = narrow(a.tokens);
    s->unclaimed = narrow(a.unclaimed);
    s->effective = narrow(a.phi);
    s->excess = narrow(a.tokens - a.phi);
    s->cut_capacity = narrow(a.cut_capacity);
    s->cut_demand = narrow(a.cut_demand);
    s->cut_servers = a.cut_servers;
    s->exact = true;
}

/* ---- a scheduler: one turn for R-tokens, one for L-tokens ---- */

static struct {
    struct pshift_scheduler_state of[8];
    uint32_t queues, at[2], left[2];
    uint64_t debt_max;
} plain;

static WORLD_UNUSED void reference_tokens(uint32_t i, uint64_t r, uint64_t l)
{
    struct pshift_scheduler_state *q = &plain.of[i];
    const uint64_t paid = r + l < q->debt ? r + l : q->debt, of_r = r < paid ? r : paid;
    q->debt -= paid;
    q->r_tokens = r - of_r;
    q->l_tokens = l - (paid - of_r);
}

static WORLD_UNUSED enum qos_status reference_force(uint32_t i)
{
    struct pshift_scheduler_state *q = &plain.of[i];
    if (!q->pending)
        return QOS_EAGAIN;
    if (!q->r_tokens && !q->l_tokens && q->debt == plain.debt_max)
        return QOS_EDEBT;
    q->pending--;
    q->served++;
    if (q->r_tokens)
        q->r_tokens--;
    else if (q->l_tokens)
        q->l_tokens--;
    else
        q->debt++;
    return QOS_OK;
}

static WORLD_UNUSED enum qos_status reference_pick(struct pshift_pick *pick)
{
    uint32_t l, k;
    for (l = 0; l < 2; l++)
        for (k = 0; k <= plain.queues; k++) { /* the last one is the first again, with a new turn */
            struct pshift_scheduler_state *q = &plain.of[plain.at[l]];
            if (plain.left[l] && q->pending && (l ? q->l_tokens : q->r_tokens)) {
                plain.left[l]--;
                *(l ? &q->l_tokens : &q->r_tokens) -= 1;
                q->pending--;
                q->served++;
                pick->queue = plain.at[l];
                pick->backing = l ? PSHIFT_NORMAL : PSHIFT_RESERVATION;
                return QOS_OK;
            }
            plain.at[l] = (plain.at[l] + 1) % plain.queues;
            plain.left[l] = plain.of[plain.at[l]].weight;
        }
    return QOS_EAGAIN;
}

#endif
