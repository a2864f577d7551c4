/* tags_weights.h - "calls" of the worlds of version 0.2: two clients that always wait, for up to 20 million pulls. The
 * promise `pair` of its first page, with weights up to 2^40: W_m / w_m <= W_f / w_f + c_f / w_f + c_m / w_m in any window,
 * so from the begin, too. Whole numbers: times w_f w_m. */

static uint64_t w_weight(struct world_rng *r)
{
    return (UINT64_C(1) << 40) - (world_chance(r, 500) ? world_between(r, 0, UINT64_C(1) << 20) : 0);
}

static void k_run(struct world *w)
{
    __extension__ typedef __int128 wide;
    const uint64_t pulls = (uint64_t)world_value(w, F_STEPS) * 20000;
    struct world_rng r;
    struct tags_config c;
    struct tags_client terms[2];
    struct tags_grant g;
    uint64_t got[2] = {0, 0}, k;
    uint32_t i;
    void *mem;
    world_rng_init(&r, w->seed, 79);
    memset(&c, 0, sizeof c);
    memset(terms, 0, sizeof terms);
    c.clients = 2;
    c.mode = TAGS_PS;
    c.no_completions = true;
    mem = aligned_alloc(QOS_CACHE_LINE, (tags_memsize(&c) + 63) / 64 * 64);
    if (!mem || tags_init(&tags, mem, tags_memsize(&c), &c) != QOS_OK)
        world_fail(w, "init", 0, "refused");
    for (i = 0; i < 2 && !w->broken; i++) {
        terms[i].weight = w_weight(&r);
        if (tags_add(&tags, 1, i, &terms[i]) != QOS_OK || tags_arrive(&tags, 1, i, UINT32_C(1) << 30, 1) != QOS_OK)
            world_fail(w, "admission", 0, "a client is refused");
    }
    for (k = 0; k < pulls && !w->broken; k++) {
        wide ahead;
        w->events++;
        if (tags_pull(&tags, 1, 1, &g) != QOS_OK) {
            world_fail(w, "idle", k, "both wait, and none is served");
            break;
        }
        got[g.client]++;
        if (k % 1024 == 0)
            world_goes_on(k * 1000);
        ahead = (wide)got[g.client] * terms[1 - g.client].weight - (wide)got[1 - g.client] * terms[g.client].weight;
        if (ahead > (wide)terms[0].weight + terms[1].weight)
            world_fail(w, "pair", k,
                       "of %" PRIu64 " pulls client %" PRIu32 " got %" PRIu64
                       ", more than a request of each above its part",
                       k + 1, g.client, got[g.client]);
    }
    free(mem);
}
