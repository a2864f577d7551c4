/* twochoice_reference.h - a placement that sees all queues, and a maintainer of a list: what twochoice.h's promises come to
 * without messages
 *
 * It judges the oracles, --reference: where writes go, when they are sent again, when bytes come home. Oracles of messages,
 * reservations and counters have nothing to judge here. The oracles of the table are a plain map and a list of writes, which
 * is what a reference would be: worlds of `table` run as `writes`. It includes none of our headers. */

/* The server with the least work that takes writes, that holds less than its part of the request, and is not `but`. */
static uint32_t ideal_server(const struct client *x, const struct asked *r, uint32_t but)
{
    uint32_t best = UINT32_MAX, j, i;
    for (j = 0; j < servers; j++) {
        uint32_t held = 0;
        for (i = 0; i < r->k; i++)
            held += r->sent[i].times && !r->sent[i].ended && r->sent[i].server == j;
        if (j != but && x->state[j] == TWOCHOICE_UP && host[j].state == TWOCHOICE_UP && host[j].ops < 64 &&
            held < (2 * r->k + servers - 1) / servers && (best == UINT32_MAX || host[j].cost < host[best].cost))
            best = j;
    }
    return best;
}

static void ideal_step(const struct client *x, struct twochoice_place_order *o)
{
    uint32_t i, w;
    memset(o, 0, sizeof *o);
    o->next_ns = QOS_NEVER;
    for (i = 0; i < x->requests; i++)
        for (w = 0; w < x->request[i].k; w++) {
            const struct asked *r = &x->request[i];
            const struct sent *s = &r->sent[w];
            const uint64_t overdue_ns = s->times == 0 || s->failed ? now : s->at_ns + timeout_ns;
            if (s->ended || (s->times && !s->failed && s->server == s->home)) /* at home it stays */
                continue;
            if (now < overdue_ns) {
                o->next_ns = overdue_ns < o->next_ns ? overdue_ns : o->next_ns;
                continue;
            }
            o->server = s->len < 1024 && !s->times ? s->home : ideal_server(x, r, s->times ? s->server : UINT32_MAX);
            if (o->server == UINT32_MAX && (!s->times || (s->failed && now >= s->at_ns + timeout_ns)))
                o->server = s->home;
            if (o->server == UINT32_MAX) { /* nobody takes it now */
                o->next_ns = now + MS < o->next_ns ? now + MS : o->next_ns;
                continue;
            }
            o->todo = TWOCHOICE_PLACE_BIND;
            o->write = w;
            o->tag = i;
            o->again = s->times > 0;
            return;
        }
}

/* The first piece whose target is known to be idle, when the rate has room for it; else the first target is asked. */
static enum qos_status ideal_pull(struct twochoice_table *table, const struct twochoice_maintainer_config *c,
                                  uint64_t busy_ns, const uint64_t *said_ns, const uint64_t *load,
                                  struct twochoice_order *o, bool begins)
{
    static double room; /* bytes, at the time at_ns */
    static uint64_t at_ns;
    struct twochoice_piece p;
    uint64_t object = 0, offset = 0;
    const double most = (double)c->piece_bytes;
    room = begins ? most : room + (double)(now - at_ns) * (double)c->rate_bytes_per_s / 1e9;
    room = room > most ? most : room;
    at_ns = now;
    memset(o, 0, sizeof *o);
    o->todo = TWOCHOICE_WAIT;
    o->next_ns = now < busy_ns + c->idle_ns ? busy_ns + c->idle_ns : QOS_NEVER;
    for (; now >= busy_ns + c->idle_ns && twochoice_table_next(table, object, offset, &p); offset = p.end) {
        uint64_t n = p.end - p.offset < c->piece_bytes ? p.end - p.offset : c->piece_bytes;
        object = p.object;
        if (!said_ns[p.target] || now > said_ns[p.target] + c->idle_ns || load[p.target] > c->idle_load) {
            o->piece = o->todo == TWOCHOICE_ASK_LOAD ? o->piece : p;
            o->todo = TWOCHOICE_ASK_LOAD;
            continue;
        }
        if (room < (double)n) {
            o->todo = TWOCHOICE_WAIT;
            o->next_ns = now + (uint64_t)(((double)n - room) * 1e9 / (double)c->rate_bytes_per_s) + 1;
            return QOS_OK;
        }
        room -= (double)n;
        o->todo = TWOCHOICE_COPY;
        return twochoice_table_pull_start(table, p.object, p.offset, n, &o->pull, &o->piece);
    }
    return QOS_OK;
}
