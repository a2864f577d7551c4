/* pshift_instances.h - random token allocation problems for tests of pshift.h, degenerate ones included. Plain arrays;
 * uses check.h only. */
#ifndef QOS_TESTS_PSHIFT_INSTANCES_H
#define QOS_TESTS_PSHIFT_INSTANCES_H

#include "check.h"

#define INSTANCE_SERVERS 40
#define INSTANCE_BUCKETS 120
#define INSTANCE_ENTRIES 1200

struct instance {
    uint32_t servers, buckets, entries;
    uint64_t capacity[INSTANCE_SERVERS + 1], reservation[INSTANCE_BUCKETS + 1], demand[INSTANCE_ENTRIES + 1];
    uint32_t row[INSTANCE_BUCKETS + 2], server[INSTANCE_ENTRIES + 1];
};

#define INSTANCE_HUGE (UINT64_MAX >> 1)

/* A count of the instance's scale; sometimes 0 or an end of the range. */
static uint64_t instance_count(struct check_rng *r, uint64_t most)
{
    switch (check_between(r, 0, 15)) {
    case 0: return 0;
    case 1: return most;
    case 2: return 1 < most ? 1 : most;
    default: return check_between(r, 0, most);
    }
}

/* kind 0..11 picks the shape; everything else is random. */
static CHECK_UNUSED void instance_make(struct instance *p, struct check_rng *r, unsigned kind, uint32_t most_servers,
                                       uint32_t most_buckets, uint64_t huge)
{
    static const uint64_t scales[6] = {1, 3, 20, 1000, 1 << 20, UINT64_C(1) << 40};
    uint64_t scale = scales[check_between(r, 0, 5)], total = 0, tight, even;
    uint32_t i, k, len, most_len;
    memset(p, 0, sizeof *p);
    p->servers = (uint32_t)check_between(r, 1, most_servers);
    p->buckets = (uint32_t)check_between(r, 1, most_buckets);
    if (kind == 0)
        p->servers = 1;
    if (kind == 1) /* perhaps no buckets, then perhaps no servers */
        p->buckets = check_between(r, 0, 1) ? 0 : p->buckets;
    if (kind == 1 && p->buckets == 0 && check_between(r, 0, 1))
        p->servers = 0;
    if (kind == 2)
        scale = huge;
    most_len = kind == 3 ? 1 : kind == 4 ? 8 : (uint32_t)check_between(r, 1, 12);
    for (i = 0; i < p->buckets; i++) {
        uint64_t sum = 0, want;
        len = kind == 4 ? 8 : (uint32_t)check_between(r, kind == 3 ? 1 : 0, most_len);
        if (kind == 5) /* a ring: long shift paths */
            len = 2;
        if (kind == 11 && check_between(r, 0, 3) == 0)
            len = (uint32_t)check_between(r, 60, 140);
        if (p->entries + len > INSTANCE_ENTRIES)
            len = 0;
        p->row[i] = p->entries;
        for (k = 0; k < len; k++) {
            uint32_t e = p->entries++;
            p->server[e] = kind == 6 ? 0 : (uint32_t)check_between(r, 0, p->servers - 1);
            if (kind == 5)
                p->server[e] = (i + k) % p->servers;
            if (kind == 7) /* few servers that many buckets use */
                p->server[e] = (uint32_t)check_between(r, 0, check_between(r, 0, p->servers - 1));
            p->demand[e] = kind == 8 ? 0 : instance_count(r, scale);
            sum = sum > UINT64_MAX - p->demand[e] ? UINT64_MAX : sum + p->demand[e];
        }
        want = sum > huge ? huge : sum;
        switch (check_between(r, 0, 3)) {
        case 0: p->reservation[i] = want; break;             /* all of the demand */
        case 1: p->reservation[i] = want - want / 11; break; /* m = 1.1: little spare */
        case 2:
            p->reservation[i] = check_between(r, 0, want);
            break; /* any amount below */
        /* or an amount above */
        default: p->reservation[i] = instance_count(r, scale < huge / 8 ? scale * 8 : huge); break;
        }
        want = want < p->reservation[i] ? want : p->reservation[i];
        total = total > huge - (want < huge ? want : huge) ? huge : total + want;
    }
    p->row[p->buckets] = p->entries;
    tight = check_between(r, 0, 3); /* total capacity: about the tokens, or random */
    for (i = 0; i < p->servers; i++) {
        even = total / p->servers;
        if (kind == 9)
            p->capacity[i] = 0;
        else if (tight == 0)
            p->capacity[i] = instance_count(r, scale);
        else if (tight == 1)
            p->capacity[i] = even;
        else
            p->capacity[i] = check_between(r, even / 2, even < huge / 2 ? even + even / 2 + 1 : huge);
    }
    if ((kind == 5 || kind == 10) && scale < UINT64_C(1)
                                                 << 31) { /* all balanced except two servers, perhaps far apart */
        uint32_t poor = (uint32_t)check_between(r, 0, p->servers - 1),
                 rich = (uint32_t)check_between(r, 0, p->servers - 1);
        for (i = 0; i < p->servers; i++)
            p->capacity[i] = 0;
        for (i = 0; i < p->buckets; i++) {
            uint64_t sum = 0;
            for (k = p->row[i]; k < p->row[i + 1]; k++)
                sum += p->demand[k];
            p->reservation[i] = sum - sum / 4;
            for (k = p->row[i]; k < p->row[i + 1]; k++)
                p->capacity[p->server[k]] += p->demand[k] - p->demand[k] / 4;
        }
        even = p->capacity[poor] / 3;
        p->capacity[poor] -= even;
        p->capacity[rich] += even;
    }
}

#endif
