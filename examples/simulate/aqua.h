/* aqua.h - the testbed of AQuA's Section 6 in simulated time, for `simulate htb` and the paper tests.
 *
 * Streams write requests of 512 KB to one disk. Each keeps `outstanding` requests there, if QoS lets it. Stream i
 * starts at 30 * (i - 1) s. The disk serves one request at a time; its rate may change once, like a disk's when the
 * workload changes. Without QoS it serves first come, first served; with QoS the queues of htb.h decide. 1 token = 1
 * KB, as in the paper.
 */
#ifndef EXAMPLES_AQUA_H
#define EXAMPLES_AQUA_H

#include "htb.h"

#define AQUA_STREAMS 3
#define AQUA_SECONDS 150
#define AQUA_REQUEST_KB 512
#define AQUA_OUTSTANDING 8
#define AQUA_NS_PER_S UINT64_C(1000000000)

struct aqua {
    bool qos, maximizer;
    uint64_t root_kb_per_s;                      /* the paper's global token rate */
    uint64_t reserved_kb_per_s[AQUA_STREAMS];    /* 5, 15, 20 MB/s */
    uint64_t demand_kb_per_s[AQUA_STREAMS];      /* 0: as much as it may send */
    uint64_t disk_kb_per_s, disk_later_kb_per_s; /* until `later_s`, and from then on */
    uint32_t stream_start_s, later_s, seconds;
    /* results */
    double kb[AQUA_STREAMS][AQUA_SECONDS]; /* served in each second */
    double root_kb_s[AQUA_SECONDS];        /* the root's rate at the end of each second */
    uint32_t looks[4];                     /* evaluations of the maximizer, by enum htb_scenario */
};

/* The paper's set-up: 5, 15 and 20 of 40 MB/s are reserved, the disk serves a little more, 3 x 30 s. */
static inline void aqua_paper(struct aqua *a)
{
    static const struct aqua zero;
    *a = zero;
    a->root_kb_per_s = 40000;
    a->reserved_kb_per_s[0] = 5000;
    a->reserved_kb_per_s[1] = 15000;
    a->reserved_kb_per_s[2] = 20000;
    a->disk_kb_per_s = a->disk_later_kb_per_s = 48000;
    a->stream_start_s = 30;
    a->seconds = 90;
    a->later_s = AQUA_SECONDS;
}

struct aqua_request {
    struct htb_request r;
    uint32_t stream;
    bool busy;
};

struct aqua_state {
    struct htb tree;
    struct aqua_request request[AQUA_STREAMS][AQUA_OUTSTANDING];
    struct aqua_request *fifo[AQUA_STREAMS * AQUA_OUTSTANDING]; /* without QoS */
    uint32_t fifo_head, fifo_count;
    uint64_t next_arrival_ns[AQUA_STREAMS];
    struct aqua_request *at_disk;
    uint64_t disk_done_ns;
    uint64_t memory[4096] __attribute__((aligned(64)));
};

static inline bool aqua_begin(const struct aqua *a, struct aqua_state *s)
{
    struct htb_config config;
    struct htb_class c;
    uint32_t i, k;
    static const struct htb_config no_config;
    static const struct htb_class no_class;
    config = no_config;
    c = no_class;
    config.classes = AQUA_STREAMS + 1;
    config.rate_per_s[0] = a->root_kb_per_s;
    config.request_max_tokens = AQUA_REQUEST_KB;
    config.bound = HTB_BY_RATE; /* the paper's bound */
    config.burst_ns = 50000000; /* longer than the dispatch queue lasts: 4 requests of 10.7 ms */
    config.device_max = 1;      /* "the request at the head of the dispatch queue is removed and sent to the disk" */
    config.dispatch_max = 4;
    if (htb_memsize(&config) > sizeof s->memory || htb_init(&s->tree, s->memory, sizeof s->memory, &config) != QOS_OK)
        return false;
    for (i = 0; i < AQUA_STREAMS; i++) {
        c.rate_per_s[0] = a->reserved_kb_per_s[i];
        if (htb_reserve(&s->tree, 0, i + 1, &c, NULL) != QOS_OK)
            return false;
        s->next_arrival_ns[i] = (uint64_t)i * a->stream_start_s * AQUA_NS_PER_S;
        for (k = 0; k < AQUA_OUTSTANDING; k++) {
            s->request[i][k].stream = i;
            s->request[i][k].r.class_id = i + 1;
            s->request[i][k].r.tokens[0] = AQUA_REQUEST_KB;
            s->request[i][k].r.offset = (uint64_t)(i * AQUA_OUTSTANDING + k) << 20;
        }
    }
    return true;
}

/* Requests that arrive by now_ns. Returns the next arrival, if a time is known. */
static inline uint64_t aqua_arrivals(const struct aqua *a, struct aqua_state *s, uint64_t now_ns)
{
    uint64_t next_ns = QOS_NEVER;
    uint32_t i, k;
    for (i = 0; i < AQUA_STREAMS; i++) {
        for (k = 0; k < AQUA_OUTSTANDING && s->next_arrival_ns[i] <= now_ns; k++) {
            struct aqua_request *r = &s->request[i][k];
            if (r->busy)
                continue;
            r->busy = true;
            if (!a->qos)
                s->fifo[(s->fifo_head + s->fifo_count++) % (AQUA_STREAMS * AQUA_OUTSTANDING)] = r;
            else if (htb_submit(&s->tree, now_ns, &r->r) != QOS_OK)
                r->busy = false;
            if (a->demand_kb_per_s[i])
                s->next_arrival_ns[i] += AQUA_REQUEST_KB * AQUA_NS_PER_S / a->demand_kb_per_s[i];
        }
        if (s->next_arrival_ns[i] > now_ns)
            next_ns = qos_min(next_ns, s->next_arrival_ns[i]);
    }
    return next_ns;
}

static inline void aqua_start_disk(const struct aqua *a, struct aqua_state *s, uint64_t now_ns)
{
    uint64_t rate = now_ns < (uint64_t)a->later_s * AQUA_NS_PER_S ? a->disk_kb_per_s : a->disk_later_kb_per_s;
    if (a->qos) {
        s->at_disk = (struct aqua_request *)(void *)htb_dispatch(&s->tree, now_ns); /* r is its first member */
    } else if (s->fifo_count) {
        s->at_disk = s->fifo[s->fifo_head];
        s->fifo_head = (s->fifo_head + 1) % (AQUA_STREAMS * AQUA_OUTSTANDING);
        s->fifo_count--;
    }
    if (s->at_disk)
        s->disk_done_ns = now_ns + AQUA_REQUEST_KB * AQUA_NS_PER_S / rate;
}

static inline bool aqua_finish_disk(struct aqua *a, struct aqua_state *s, uint64_t now_ns)
{
    struct aqua_request *r = s->at_disk;
    s->at_disk = NULL;
    r->busy = false;
    a->kb[r->stream][now_ns / AQUA_NS_PER_S] += AQUA_REQUEST_KB;
    return !a->qos || htb_complete(&s->tree, now_ns, HTB_DONE, NULL, &r->r) == QOS_OK;
}

static inline uint64_t aqua_root_rate(const struct htb *tree)
{
    struct htb_state report;
    return htb_info(tree, &report) == QOS_OK ? report.rate_per_s[0] : 0;
}

/* Runs the experiment; false if the set-up is invalid (reservations above the root's rate, or too long). */
static inline bool aqua_run(struct aqua *a)
{
    static struct aqua_state state;
    static const struct aqua_state zero;
    uint64_t now_ns = 0, end_ns = (uint64_t)a->seconds * AQUA_NS_PER_S, look_ns = 0;
    state = zero;
    if (a->seconds > AQUA_SECONDS || !aqua_begin(a, &state))
        return false;
    while (now_ns < end_ns) {
        uint64_t next_ns = aqua_arrivals(a, &state, now_ns);
        if (a->maximizer && now_ns >= look_ns) {
            a->looks[htb_maximize(&state.tree, now_ns, false)]++;
            look_ns = now_ns + AQUA_NS_PER_S / 10;
        }
        if (!state.at_disk)
            aqua_start_disk(a, &state, now_ns);
        if (state.at_disk)
            next_ns = qos_min(next_ns, state.disk_done_ns);
        else if (a->qos)
            next_ns = qos_min(next_ns, htb_dispatch_next_ns(&state.tree, now_ns));
        if (a->maximizer)
            next_ns = qos_min(next_ns, look_ns);
        a->root_kb_s[now_ns / AQUA_NS_PER_S] = (double)aqua_root_rate(&state.tree);
        now_ns = qos_min(next_ns, end_ns);
        if (state.at_disk && now_ns == state.disk_done_ns && now_ns < end_ns && !aqua_finish_disk(a, &state, now_ns))
            return false;
    }
    return true;
}

/* Mean KB/s of a stream over the seconds [from, to). */
static inline double aqua_mean(const struct aqua *a, uint32_t stream, uint32_t from, uint32_t to)
{
    double sum = 0;
    uint32_t t;
    for (t = from; t < to; t++)
        sum += a->kb[stream][t];
    return sum / (to - from);
}

#endif
