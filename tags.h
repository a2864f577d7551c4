/* tags.h - reservations, limits, weights and reward       SPDX-License-Identifier: MIT
 *
 * THE PROBLEM
 *
 *   Clients share one storage server. Each was sold a weight, perhaps a reservation (a
 *   minimum of requests per second) and a limit. Which request goes to the device next?
 *   This header answers in O(log n), for 4 million clients, by one of two policies:
 *
 *   TAGS_PS       proportional sharing (mClock): work is shared by weight.
 *   TAGS_REWARD   device time is shared by weight. A client that needs half the time per
 *                 request gets twice the requests, and no other gets fewer.
 *
 * THE MODEL
 *
 *     queues (yours)          three tags per client                  the device (yours)
 *     0 [r][r][r] ----> reservation tag + n / reservation ---+
 *     1 [r] ----------> limit tag       + n / limit       ---+--> grant --> [r][r]
 *     2 [r][r] -------> share tag       + cost / weight   ---+      ^         |
 *                                                                   +---------+
 *     choose:  1. reservation tags that are due, by deadline         complete, fail
 *              2. else the smallest share tag                        or cancel: once
 *              no client whose limit tag is ahead of now
 *
 *   Share tags lie on a virtual axis. V is the point that service has reached. A client
 *   that was idle continues at max(V, its own tag): idle time earns nothing and erases
 *   nothing. One that waited at its limit may be behind V, by the usual lag at most.
 *
 * THE CALLS
 *
 *     #include "tags.h"
 *     #include <stdlib.h>
 *     int main(void)
 *     {
 *         static struct tags_config config; // zero: the default
 *         static const struct tags_client fast = {1, 0, 0}; // weight, reservation, limit
 *         static const struct tags_client slow = {2, 50, 200}; // (_per_s; 0: none)
 *         struct tags_grant grant;
 *         struct tags tags;
 *         config.clients = 2; // ids 0 and 1
 *         void *mem = aligned_alloc(QOS_CACHE_LINE, tags_memsize(&config));
 *         if (!mem || tags_init(&tags, mem, tags_memsize(&config), &config) != QOS_OK)
 *             return 1; // tags_config_error(&config) says why
 *         if (tags_add(&tags, 0, 0, &fast) || tags_add(&tags, 0, 1, &slow) ||
 *             tags_arrive(&tags, 0, 0, 3, 1) || tags_arrive(&tags, 0, 1, 2, 1))
 *             return 1; // 3 requests of client 0, 2 of client 1; each costs 1
 *         while (tags_pull(&tags, 1000, 1, &grant) == QOS_OK) // if costs differ:
 *             if (tags_complete(&tags, 2000, &grant, 1000)) // tags_choose, tags_dispatch
 *                 return 1; // sent the oldest of grant.client; the device took 1000 ns
 *         // none now: sleep until tags_next_ns(&tags, now_ns) or an arrival
 *         free(mem);
 *         return 0;
 *     }
 *
 * THE CONTRACT
 *
 *   That of qos.h. One owner (thread or lock) for each struct tags. Notation: client m
 *   against client f; w the weight (m's largest), R the reservation, L the limit, c the
 *   largest cost of a request; work counts at dispatch, and not if it is cancelled.
 *   Whatever m does (pauses, bursts, failures, cancelled requests, other terms, removal,
 *   wrong costs within cost_max):
 *
 *   - Limit. In any window of t ns m is sent at most  L * (t + limit_burst_ns) / 10^9 + 1
 *     requests, after a pause or a return too. Forced ones add force_debt_requests + 1
 *     (with count_cost, of cost_max).
 *   - Weight (PS). While f keeps requests queued and is below its limit, m gets by weight
 *     and by force, in any window in which f gets W_f in all, at most
 *         W_m / w_m  <=  W_f / w_f  +  k_f c_f / w_f  +  k_m c_m / w_m  +  K
 *     k is 1 (so equal clients with requests of cost 1 differ by at most 2 of them); who
 *     forced some has force_debt_requests + 1 of cost_max more. k_f is lead_requests if f
 *     has a reservation. K is 0, and a lag if m waited at its limit, and a lag but for f,
 *     of before m came, too, if f has a reservation. A lag is the largest c times those
 *     that wait over the sum of their w. TAGS_ALLOW: what is above limits, by itself.
 *   - Weight (reward). The same for charged time: the time used if D, the requests at the
 *     device, is 1; else but for (D - 1) c / w of both, each at least 3/4 of the other. A
 *     service beyond two means counts up to w / (sum of w) * reserve_lag_ns more (stalls
 *     are nobody's). Until they know it four windows of c / w of each more, in waits too.
 *   - Lag. While all keep requests queued, f is behind a fluid that flows by weight by at
 *     most  c_f + w_f / (sum of all w) * (sum of c over the others).
 *   - Reservation. By reservation m gets at most  R_m * (t + reserve_lag_ns) + 2 c_m. If
 *     all reservations fit, f misses from becoming backlogged on what it reserved for the
 *     time of D requests, and one (in any window, or back within 1/R_f: two), besides
 *     what its limit forbids and forced ones take. If they do not fit, or after a stall
 *     (a request longer than reserve_lag_ns, too), all are served in proportion: what is
 *     older than reserve_lag_ns is dropped, the same time for all. Where a part p of the
 *     device is reserved, the weights then wait for  p / (1 - p) * reserve_lag_ns.
 *   - Wait. By reservation at most  2 c_f / R_f  and the time of D requests; by weight
 *     sum over all j of (w_j / w_f * c_f + c_j + w_j K)  of what reservations leave.
 *   - With weight_share_permille at least that part of the work goes by weight;
 *     reservations fit if they fit in the rest, and wait for one more, the time of D + 1.
 *   - A forced request passes all others, also reservations: for the server's own work.
 *   - A client can lie about its cost, up to cost_max, until its requests end. Then what
 *     they took (grant.cost) is charged. Lies of a pair add 2 (D - 1) c / w, the larger.
 *   - Groups. All this holds between two groups and between two clients of one group, not
 *     across. A client's reservation waits for its group: at both levels one more, the
 *     time of D + 1. A group's fits if the longest requests of its clients do. Service
 *     counts at both levels, and the limits of both hold.
 *   - Shared tags: limits and reservations hold for the sum of schedulers. One more if
 *     a burst is less, for each more that forces, each cancelled late. Cuts: chapter.
 *   - Intrusive lists: a client's requests are sent in the order of tags_push, each once.
 */
#ifndef QOS_TAGS_H
#define QOS_TAGS_H

#include "qos.h"

/* ---- configuration and public types -------------------------------------------------------------- */

/* Macros that may be defined before the first include:
 *
 *   TAGS_AXIS_BITS  8..61: share tags are moved back, by a pass over all clients, at V of 2^(this + 2) of work per
 *                   weight (reward: 1/256 ns). The default, 61: more than a year. Less: for tests. */
#if QOS_HAS_ATOMIC64 || defined(QOS_ATOMIC_HOOK)
#define TAGS_HAS_SHARED 1
#else
#define TAGS_HAS_SHARED 0
#endif
#ifndef TAGS_AXIS_BITS
#define TAGS_AXIS_BITS 61
#endif
#if TAGS_AXIS_BITS < 8 || TAGS_AXIS_BITS > 61
#error "TAGS_AXIS_BITS is 8..61"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TAGS_CLIENTS_MAX (UINT32_C(1) << 22)
#define TAGS_WEIGHT_MAX (UINT64_C(1) << 40)
#define TAGS_AT_DEVICE_MAX (UINT32_C(1) << 20)
#define TAGS_CHANNELS_ALL TAGS_AT_DEVICE_MAX /* all requests at the device are served at once */
#define TAGS_WINDOW_MAX 4096
#define TAGS_SHARED_RATE_MAX (UINT64_C(1) << 32) /* shared words count for 136 years at this rate */
#define TAGS_BACKLOG_MAX (UINT32_MAX >> 1)       /* queued requests of one client */
#define TAGS_DEFAULT_AT_DEVICE 64
#define TAGS_DEFAULT_WINDOW 5
#define TAGS_DEFAULT_MOVES 512
#define TAGS_DEFAULT_LEAD_REQUESTS 16
#define TAGS_DEFAULT_FORCE_DEBT_REQUESTS 64
#define TAGS_DEFAULT_LIMIT_BURST_NS UINT64_C(100000000)
#define TAGS_DEFAULT_RESERVE_LAG_NS UINT64_C(1000000000)
#define TAGS_DEFAULT_SERVICE_NS UINT64_C(1000000)
#define TAGS_DEFAULT_SERVICE_FLOOR_NS UINT64_C(100)

enum tags_mode {
    TAGS_REWARD = 0, /* share tags advance by mean service time / weight */
    TAGS_PS = 1      /* by cost / weight */
};

enum tags_at_limit {
    TAGS_WAIT = 0,  /* requests wait until the limit allows them */
    TAGS_ALLOW = 1, /* they wait while others can be served; the device does not idle, their weights decide */
    TAGS_REJECT = 2 /* a request that would wait longer than reject_after_ns is refused: QOS_ELIMIT; see there */
};

enum tags_phase {
    TAGS_PHASE_RESERVATION = 0, /* its reservation tag was due */
    TAGS_PHASE_WEIGHT = 1,      /* the smallest share tag */
    TAGS_PHASE_ABOVE_LIMIT = 2, /* TAGS_ALLOW, all others were at their limits too */
    TAGS_PHASE_FORCED = 3,      /* tags_force */
    TAGS_PHASE_GROUP = 4        /* its group's reservation tag was due, its own was not: the smallest share tag */
};
#define TAGS_PHASES 5

struct tags_config {
    uint32_t clients;               /* ids are 0..clients-1; 1..TAGS_CLIENTS_MAX; with groups a multiple of 8 */
    uint32_t groups;                /* 0: none. Ids of groups follow those of clients: clients..clients+groups-1 */
    uint32_t at_device_max;         /* requests at the device, 1..TAGS_AT_DEVICE_MAX; 0: 64. 96 bytes each */
    enum tags_mode mode;            /* 0: TAGS_REWARD */
    enum tags_at_limit at_limit;    /* 0: TAGS_WAIT */
    bool count_cost;                /* reservations and limits count cost, not requests */
    bool intrusive;                 /* tags_push and tags_pop will be used: 16 bytes a client */
    bool no_completions;            /* TAGS_PS: grants are final; nothing is completed, failed or cancelled */
    bool attribute;                 /* TAGS_REWARD: the header measures service times; see tags_complete */
    bool count_by_client;           /* tags_stats and counters of single clients: 112 bytes a client */
    uint32_t channels;              /* attribute: requests that the device works on at once; TAGS_CHANNELS_ALL; 0: not
                                       known, and unless at_device_max is 1, cost is shared instead of time */
    uint32_t window;                /* the N of mean service times, 1..TAGS_WINDOW_MAX; 0: 5 */
    uint32_t lead_requests;         /* requests by which reservations let a share tag lead V, 1..65536; 0: 16 */
    uint32_t weight_share_permille; /* least part of the work that goes by weight, 0..999; 0: none */
    uint32_t moves_max;             /* clients that one call moves between its trees; 0: 512 */
    uint64_t cost_max;              /* the unit of cost: the largest of a request, 1..QOS_TOKENS_MAX; 0: 1 */
    uint64_t capacity_per_s;        /* for admission: the device's worst case; 0: everything is admitted */
    uint64_t limit_burst_ns;        /* unused limit that is kept while a request is queued or at the device (who was
                                       idle begins with one); up to 2^62; 0: 100 ms; QOS_NOTHING */
    uint64_t reserve_lag_ns;        /* unserved reservation that is made up; up to 2^62; 0: 1 s; QOS_NOTHING */
    uint64_t reject_after_ns;       /* TAGS_REJECT: the longest wait at its limit, and at its group's if nobody else in
                                       it sent any more, that is accepted; 0: none. Siblings that do come between */
    uint64_t force_debt_requests;   /* forced requests of cost_max (reward: of 3/4 of the mean service) that a client
                                       may owe, 1..65536; 0: 64; QOS_NOTHING */
    uint64_t service_ns;            /* TAGS_REWARD: the largest first estimate, 1..QOS_TOKENS_MAX; 0: 1 ms. Until the
                                       first completion c is at least this */
    uint64_t service_floor_ns;      /* TAGS_REWARD: least charge of a request, up to 1 s; 0: 100 ns; QOS_NOTHING */
    struct tags_shared *shared;     /* reservations and limits that several schedulers share; NULL: none */
};

/* A client's terms. Requests per second; cost per second with count_cost. */
struct tags_client {
    uint64_t weight;            /* 1..TAGS_WEIGHT_MAX; 0: 1 */
    uint64_t reservation_per_s; /* up to QOS_RATE_MAX; 0: none */
    uint64_t limit_per_s;       /* reservation_per_s..QOS_RATE_MAX; 0 or QOS_UNLIMITED: none; not QOS_NOTHING */
};

/* The next client, and why. */
struct tags_choice {
    uint32_t client;
    enum tags_phase phase;
};

/* One dispatched request. Read client and phase. cost is what was said at dispatch; if the request took another one,
 * set it before tags_complete. The other fields are the scheduler's. */
struct tags_grant {
    uint32_t client;
    enum tags_phase phase;
    uint32_t slot;
    uint32_t cost;
    uint64_t serial;
};

/* Intrusive request. Set cost, rho and delta (see tags_dispatch); the other fields are set by the scheduler. */
struct tags_request {
    struct tags_request *next, *prev;
    uint64_t cost;
    uint32_t client; /* set by tags_push */
    uint32_t rho, delta;
    struct tags_grant grant; /* set by tags_pop */
};

/* One client, or all of them, now. Counters of one client are 0 without config.count_by_client. */
struct tags_state {
    uint64_t served[TAGS_PHASES]; /* dispatches so far, by enum tags_phase */
    uint64_t cancelled, failed, given_up;
    uint64_t device_ns;   /* TAGS_REWARD: service times so far */
    uint64_t floor_ns;    /* TAGS_REWARD: what service_floor_ns added to them */
    uint64_t forgiven_ns; /* TAGS_REWARD: what was so long that nobody is charged for it (a stall) */
    uint64_t queued, at_device;
    uint64_t mean_service_ns; /* of one client, TAGS_REWARD; 0 before its first completion */
    uint64_t limit_ahead_ns;  /* of one client: how far its limit tag is ahead of the latest time seen */
    uint64_t reserved_per_s;
    uint64_t admissible_per_s; /* the largest reservation that would be admitted: of a new client, or of this one */
    uint64_t clock_behind_ns;  /* of all: time of reserved service that was dropped, the same for all */
    bool waiting_at_limit;     /* of one client, or a group that all its clients make wait */
    bool as_serial;            /* of all: attribute with channels > 1, but the device is taken for a serial one */
    bool by_time;              /* of all: shares follow device time. false: cost (TAGS_PS, or channels not known) */
};

/* dmClock, at the client: what it was served by all its servers, and by one of them. Begin with zeros. */
struct tags_tracker {
    uint64_t done, reserved;
};
struct tags_tracker_server {
    uint64_t done, reserved;                   /* by this server */
    uint64_t reported_done, reported_reserved; /* what this server was told of the others */
};

/* Tags that several schedulers share: in memory that all of them map, without pointers. */
struct tags_shared_config {
    uint32_t clients;        /* 1..TAGS_CLIENTS_MAX */
    uint64_t reserve_lag_ns; /* as in tags_config */
    uint64_t limit_burst_ns; /* as in tags_config */
};

struct tags;
struct tags_shared;

/* ---- the API at a glance --------------------------------------------------------------------------
 *
 *   set up       tags_config_error, tags_client_error   what is wrong with a configuration, with terms
 *                tags_memsize, tags_init                the caller's memory
 *   clients      tags_add, tags_change, tags_remove     terms; debts outlive removal
 *   groups       tags_group_add                         the clients of a tenant; then as a client
 *   requests     tags_arrive, tags_withdraw             counts: the queues are the caller's
 *                tags_push, tags_unlink, tags_head      intrusive: the queues are the scheduler's
 *   dispatch     tags_pull, tags_pop                    the next request
 *                tags_choose, tags_dispatch             the same in two steps, with cost, rho and delta
 *                tags_force                             now, with a bounded debt
 *                tags_next_ns                           how long to sleep
 *   afterwards   tags_complete, tags_fail, tags_cancel  done, failed at the device, never reached it
 *                tags_give_up                           a completion that does not come
 *   look         tags_stats, tags_info                  counters, one client or all
 *   many servers tags_tracker_send, _done, _server_lost dmClock's rho and delta, at the client
 *   many queues  tags_shared_config_error, _memsize,    one reservation and limit over several schedulers
 *                _init, _change
 */

/* ---- the API --------------------------------------------------------------------------------------
 *
 * Single owner. now_ns is monotonic. One before the latest time seen counts as that; one more than a year ahead is
 * ignored. If it is more than a second before, the clock was set back: time continues from the latest, after it stood
 * still for limit_burst_ns and the longest time of one request at a limit (up to a second), and for 16 calls, until a
 * now_ns reaches the latest again: at once, if it comes within 1/16 s of it. So stale ones (but see tags_complete for
 * attribute) give no client anything, and stop no time if right ones come each 1/16 s: unless more than 16 in a row go
 * forward, as the times of a clock that was set back. Wrong ones between right ones, however many, give at most a
 * second and limit_burst_ns of its limit, if a second of it is a request or more, and what it owes for forced requests;
 * and what time they go on by in steps of up to 1/16 s.
 *
 * An id is below config.clients; one that was not added gives QOS_ENOENT. Calls take O(log n), and O(log n) for each
 * client at its limit or due by reservation that they meet: once for each of its dispatches, and in one call for
 * config.moves_max of them. */

/* NULL, or a sentence that names the field and says what to do. */
QOS_API const char *tags_config_error(const struct tags_config *config);
QOS_API const char *tags_client_error(const struct tags_client *terms);
/* Bytes to hand to tags_init; 0 if the configuration is invalid. */
QOS_API size_t tags_memsize(const struct tags_config *config);
/* mem: aligned to QOS_CACHE_LINE. QOS_ERANGE, QOS_EINVAL: see tags_config_error, or mem is NULL (QOS_EINVAL);
 * QOS_EMEMORY, QOS_EALIGN. The configuration is copied. O(n). */
QOS_API QOS_NODISCARD enum qos_status tags_init(struct tags *tags, void *mem, size_t size_bytes,
                                                const struct tags_config *config);

/* Makes id a client. What an id owed when it was removed it owes still, so give a tenant the same id again.
 * QOS_EEXIST: it is one. QOS_ERANGE: see tags_client_error. QOS_EINVAL: not the terms of the shared tags.
 * QOS_EADMISSION: the reservation does not fit; tags_info says what would. */
QOS_API QOS_NODISCARD enum qos_status tags_add(struct tags *tags, uint64_t now_ns, uint32_t id,
                                               const struct tags_client *terms);
/* New terms from now on. A tag ahead of now keeps its lead, in requests. One behind keeps its arrears, in requests, but
 * never gets more time than before: a reservation that changes at every dispatch counts as the lower one. */
QOS_API QOS_NODISCARD enum qos_status tags_change(struct tags *tags, uint64_t now_ns, uint32_t id,
                                                  const struct tags_client *terms);
/* Makes id a group: the ids first..first+clients-1 are its clients, once they are added; they owe nothing inside. first
 * and clients are multiples of 8 (QOS_EINVAL), no id is in two groups (QOS_EEXIST); else as tags_add. With
 * config.groups, each client is in a group: QOS_ENOENT for tags_add of another. The reservations of its clients add up
 * to at most its own (QOS_EADMISSION, also for a change of the group). tags_change, tags_remove, tags_info and
 * tags_stats take its id, too; tags_remove gives QOS_EBUSY while it has clients or grants. O(clients). */
QOS_API QOS_NODISCARD enum qos_status tags_group_add(struct tags *tags, uint64_t now_ns, uint32_t id,
                                                     const struct tags_client *terms, uint32_t first, uint32_t clients);
/* Removes the client. Its queued requests are dropped (*dropped, which may be NULL: how many); an intrusive list stays
 * intact: take tags_head first to walk it. Its reservation is free at once. Grants at the device must still be
 * completed, failed or cancelled. */
QOS_API QOS_NODISCARD enum qos_status tags_remove(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t *dropped);

/* count (1 or more) requests of cost each (as in tags_dispatch) arrived. QOS_ELIMIT: refused at the limit, all of
 * them, at no cost. QOS_EFULL: more than TAGS_BACKLOG_MAX queued. QOS_ERANGE: count or cost. */
QOS_API QOS_NODISCARD enum qos_status tags_arrive(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t count,
                                                  uint64_t cost);
/* count queued requests leave unserved, at no cost. QOS_ERANGE: 0, or more than are queued. */
QOS_API QOS_NODISCARD enum qos_status tags_withdraw(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t count);

/* Chooses the next client. QOS_EAGAIN: none now; tags_next_ns gives the time, which is now if there is more to do than
 * config.moves_max. Charges nothing: who is due or at its limit is looked up, and may be moved to its tree. */
QOS_API QOS_NODISCARD enum qos_status tags_choose(struct tags *tags, uint64_t now_ns, struct tags_choice *choice);
/* Sends the oldest request of the chosen client. cost: 1..config.cost_max, 0 counts as 1; QOS_ERANGE above. It is
 * used by TAGS_PS and with count_cost. rho <= delta: what the client was served elsewhere since its last request
 * here, by reservation and in all; 0 on a single server. QOS_EINVAL: no request queued, or no such phase; QOS_EFULL:
 * at_device_max. QOS_EAGAIN (shared tags only): another scheduler was faster; choose again. */
QOS_API QOS_NODISCARD enum qos_status tags_dispatch(struct tags *tags, uint64_t now_ns,
                                                    const struct tags_choice *choice, uint64_t cost, uint32_t rho,
                                                    uint32_t delta, struct tags_grant *grant);
/* Both, with rho = delta = 0. If costs differ, call both: the cost is known after tags_choose. QOS_EFULL: as above. */
QOS_API QOS_NODISCARD enum qos_status tags_pull(struct tags *tags, uint64_t now_ns, uint64_t cost,
                                                struct tags_grant *grant);
/* Sends a request that was never queued (flush, journal) at once, past limits and tags, and charges it. QOS_EDEBT:
 * the client owes force_debt_requests already, to others or to its limit. While nothing is queued and the device is
 * idle (no_completions: while nothing is queued), it owes nothing to others. */
QOS_API QOS_NODISCARD enum qos_status tags_force(struct tags *tags, uint64_t now_ns, uint32_t id, uint64_t cost,
                                                 struct tags_grant *grant);
/* First time at which tags_choose finds a client if nothing arrives or completes: now_ns if now, QOS_NEVER if none
 * waits or the device is full. Exact for up to a year; early with shared tags, and after a setback of now_ns, up to 16
 * times. */
QOS_API uint64_t tags_next_ns(struct tags *tags, uint64_t now_ns);

/* The device is done with it. service_ns: the time that the device spent on it; with one request at a time, the time
 * since its dispatch. With more, set config.attribute: the header measures, service_ns is ignored, and all completions
 * of one now_ns count as one look at the device. So dispatch and completion need one clock, read when they are made:
 * with completions older by a service, one of two equal clients had 15 times the time. grant->cost (0: as at dispatch)
 * is charged where the cost at dispatch was. Shares are then as if that had been said; limit and reservation get back
 * what tags_cancel gives, so say the usual cost, not the largest. QOS_ERANGE: above config.cost_max. QOS_ESTALE: was
 * given back before. */
QOS_API QOS_NODISCARD enum qos_status tags_complete(struct tags *tags, uint64_t now_ns, const struct tags_grant *grant,
                                                    uint64_t service_ns);
/* The same for a request that failed at the device: charged like any other, as the device worked on it. */
QOS_API QOS_NODISCARD enum qos_status tags_fail(struct tags *tags, uint64_t now_ns, const struct tags_grant *grant,
                                                uint64_t service_ns);
/* It never reached the device: what it was charged is given back, as far as it was not overtaken meanwhile (by V, by
 * the clock, by limit_burst_ns), but for rho and delta: those were served. With attribute, its client pays the time in
 * which it may have kept the device. It is not queued again. Takes O(requests that were dispatched after it). */
QOS_API QOS_NODISCARD enum qos_status tags_cancel(struct tags *tags, uint64_t now_ns, const struct tags_grant *grant);
/* Gives up the oldest request at the device if it was dispatched at least age_ns ago; it counts as failed. Its
 * completion, should it come, is stale. QOS_EAGAIN: none is that old. *grant: which it was. */
QOS_API QOS_NODISCARD enum qos_status tags_give_up(struct tags *tags, uint64_t now_ns, uint64_t age_ns,
                                                   struct tags_grant *grant);

/* Intrusive requests (config.intrusive; QOS_EINVAL without, and for tags_arrive and tags_withdraw with it). push: as
 * tags_arrive. pop: as tags_pull, with the request's own cost, rho and delta. unlink: takes a queued request back,
 * O(1). head: the client's oldest queued request, from which `next` leads to the others; NULL: none. */
QOS_API QOS_NODISCARD enum qos_status tags_push(struct tags *tags, uint64_t now_ns, uint32_t id,
                                                struct tags_request *request);
QOS_API QOS_NODISCARD enum qos_status tags_pop(struct tags *tags, uint64_t now_ns, struct tags_request **request);
QOS_API QOS_NODISCARD enum qos_status tags_unlink(struct tags *tags, uint64_t now_ns, struct tags_request *request);
QOS_API struct tags_request *tags_head(const struct tags *tags, uint32_t id);

/* Counters of all clients (QOS_NONE) or of one since init. granted, borrowed: requests, or cost with count_cost; in
 * all, and not by reservation. waited: times that a client had to wait at its limit. debt: by how many requests (cost
 * with count_cost) the last forced request left its client ahead of its limit. Any thread at any time, wait-free.
 * QOS_EINVAL: one client without config.count_by_client. */
QOS_API QOS_NODISCARD enum qos_status tags_stats(const struct tags *tags, uint32_t id, struct qos_stats *out);
/* One client, or all (QOS_NONE). Owner only. */
QOS_API QOS_NODISCARD enum qos_status tags_info(const struct tags *tags, uint32_t id, struct tags_state *out);

/* The client of several servers. send: rho and delta for the next request to this server, not for a forced one, which
 * carries none. done: a server's answer arrived, served in this phase, with this many units (1, or the cost with
 * count_cost). lost: the request that carried rho and delta was never dispatched. */
QOS_API void tags_tracker_send(const struct tags_tracker *tracker, struct tags_tracker_server *server, uint32_t *rho,
                               uint32_t *delta);
QOS_API void tags_tracker_done(struct tags_tracker *tracker, enum tags_phase phase, uint32_t units,
                               struct tags_tracker_server *server);
QOS_API void tags_tracker_server_lost(struct tags_tracker_server *server, uint32_t rho, uint32_t delta);

#if TAGS_HAS_SHARED
/* Shared tags. shared: 8-byte aligned, in memory that all schedulers map. init: once, before any scheduler attaches
 * (config.shared). change: a client's terms, while no scheduler has it as a client or requests of it at the device;
 * QOS_ERANGE above TAGS_SHARED_RATE_MAX. Dispatches claim from the words lock-free, whatever number of schedulers. */
QOS_API const char *tags_shared_config_error(const struct tags_shared_config *config);
QOS_API size_t tags_shared_memsize(const struct tags_shared_config *config);
QOS_API QOS_NODISCARD enum qos_status tags_shared_init(struct tags_shared *shared, uint64_t now_ns, size_t size_bytes,
                                                       const struct tags_shared_config *config);
QOS_API QOS_NODISCARD enum qos_status tags_shared_change(struct tags_shared *shared, uint64_t now_ns, uint32_t id,
                                                         const struct tags_client *terms);
#endif

/* ==== chapter: tags ================================================================================
 *
 *   The three tags of the first page (paper, Algorithms 1 and 2). Limit and reservation tags are whole ns and a
 *   remainder in units of 1/rate ns: rates are kept to the last request. Share tags are on the virtual axis (start-time
 *   fair queueing), work per weight with 62 fraction bits. V rises, at each dispatch and arrival, to the smallest of
 *   those that wait.
 *
 *       finished work        V          tags of clients that wait
 *       ---------------------|--x----x-----x-------------------> work per weight
 *         x idle: returns at V^              x idle: returns here
 *
 *   A client at its limit waits, too, so it keeps what V passes its tag by, up to the lag of the first page: without
 *   it, one whose limit is near its share loses up to 30 %. TAGS_ALLOW: above limits, surplus tags decide.
 *
 *   Reservations let a tag run ahead of V: a request by reservation is not charged to the share tag if that would then
 *   lead V by more than lead_requests of the client's and the lag but for its own part. So its share is back at once
 *   when it exceeds the reservation again. V stands while each of the others is served once: without the lag, a client
 *   with small requests got nearly its reservation besides its share. Where most of the weight goes by reservation, V
 *   stands for longer: large requests with small weights may lose a quarter of their shares.
 *
 *   The reservation clock is real time minus what was dropped; a tag is due when the clock has reached it. Of those
 *   that are due, the first deadline goes first: tag + n / R, the tag after the next request. When a deadline is missed
 *   by more than reserve_lag_ns, the clock is moved back for all: so all are cut in proportion. A client that returns
 *   continues at max(own tag, min(clock, earliest deadline of those that wait)); with a request at the device one
 *   request behind that. From its limit it continues at what that was when the limit tag was due; a group one request
 *   behind, as its reservation also serves those of its clients.
 *
 *   Invariants
 *   1. V never falls. A client's tag is behind it by at most the usual lag, or by what a completion gave back.
 *   2. s holds the clients that wait and may be sent as far as is known; those of them with a reservation are in r, by
 *      tag, or in d, by deadline, if they were seen to be due.
 *   3. l holds the clients that waited at their limit when they were last looked at. TAGS_ALLOW: they are in s, too,
 *      behind all others (the top bit of the key), by surplus tag.
 *   4. A client outside r and d does not hold the reservation clock back.
 *   5. A refund takes back no part of a tag that V, the clock or the burst has passed, and no part twice. But the true
 *      cost corrects a share tag in full.
 *
 *   s, r, d and l are tournament trees over the dense ids, 4-ary with 16-byte keys (s), 8-ary with 8-byte keys. Places
 *   are fixed: the path of an update is known from the id alone, so the loads of all levels overlap, hardly a branch
 *   depends on the keys, and no index of positions is kept. From 10,000 clients on a client takes 177 bytes, under
 *   reward 193, with TAGS_ALLOW 16 more, with groups 40.
 */

/* A share tag as a key of s: the low 22 bits are the id, so equal tags go by id. */
#define TAGS_PRIV_ID_MASK ((UINT64_C(1) << 22) - 1)
#define TAGS_PRIV_ABSENT UINT64_MAX
#define TAGS_PRIV_AT_LIMIT (UINT64_C(1) << 63)
#define TAGS_PRIV_AXIS_END (UINT64_C(1) << TAGS_AXIS_BITS) /* in the high word, 4 units of work per weight each */
#define TAGS_PRIV_LEAD_MAX (UINT64_C(1) << 61)
#define TAGS_PRIV_UNIT_LEAST (UINT64_C(1) << 42) /* weights above 2^20 take 32 bits more */
#define TAGS_PRIV_AMOUNT_MAX (UINT64_C(1) << 54) /* of one charge; times a unit of at most 2^62: below 2^116 */
#define TAGS_PRIV_SETBACK_NS QOS_NS_PER_S        /* a clock further behind was set back */
#define TAGS_PRIV_NEAR_NS (QOS_NS_PER_S / 16)    /* a time so little after the latest shows that that was right */
#define TAGS_PRIV_LEAP_NS (UINT64_C(1) << 55)    /* a year; a time further ahead is ignored */
#define TAGS_PRIV_LONGEST_NS (UINT64_C(1) << 62) /* of a burst or a lag */
#define TAGS_PRIV_S_LEVELS 11                    /* 4^11 = TAGS_CLIENTS_MAX */
#define TAGS_PRIV_T_LEVELS 8                     /* 8^8 > TAGS_CLIENTS_MAX */

/* A part of a call without groups, which a call with groups makes twice, the second time out of line. */
#define TAGS_PRIV_INLINE QOS_PRIV __attribute__((always_inline))

/* packed: weight (41 bits), flags */
#define TAGS_PRIV_WEIGHT_MASK ((UINT64_C(1) << 41) - 1)
#define TAGS_PRIV_CLIENT (UINT64_C(1) << 50)   /* the id is a client */
#define TAGS_PRIV_WAITING (UINT64_C(1) << 51)  /* at its limit; has requests queued */
#define TAGS_PRIV_RESERVED (UINT64_C(1) << 52) /* has a reservation */
#define TAGS_PRIV_LIMITED (UINT64_C(1) << 53)  /* has a limit */
#define TAGS_PRIV_DUE (UINT64_C(1) << 54)      /* in d: its reservation tag is due */
#define TAGS_PRIV_CAME (UINT64_C(1) << 55)     /* came, or has new terms, since its last dispatch: see skipped */

struct tags_priv_hot {
    struct qos_u128 tag; /* work (reward: 1/256 ns) per weight: 66 integer bits, 62 fraction bits */
    uint64_t unit;       /* floor(2^62 / w) */
    uint64_t packed;     /* weight and flags */
    uint32_t queued, at_device;
};
QOS_STATIC_ASSERT(sizeof(struct tags_priv_hot) == 40, "what a dispatch touches is small");

/* Limit or reservation tag: tag_ns + rest / rate ns. */
struct tags_priv_rate {
    uint64_t tag_ns;
    uint64_t rate_per_s; /* 0: no such tag. Between the two that change: see struct tags_priv_node */
    uint64_t rest;       /* < rate */
    uint64_t skipped_ns; /* by which it was raised since the last dispatch; of a group: in all */
};

/* Of a client: what the tags of its group had skipped at its last dispatch. Of a group: what of that is used up. */
struct tags_priv_skips {
    struct qos_u128 share;
    uint64_t limit_ns, reserve_ns;
    uint64_t away_ns; /* of a client: for how long its queue was empty since; if it is: minus when it became so */
};

/* The mean service time; see "parallel devices". */
struct tags_priv_mean {
    uint64_t amount; /* in 1/256 ns */
    uint32_t count;  /* of the services in it, as far as it matters */
};

/* Four keys of s: a cache line. Not as pairs: what was stored as two words is slow to load as one of 16 bytes. */
struct tags_priv_node {
    uint64_t hi[4], lo[4];
};

/* r, d or l. */
struct tags_priv_tree {
    uint64_t least; /* TAGS_PRIV_ABSENT: empty */
    uint64_t *key;
};

/* Those that compete with each other: all clients; with groups, all groups, and the clients of each group. */
struct tags_priv_pool {
    struct qos_u128 v; /* V */
    struct qos_u128 surplus_v;
    struct qos_u128 s_top; /* the least key of s */
    struct tags_priv_node *s;
    struct tags_priv_tree r, d, l;
    uint64_t behind_ns;              /* the reservation clock is now_ns - behind_ns */
    uint64_t reserved_sum;           /* of all clients */
    uint64_t rate_max;               /* the largest reservation so far */
    uint64_t largest;                /* amount charged to a share tag lately; see tags_priv_off_limit */
    uint64_t weights;                /* sum over the clients with requests queued */
    uint32_t backlogged;             /* clients with requests queued */
    uint32_t first, places, members; /* its ids are first..first+places-1, of which so many are clients */
    uint32_t s_levels, t_levels;
    uint32_t s_base[TAGS_PRIV_S_LEVELS], t_base[TAGS_PRIV_T_LEVELS]; /* counted in nodes */
};

struct tags_priv_queue {
    struct tags_request *head, *tail;
};

/* What a client or its group was charged for a request: flags, and where its charges ended on its tags. */
#define TAGS_PRIV_BY_RESERVE 1u /* its own cost was charged to the reservation tag, not only rho */
#define TAGS_PRIV_BY_LIMIT 2u   /* charged to the limit tag */
#define TAGS_PRIV_NO_SHARE 4u   /* not charged to the share tag, as a reservation had led it too far */
#define TAGS_PRIV_SURPLUS 8u    /* charged to the surplus tag instead of the share tag */
#define TAGS_PRIV_EARNED 16u    /* added to the credit of the weight phase */
#define TAGS_PRIV_SPENT 32u     /* taken from it */
#define TAGS_PRIV_AT_WORK 64u   /* among the M oldest */
struct tags_priv_charge {
    uint64_t limit_ns, reserve_ns;
    struct qos_u128 share; /* or on the surplus tag */
};

/* A request at the device; see "requests". */
struct tags_priv_slot {
    uint64_t serial;     /* of its grant; 0: given back */
    uint32_t next, prev; /* in order of dispatch; next also links what is free */
    uint32_t batch;      /* next of the completions of one moment */
    uint32_t cost, rho, delta;
    uint64_t amount; /* its work, what the share tag is charged times the weight; reward: in 1/256 ns */
    uint64_t entered, dispatch_ns;
    uint32_t client;
    uint16_t flags[2];           /* of what the client was charged, and its group */
    struct tags_priv_charge own; /* the client's; that of its group is in outer */
};
QOS_STATIC_ASSERT(sizeof(struct tags_priv_slot) == 96, "a slot is a cache line and a half");

struct tags_priv_counters {
    struct qos_counters all;
    qos_counter_t served[TAGS_PHASES], cancelled, failed, given_up, device_ns, debt;
};
QOS_STATIC_ASSERT(sizeof(struct tags_priv_counters) == 112, "as the manual says");

struct tags {
    struct tags_priv_pool root;  /* all clients, or all groups */
    uint64_t base_ns;            /* taken off now_ns of the calls: the first one - 1 if that is 2^62 or more, else 0 */
    uint64_t now_ns;             /* latest time seen, on the time line of the tags: now_ns - base_ns + shift_ns */
    uint64_t shift_ns;           /* mod 2^64; not 0 while the caller's clock is behind now_ns, or a year ahead */
    uint64_t plain_ns;           /* a now_ns less than this after the latest is as it is; 0: shifted, based, or large */
    uint64_t late_ns;            /* how far the last now_ns was behind that came late */
    uint64_t held_ns, stood_ns;  /* after a setback: for how long time stands still; how long it did so far */
    uint64_t held_step_ns;       /* what one call uses up of held_ns */
    uint64_t spacing_ns;         /* the longest time of one request at a limit, up to a second */
    uint64_t queued;             /* requests, all clients */
    uint32_t at_device;          /* the same */
    uint64_t serial;             /* of the last grant */
    uint64_t first_mean;         /* the estimate of a client without history */
    int64_t weight_credit;       /* work that is due to the weight phase, times 1000 */
    uint32_t ids, grouped;       /* clients and groups; clients if there are groups, else 0 */
    uint32_t *group;             /* the id of a client's group, or QOS_NONE; NULL without groups */
    struct tags_priv_pool *pool; /* of each group, else NULL */
    struct tags_priv_node *s;    /* nodes of all pools */
    uint64_t *t;                 /* those of r, d and l of each pool, eight keys each */
    struct tags_priv_hot *hot;
    uint32_t *rest; /* of a large weight: 32 more bits of the tag */
    struct tags_priv_rate *limit, *reserve;
    struct qos_u128 *skipped;             /* by how much V has passed the share tag since the last dispatch */
    struct tags_priv_skips *seen;         /* with groups, else NULL */
    struct qos_u128 *surplus;             /* TAGS_ALLOW, else NULL */
    uint32_t *reserve_units;              /* count_cost: of its last request; of a group: of a large one; else NULL */
    struct tags_priv_mean *mean;          /* TAGS_REWARD, if device time is known, else NULL */
    struct tags_priv_queue *queue;        /* intrusive, else NULL */
    uint64_t *queued_cost;                /* TAGS_REJECT and count_cost: cost queued per client, else NULL */
    struct tags_priv_counters *by_client; /* count_by_client, else NULL */
    struct tags_priv_slot *slot;          /* one with no_completions, through which every request passes */
    struct tags_priv_charge *outer;       /* of each slot: what the group was charged, else NULL */
    uint64_t passed;                      /* device time per request at work, in 1/256 ns */
    uint64_t passed_ns, batch_ns;         /* device time: until when passed counts; of the completions in batch */
    uint32_t oldest, newest, free_slot;   /* slots */
    uint32_t worked_last, worked;         /* the newest slot that the device works on; how many */
    uint32_t at_work_max;                 /* M, or 1 while the device does not keep the order */
    uint32_t out_of_order, serial_for;    /* part of the completions, times 65536; completions until M holds again */
    uint32_t batch, batch_count;          /* completions that share a now_ns */
    uint32_t given_rest;                  /* 1/256 ns of measured time not yet given out */
    struct tags_config config;            /* defaults filled in */
    struct tags_priv_counters counters;
    qos_counter_t floor_ns, forgiven_ns;
};

struct tags_shared {
    uint64_t base_ns, reserve_lag_ns, limit_burst_ns, clients;
};

#ifndef QOS_DECLARE_ONLY

/* -- trees */

#if QOS_HAS_INT128
__extension__ typedef unsigned __int128 tags_priv_u128;

QOS_PRIV tags_priv_u128 tags_priv_native(struct qos_u128 a)
{
    return (tags_priv_u128)a.hi << 64 | a.lo;
}
#endif

QOS_PRIV bool tags_priv_less(struct qos_u128 a, struct qos_u128 b)
{
#if QOS_HAS_INT128
    return tags_priv_native(a) < tags_priv_native(b);
#else
    return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
#endif
}

/* Between native integers compilers choose without a branch. */
QOS_PRIV struct qos_u128 tags_priv_least(struct qos_u128 a, struct qos_u128 b)
{
#if QOS_HAS_INT128
    tags_priv_u128 x = tags_priv_native(a), y = tags_priv_native(b), least = y < x ? y : x;
    a.hi = (uint64_t)(least >> 64);
    a.lo = (uint64_t)least;
    return a;
#else
    return tags_priv_less(b, a) ? b : a;
#endif
}

QOS_PRIV struct qos_u128 tags_priv_most_of(struct qos_u128 a, struct qos_u128 b)
{
    return tags_priv_less(a, b) ? b : a;
}

QOS_PRIV struct qos_u128 tags_priv_wide(uint64_t hi, uint64_t lo)
{
    struct qos_u128 r;
    r.hi = hi;
    r.lo = lo;
    return r;
}

/* Nodes of `arity` keys per level over n places; base: where each level begins. Returns how many there are. */
QOS_PRIV uint32_t tags_priv_nodes(uint32_t n, uint32_t arity, uint32_t *levels, uint32_t *base)
{
    uint32_t total = 0;
    *levels = 0;
    do {
        n = (n + arity - 1) / arity;
        base[(*levels)++] = total;
        total += n;
    } while (n > 1);
    return total;
}

QOS_PRIV struct qos_u128 tags_priv_s_key(const struct tags_priv_node *node, size_t at)
{
    return tags_priv_wide(node->hi[at], node->lo[at]);
}

/* Puts a key at its place and lets the winners rise; stops where the winner stays the same. lower: it came, or is less
 * than before, so nobody else becomes the least. */
TAGS_PRIV_INLINE void tags_priv_s_put(struct tags_priv_pool *pool, uint32_t id, struct qos_u128 key, bool lower)
{
    size_t i = id - pool->first;
    struct tags_priv_node *node = pool->s + (i >> 2);
    struct qos_u128 others = key;
    uint32_t k;
    for (k = 1;; k++) {
        const size_t at = i & 3;
        if (!lower) {
            others = tags_priv_least(tags_priv_s_key(node, at ^ 1), tags_priv_s_key(node, at ^ 2));
            others = tags_priv_least(others, tags_priv_s_key(node, at ^ 3));
        }
        node->hi[at] = key.hi;
        node->lo[at] = key.lo;
        key = lower ? key : tags_priv_least(key, others);
        if (k >= pool->s_levels)
            break;
        i >>= 2;
        node = pool->s + pool->s_base[k] + (i >> 2);
        if (lower ? !tags_priv_less(key, tags_priv_s_key(node, i & 3))
                  : ((node->hi[i & 3] ^ key.hi) | (node->lo[i & 3] ^ key.lo)) == 0)
            return;
    }
    if (!lower || tags_priv_less(key, pool->s_top))
        pool->s_top = key;
}

/* The same in r, d or l. */
QOS_PRIV void tags_priv_t_put(const struct tags_priv_pool *pool, struct tags_priv_tree *tree, uint32_t id, uint64_t key)
{
    size_t i = id - pool->first;
    uint32_t k;
    for (k = 0; k < pool->t_levels; k++, i >>= 3) {
        uint64_t *node = tree->key + 8 * (pool->t_base[k] + (i >> 3));
        if (k > 0 && node[i & 7] == key)
            return;
        node[i & 7] = key;
        key = qos_min(qos_min(qos_min(node[0], node[1]), qos_min(node[2], node[3])),
                      qos_min(qos_min(node[4], node[5]), qos_min(node[6], node[7])));
    }
    tree->least = key;
}

/* The lowest id that holds the least key; the tree is not empty. */
QOS_PRIV uint32_t tags_priv_t_top(const struct tags_priv_pool *pool, const struct tags_priv_tree *tree)
{
    uint32_t k, i = 0;
    for (k = pool->t_levels; k > 0; k--) {
        const uint64_t *node = tree->key + 8 * (pool->t_base[k - 1] + i);
        for (i *= 8; *node != tree->least; node++)
            i++;
    }
    return pool->first + i;
}

/* -- limit and reservation tags */

/* Due from this ns on: rounded up, so never early. */
QOS_PRIV uint64_t tags_priv_rate_key(const struct tags_priv_rate *p)
{
    return qos_min(qos_sat_add(p->tag_ns, p->rest != 0), TAGS_PRIV_ABSENT - 1);
}

QOS_PRIV void tags_priv_rate_raise(struct tags_priv_rate *p, uint64_t floor_ns)
{
    if (p->tag_ns >= floor_ns)
        return;
    p->tag_ns = floor_ns;
    p->rest = 0;
}

/* Adds units / rate. units < 2^33, a rest < 2^40: below 2^63. */
QOS_PRIV void tags_priv_rate_add(struct tags_priv_rate *p, uint64_t units)
{
    const uint64_t all = units * QOS_NS_PER_S + p->rest;
    p->rest = all % p->rate_per_s;
    p->tag_ns = qos_sat_add(p->tag_ns, all / p->rate_per_s);
}

QOS_PRIV void tags_priv_rate_return(struct tags_priv_rate *p, uint64_t floor_ns)
{
    p->skipped_ns = qos_sat_add(p->skipped_ns, qos_sat_sub(floor_ns, p->tag_ns));
    tags_priv_rate_raise(p, floor_ns);
}

/* Adds units that were served elsewhere, for which the time that the tag is behind, or skipped, has passed already. */
QOS_PRIV_NOINLINE void tags_priv_rate_bring(struct tags_priv_rate *p, uint64_t floor_ns, uint64_t units)
{
    uint64_t tag_ns;
    tags_priv_rate_return(p, floor_ns);
    tag_ns = p->tag_ns;
    p->tag_ns = qos_sat_sub(tag_ns, p->skipped_ns);
    tags_priv_rate_add(p, units);
    p->skipped_ns = qos_sat_sub(tag_ns, p->tag_ns);
    tags_priv_rate_raise(p, tag_ns);
}

/* The charge of a request, from floor_ns on if the tag is behind, and of what it brings from other servers. */
QOS_PRIV void tags_priv_rate_charge(struct tags_priv_rate *p, uint64_t floor_ns, uint64_t units, uint64_t elsewhere)
{
    if (QOS_UNLIKELY(elsewhere))
        tags_priv_rate_bring(p, floor_ns, elsewhere);
    tags_priv_rate_raise(p, floor_ns);
    tags_priv_rate_add(p, units);
}

/* Takes back what a charge of units that ended at end_ns has ahead of floor_ns. Returns by how many ns, rounded up. */
QOS_PRIV uint64_t tags_priv_rate_refund(struct tags_priv_rate *p, uint64_t end_ns, uint64_t floor_ns, uint64_t units)
{
    uint64_t rest = units * QOS_NS_PER_S % p->rate_per_s, ns = units * QOS_NS_PER_S / p->rate_per_s, back;
    uint64_t ahead = qos_sat_sub(end_ns, floor_ns);
    if (ahead < ns) {
        ns = ahead;
        rest = 0;
    }
    back = ns + (rest != 0);
    if (p->rest < rest) {
        ns++;
        p->rest += p->rate_per_s;
    }
    p->rest -= rest;
    p->tag_ns = qos_sat_sub(p->tag_ns, ns);
    return back;
}

/* Where a tag is when its rate changes: see tags_change. Rounded against the client, by under 1 ns. */
QOS_PRIV uint64_t tags_priv_rescale(uint64_t tag_ns, uint64_t old, uint64_t rate_per_s, uint64_t now_ns)
{
    if (old == 0 || rate_per_s == old)
        return tag_ns;
    if (tag_ns > now_ns)
        return qos_sat_add(now_ns, qos_mul_div_ceil(tag_ns - now_ns, old, rate_per_s));
    return qos_sat_sub(now_ns, qos_mul_div_floor(now_ns - tag_ns, qos_min(old, rate_per_s), rate_per_s));
}

/* A new rate, not 0. */
QOS_PRIV void tags_priv_rate_set(struct tags_priv_rate *p, uint64_t rate_per_s, uint64_t now_ns)
{
    if (rate_per_s == p->rate_per_s)
        return;
    p->tag_ns = tags_priv_rescale(tags_priv_rate_key(p), p->rate_per_s, rate_per_s, now_ns);
    p->rate_per_s = rate_per_s;
    p->rest = 0;
}

QOS_PRIV uint64_t tags_priv_clock(const struct tags *tags, const struct tags_priv_pool *pool)
{
    return qos_sat_sub(tags->now_ns, pool->behind_ns);
}

/* When the client's next request should have been sent. */
QOS_PRIV_NOINLINE uint64_t tags_priv_deadline(const struct tags *tags, uint32_t id)
{
    struct tags_priv_rate p = tags->reserve[id];
    tags_priv_rate_add(&p, tags->reserve_units ? tags->reserve_units[id] : 1);
    return tags_priv_rate_key(&p);
}

QOS_PRIV bool tags_priv_move_left(uint32_t *moves)
{
    return *moves > 0 && (*moves)-- > 0;
}

/* From r to d. */
QOS_PRIV void tags_priv_due(const struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    tags_priv_t_put(pool, &pool->r, id, TAGS_PRIV_ABSENT);
    tags->hot[id].packed |= TAGS_PRIV_DUE;
    tags_priv_t_put(pool, &pool->d, id, tags_priv_deadline(tags, id));
}

/* Where the reservation tag of one that returns, or gets something back, may be: see the chapter. keep: one before. */
QOS_PRIV uint64_t tags_priv_reserve_floor(struct tags *tags, struct tags_priv_pool *pool, uint32_t id,
                                          uint64_t since_ns, bool keep)
{
    uint32_t moves = tags->config.moves_max;
    uint64_t least = qos_min(since_ns, qos_sat_sub(pool->l.least, pool->behind_ns));
    while (pool->r.least <= least && tags_priv_move_left(&moves))
        tags_priv_due(tags, pool, tags_priv_t_top(pool, &pool->r));
    least = qos_min(least, pool->d.least);
    if (keep && (tags->hot[id].packed & TAGS_PRIV_RESERVED))
        least = qos_sat_sub(least, tags_priv_deadline(tags, id) - tags_priv_rate_key(&tags->reserve[id]));
    return least;
}

/* -- share tags */

/* Is now_ns, without a shift, at most most_ns after the latest time or a second before it? */
QOS_PRIV bool tags_priv_follows(const struct tags *tags, uint64_t now_ns, uint64_t most_ns)
{
    uint64_t ahead = qos_wrap_sub(now_ns, tags->now_ns);
    return ahead < most_ns || qos_wrap_sub(0, ahead) <= TAGS_PRIV_SETBACK_NS;
}

/* A now_ns that does not follow the latest time, or one while time is shifted. After a setback the latest may have been
 * wrong, and gave limit_burst_ns and what a client is ahead of its limit: so time stands still for as long. */
QOS_PRIV_NOINLINE QOS_COLD void tags_priv_jump(struct tags *tags, uint64_t now_ns)
{
    uint64_t ahead, behind;
    const bool begins = tags->now_ns == 0;
    bool near;
    if (begins)
        tags->base_ns = now_ns < TAGS_PRIV_LONGEST_NS || tags->config.shared ? 0 : now_ns - 1;
    now_ns = qos_wrap_sub(now_ns, tags->base_ns);
    ahead = qos_wrap_sub(qos_wrap_add(now_ns, tags->shift_ns), tags->now_ns);
    behind = qos_wrap_sub(0, ahead);
    near = qos_wrap_sub(now_ns, tags->now_ns) < TAGS_PRIV_NEAR_NS;
    if (behind <= TAGS_PRIV_SETBACK_NS)
        tags->late_ns = behind;
    if (begins || tags->config.shared || near ||
        (tags->held_ns == 0 && tags_priv_follows(tags, now_ns, TAGS_PRIV_NEAR_NS))) {
        if (begins || qos_wrap_sub(now_ns, tags->now_ns) < TAGS_PRIV_LEAP_NS)
            tags->now_ns = qos_min(now_ns, TAGS_PRIV_ABSENT - 2);
        tags->shift_ns = tags->held_ns = 0;
    } else if (ahead < TAGS_PRIV_LEAP_NS && tags->held_ns == 0) {
        tags->now_ns = qos_min(qos_sat_add(tags->now_ns, ahead), TAGS_PRIV_ABSENT - 2);
    } else if (ahead < TAGS_PRIV_LEAP_NS) {
        tags->shift_ns = qos_wrap_sub(tags->shift_ns, ahead);
        tags->stood_ns += qos_min(tags->held_ns, ahead);
        tags->held_ns = qos_sat_sub(tags->held_ns, qos_min(ahead, tags->held_step_ns));
    } else if (behind > TAGS_PRIV_SETBACK_NS) {
        tags->shift_ns = qos_wrap_sub(tags->shift_ns, ahead);
        if (behind < TAGS_PRIV_LONGEST_NS && tags->now_ns) /* else it is years ahead, or the first */
            tags->held_ns = qos_min(behind, tags->late_ns + tags->spacing_ns + tags->config.limit_burst_ns);
        tags->held_step_ns = tags->held_ns / 16 + 1;
        tags->late_ns = 0;
    }
    tags->plain_ns = tags->shift_ns || tags->base_ns || now_ns >= TAGS_PRIV_LONGEST_NS ? 0 : TAGS_PRIV_LEAP_NS;
}

QOS_PRIV void tags_priv_now(struct tags *tags, uint64_t now_ns)
{
    if (QOS_LIKELY(qos_wrap_sub(now_ns, tags->now_ns) < tags->plain_ns))
        tags->now_ns = now_ns;
    else
        tags_priv_jump(tags, now_ns);
}

QOS_PRIV uint64_t tags_priv_weight(const struct tags_priv_hot *h)
{
    return h->packed & TAGS_PRIV_WEIGHT_MASK;
}

/* Of a large weight the unit has few bits: more of them. *rest: what was, and is, below the last bit of the axis. */
QOS_PRIV_NOINLINE uint64_t tags_priv_per_large(const struct tags_priv_hot *h, uint64_t amount, uint32_t *rest)
{
    const uint64_t weight = tags_priv_weight(h);
    const uint64_t unit = qos_mul_div_floor((UINT64_C(1) << 62) % weight, UINT64_C(1) << 32, weight);
    struct qos_u128 more = qos_add_wide(qos_mul_wide(unit, amount), tags_priv_wide(0, *rest));
    *rest = (uint32_t)(more.lo & UINT32_MAX);
    return more.hi << 32 | more.lo >> 32; /* < 2^(32 + 54 - 32) */
}

/* An amount over the weight: of cost, or under reward of 1/256 ns. 2^42 of them are exact to one. */
QOS_PRIV struct qos_u128 tags_priv_per_weight(const struct tags_priv_hot *h, uint64_t amount, uint32_t *rest)
{
    const uint64_t more = QOS_UNLIKELY(h->unit < TAGS_PRIV_UNIT_LEAST) ? tags_priv_per_large(h, amount, rest) : 0;
    return qos_add_wide(qos_mul_wide(h->unit, amount), tags_priv_wide(0, more)); /* < 2^63 * 2^54 */
}

QOS_PRIV struct qos_u128 tags_priv_lead(struct qos_u128 a, struct qos_u128 b)
{
    return tags_priv_less(a, b) ? tags_priv_wide(0, 0) : qos_sub_wide(a, b);
}

/* One of the largest requests of each of these clients: over their weights the usual lag. */
QOS_PRIV struct qos_u128 tags_priv_lag_work(const struct tags_priv_pool *pool, uint32_t clients)
{
    return qos_mul_wide(qos_min(qos_sat_mul(pool->largest, clients), UINT64_C(1) << 62), UINT64_C(1) << 62);
}

/* floor(a * times / over), at most TAGS_PRIV_LEAD_MAX. */
QOS_PRIV_NOINLINE struct qos_u128 tags_priv_scale(struct qos_u128 a, uint64_t times, uint64_t over)
{
    struct qos_u128 low = qos_mul_wide(a.lo, times);
    struct qos_u128 high = qos_add_wide(qos_mul_wide(a.hi, times), tags_priv_wide(0, low.hi));
    uint64_t rest;
    if (high.hi >= over)
        return tags_priv_wide(TAGS_PRIV_LEAD_MAX, 0);
    a.hi = qos_div_wide(high, over, &rest);
    a.lo = qos_div_wide(tags_priv_wide(rest, low.lo), over, NULL);
    return tags_priv_least(a, tags_priv_wide(TAGS_PRIV_LEAD_MAX, 0));
}

/* The client comes off its limit: V may have passed its tag by at most the usual lag. */
QOS_PRIV_NOINLINE void tags_priv_off_limit(const struct tags_priv_pool *pool, struct tags_priv_hot *h)
{
    const struct qos_u128 lag = tags_priv_lag_work(pool, pool->backlogged);
    if (tags_priv_less(h->tag, pool->v))
        h->tag = tags_priv_most_of(h->tag, tags_priv_lead(pool->v, tags_priv_scale(lag, 1, qos_max(pool->weights, 1))));
}

/* Share or surplus tag += by. It is not placed more than TAGS_PRIV_LEAD_MAX ahead of its V. */
QOS_PRIV void tags_priv_move(struct qos_u128 *tag, struct qos_u128 v, struct qos_u128 by)
{
    *tag = qos_add_wide(*tag, by); /* below 2^62 + 2^61 + 2^53 in the high word */
    if (QOS_UNLIKELY((int64_t)tag->hi - (int64_t)v.hi > (int64_t)TAGS_PRIV_LEAD_MAX))
        *tag = tags_priv_wide(v.hi + TAGS_PRIV_LEAD_MAX, 0);
}

QOS_PRIV struct qos_u128 tags_priv_tag_key(struct qos_u128 tag, uint32_t id)
{
    tag.lo = (tag.lo & ~TAGS_PRIV_ID_MASK) | id;
    return tag;
}

/* The key that s holds for a client in its state. */
QOS_PRIV struct qos_u128 tags_priv_key(const struct tags *tags, uint32_t id)
{
    struct qos_u128 key = tags_priv_wide(TAGS_PRIV_ABSENT, TAGS_PRIV_ABSENT);
    if (QOS_LIKELY((tags->hot[id].packed & TAGS_PRIV_WAITING) == 0))
        return tags_priv_tag_key(tags->hot[id].tag, id);
    if (tags->surplus)
        key = tags_priv_tag_key(tags->surplus[id], id);
    key.hi |= TAGS_PRIV_AT_LIMIT;
    return key;
}

QOS_PRIV_NOINLINE void tags_priv_s_set(const struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    tags_priv_s_put(pool, id, tags_priv_key(tags, id), false);
}

QOS_PRIV void tags_priv_s_lower(const struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    tags_priv_s_put(pool, id, tags_priv_key(tags, id), true);
}

/* V rises to the smallest share tag of the clients that wait. */
QOS_PRIV void tags_priv_raise_v(struct tags_priv_pool *pool)
{
    struct qos_u128 top = pool->s_top;
    if (QOS_UNLIKELY(top.hi >= TAGS_PRIV_AT_LIMIT))
        return;
    top.lo &= ~TAGS_PRIV_ID_MASK;
    pool->v = tags_priv_most_of(pool->v, top);
}

QOS_PRIV struct tags_priv_pool *tags_priv_inside(const struct tags *tags, uint32_t group)
{
    return &tags->pool[group - tags->config.clients];
}

QOS_PRIV struct tags_priv_pool *tags_priv_pool_of(struct tags *tags, uint32_t id)
{
    return QOS_LIKELY(id >= tags->grouped) ? &tags->root : tags_priv_inside(tags, tags->group[id]);
}

/* What is true of a client is true of its group: most loops go over both. QOS_NONE: no more. */
QOS_PRIV uint32_t tags_priv_up(const struct tags *tags, uint32_t id)
{
    return QOS_LIKELY(id >= tags->grouped) ? QOS_NONE : tags->group[id];
}

/* Level 0 of the request of a slot is its client, 1 that one's group. */
QOS_PRIV uint32_t tags_priv_id_at(const struct tags *tags, uint32_t i, uint32_t level)
{
    return level ? tags->group[tags->slot[i].client] : tags->slot[i].client;
}

QOS_PRIV struct tags_priv_charge *tags_priv_charge_at(const struct tags *tags, uint32_t i, uint32_t level)
{
    return level ? &tags->outer[i] : &tags->slot[i].own;
}

/* The share tag that was charged, or the surplus tag; and its V. */
QOS_PRIV struct qos_u128 *tags_priv_axis(struct tags *tags, uint32_t id, uint32_t flags)
{
    return QOS_UNLIKELY(flags & TAGS_PRIV_SURPLUS) ? &tags->surplus[id] : &tags->hot[id].tag;
}

QOS_PRIV struct qos_u128 tags_priv_axis_v(const struct tags_priv_pool *pool, uint32_t flags)
{
    return QOS_UNLIKELY(flags & TAGS_PRIV_SURPLUS) ? pool->surplus_v : pool->v;
}

/* Tags on both axes move back by V; a tag behind V becomes 0. */
QOS_PRIV_NOINLINE QOS_COLD void tags_priv_rebase(struct tags *tags, struct tags_priv_pool *pool)
{
    const struct qos_u128 zero = tags_priv_wide(0, 0);
    uint32_t i;
    for (i = pool->first; i < pool->first + pool->places; i++) {
        tags->hot[i].tag = tags_priv_lead(tags->hot[i].tag, pool->v);
        if (tags->surplus)
            tags->surplus[i] = tags_priv_lead(tags->surplus[i], pool->surplus_v);
        if (tags->hot[i].queued)
            tags_priv_s_lower(tags, pool, i);
    }
    for (i = tags->oldest; i != QOS_NONE; i = tags->slot[i].next) {
        const uint32_t level = pool == &tags->root && tags->grouped;
        struct qos_u128 *share = &tags_priv_charge_at(tags, i, level)->share;
        if (tags_priv_pool_of(tags, tags_priv_id_at(tags, i, level)) == pool)
            *share = tags_priv_lead(*share, tags_priv_axis_v(pool, tags->slot[i].flags[level]));
    }
    pool->v = pool->surplus_v = zero;
}

QOS_PRIV struct tags_priv_skips tags_priv_skips_of(const struct tags *tags, uint32_t id)
{
    struct tags_priv_skips s;
    s.share = tags->skipped[id];
    s.limit_ns = tags->limit[id].skipped_ns;
    s.reserve_ns = tags->reserve[id].skipped_ns;
    s.away_ns = 0;
    return s;
}

QOS_PRIV void tags_priv_set_skips(struct tags *tags, uint32_t id, struct tags_priv_skips s)
{
    tags->skipped[id] = s.share;
    tags->limit[id].skipped_ns = s.limit_ns;
    tags->reserve[id].skipped_ns = s.reserve_ns;
}

/* -- waiting, idle, at the limit */

/* Adds to one of the counters, of all clients and of this one. offset: that of a qos_counter_t. */
QOS_PRIV void tags_priv_count(struct tags *tags, uint32_t id, size_t offset, uint64_t n)
{
    qos_counter_add((qos_counter_t *)(void *)((uint8_t *)&tags->counters + offset), n);
    for (; QOS_UNLIKELY(tags->by_client) && id != QOS_NONE; id = tags_priv_up(tags, id))
        qos_counter_add((qos_counter_t *)(void *)((uint8_t *)&tags->by_client[id] + offset), n);
}

/* Its place in r, or in d if it is there and stays due. */
QOS_PRIV void tags_priv_r_set(const struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    struct tags_priv_hot *h = &tags->hot[id];
    uint64_t key = tags_priv_rate_key(&tags->reserve[id]);
    if (h->packed & TAGS_PRIV_DUE) {
        if (key <= tags_priv_clock(tags, pool)) {
            tags_priv_t_put(pool, &pool->d, id, tags_priv_deadline(tags, id));
            return;
        }
        tags_priv_t_put(pool, &pool->d, id, TAGS_PRIV_ABSENT);
        h->packed &= ~TAGS_PRIV_DUE;
    }
    tags_priv_t_put(pool, &pool->r, id, key);
}

QOS_PRIV void tags_priv_r_clear(const struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    struct tags_priv_hot *h = &tags->hot[id];
    if (h->packed & TAGS_PRIV_RESERVED)
        tags_priv_t_put(pool, h->packed & TAGS_PRIV_DUE ? &pool->d : &pool->r, id, TAGS_PRIV_ABSENT);
    h->packed &= ~TAGS_PRIV_DUE;
}

/* Into the trees: its queue has a request again, or its limit tag is due. */
QOS_PRIV void tags_priv_enter_trees(struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    tags_priv_s_lower(tags, pool, id);
    if (tags->hot[id].packed & TAGS_PRIV_RESERVED)
        tags_priv_r_set(tags, pool, id);
}

/* Its queue is empty: out of the trees. */
QOS_PRIV void tags_priv_leave_trees(struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    struct tags_priv_hot *h = &tags->hot[id];
    tags_priv_s_put(pool, id, tags_priv_wide(TAGS_PRIV_ABSENT, TAGS_PRIV_ABSENT), false);
    if (h->packed & TAGS_PRIV_WAITING)
        tags_priv_t_put(pool, &pool->l, id, TAGS_PRIV_ABSENT);
    else
        tags_priv_r_clear(tags, pool, id);
    h->packed &= ~TAGS_PRIV_WAITING;
}

QOS_PRIV bool tags_priv_below(const struct tags *tags, uint32_t id)
{
    return !(tags->hot[id].packed & TAGS_PRIV_LIMITED) || tags_priv_rate_key(&tags->limit[id]) <= tags->now_ns;
}

/* Until when it waits: its limit tag is due and, if it is a group, that of one of its clients, too. 0: look again. */
QOS_PRIV uint64_t tags_priv_until(const struct tags *tags, uint32_t id)
{
    uint64_t at_ns = tags->hot[id].packed & TAGS_PRIV_LIMITED ? tags_priv_rate_key(&tags->limit[id]) : 0;
    const struct tags_priv_pool *inside = id >= tags->config.clients ? tags_priv_inside(tags, id) : NULL;
    if (inside && inside->s_top.hi >= TAGS_PRIV_AT_LIMIT)
        at_ns = qos_max(at_ns, inside->l.least);
    else if (inside && !tags_priv_below(tags, (uint32_t)(inside->s_top.lo & TAGS_PRIV_ID_MASK)))
        at_ns = 0;
    return at_ns;
}

/* At its limit: out of s, r and d until its limit tag is due. Or too early: out of d. */
QOS_PRIV_NOINLINE void tags_priv_step_aside(struct tags *tags, struct tags_priv_pool *pool, uint32_t id, bool early)
{
    struct tags_priv_hot *h = &tags->hot[id];
    if (early) {
        tags_priv_r_set(tags, pool, id);
        return;
    }
    tags_priv_r_clear(tags, pool, id);
    h->packed |= TAGS_PRIV_WAITING;
    if (tags->surplus && tags_priv_less(tags->surplus[id], pool->surplus_v))
        tags->surplus[id] = pool->surplus_v;
    tags_priv_s_set(tags, pool, id);
    tags_priv_t_put(pool, &pool->l, id, tags_priv_until(tags, id));
    tags_priv_count(tags, id, offsetof(struct tags_priv_counters, all.waited), 1);
}

/* Clients whose limit tag is due come back, as far as moves are left. */
QOS_PRIV_NOINLINE void tags_priv_release(struct tags *tags, struct tags_priv_pool *pool, uint32_t *moves)
{
    while (pool->l.least <= tags->now_ns && tags_priv_move_left(moves)) {
        const uint32_t id = tags_priv_t_top(pool, &pool->l);
        const uint64_t due = qos_sat_sub(pool->l.least, pool->behind_ns);
        struct tags_priv_hot *h = &tags->hot[id];
        h->packed &= ~TAGS_PRIV_WAITING;
        tags_priv_t_put(pool, &pool->l, id, TAGS_PRIV_ABSENT);
        tags_priv_off_limit(pool, h);
        pool->largest -= pool->largest >> 12; /* what was long ago is forgotten */
        if (h->packed & TAGS_PRIV_RESERVED) {
            const bool group = id >= tags->config.clients;
            tags_priv_rate_raise(&tags->reserve[id], tags_priv_reserve_floor(tags, pool, id, due, group));
        }
        tags_priv_enter_trees(tags, pool, id);
    }
}

/* Is the least client of the group below its limit, after those that are not have stepped aside? */
QOS_PRIV_NOINLINE bool tags_priv_group_may(struct tags *tags, uint32_t group, uint32_t *moves)
{
    struct tags_priv_pool *pool = tags_priv_inside(tags, group);
    if (pool->l.least <= tags->now_ns)
        tags_priv_release(tags, pool, moves);
    while (pool->s_top.hi < TAGS_PRIV_AT_LIMIT) {
        uint32_t id = (uint32_t)(pool->s_top.lo & TAGS_PRIV_ID_MASK);
        if (tags_priv_below(tags, id))
            return true;
        if (!tags_priv_move_left(moves))
            return false;
        tags_priv_step_aside(tags, pool, id, false);
    }
    return false;
}

/* May it be served now? A group only if one of its clients may; they are looked at in any case, for tags_priv_until. */
QOS_PRIV bool tags_priv_may(struct tags *tags, uint32_t id, uint32_t *moves)
{
    bool may = QOS_LIKELY(id < tags->config.clients) || tags_priv_group_may(tags, id, moves);
    return may && tags_priv_below(tags, id);
}

QOS_PRIV struct tags_priv_hot *tags_priv_member(const struct tags *tags, uint32_t id)
{
    QOS_ASSERT(tags);
    return id < tags->ids && (tags->hot[id].packed & TAGS_PRIV_CLIENT) ? &tags->hot[id] : NULL;
}

QOS_PRIV struct tags_priv_hot *tags_priv_client(const struct tags *tags, uint32_t id)
{
    QOS_ASSERT(tags);
    return id < tags->config.clients && (tags->hot[id].packed & TAGS_PRIV_CLIENT) ? &tags->hot[id] : NULL;
}

/* ==== chapter: shared tags =========================================================================
 *
 *   Schedulers of one server (one per core) with the same clients share two words per client: the reserved and the
 *   limited units granted since a common start. A dispatch claims from these words; the scheduler's own limit tag is
 *   then a copy, its reservation tag at least that. Weights stay its own.
 *
 *       scheduler 0   claim ---+                    word <= units due by now: granted, word += n
 *       scheduler 1   claim ---+--> [reserved]      else: refused, and the tag that refused is known
 *       scheduler 2   claim ---+    [limited ]
 *
 *   The words count whole requests: where limit_burst_ns is less than one request, the bound of the limit is one
 *   request more, and one more for each scheduler that forces beside the first. A cancelled one is given back whole,
 *   unknown to the others: one more for each that was at a device when a window began, but of a limit only until
 *   limit_burst_ns has passed. Each word forgets by itself what is older than reserve_lag_ns, or one overloaded
 *   scheduler would cut the reservations at the others: so the cut is in proportion only within a quarter. A clock
 *   that is set back stops the shared clients until it has caught up.
 *
 *   Invariants
 *   1. At no moment is more granted than was charged to the limit word: the limit is charged before the reservation
 *      is looked at, and given back if that refuses.
 *   2. A word is at least what was added to it: a refund does not wrap below 0.
 */

struct tags_priv_shared_client {
    qos_word_t reserved, limited; /* units granted since base_ns, idle time counted in */
    uint64_t reservation_per_s, limit_per_s;
};
QOS_STATIC_ASSERT(sizeof(struct tags_shared) == 32 && sizeof(struct tags_priv_shared_client) == 32, "shared layout");

QOS_PRIV uint64_t tags_priv_default(uint64_t value, uint64_t if_zero)
{
    return value == QOS_NOTHING ? 0 : qos_default(value, if_zero);
}

/* May a setting that knows QOS_NOTHING be this? */
QOS_PRIV bool tags_priv_at_most(uint64_t value, uint64_t most)
{
    return value <= most || value == QOS_NOTHING;
}

QOS_PRIV uint64_t tags_priv_limit_of(const struct tags_client *terms)
{
    return terms->limit_per_s == QOS_UNLIMITED ? 0 : terms->limit_per_s;
}

/* The entries follow the head; both are 8-byte aligned. */
QOS_PRIV struct tags_priv_shared_client *tags_priv_shared(const struct tags_shared *shared, uint32_t id)
{
    return (struct tags_priv_shared_client *)(uintptr_t)(shared + 1) + id;
}

/* Units of a rate granted between base and now, rounded down: the tag is due when the word is at most this. */
QOS_PRIV uint64_t tags_priv_shared_due(const struct tags_shared *shared, uint64_t now_ns, uint64_t rate_per_s)
{
    return qos_mul_div_floor(qos_elapsed_ns(shared->base_ns, now_ns), rate_per_s, QOS_NS_PER_S);
}

#if TAGS_HAS_SHARED

QOS_API const char *tags_shared_config_error(const struct tags_shared_config *config)
{
    struct tags_config same; /* its fields have the rules of those */
    if (!config)
        return "config: is NULL; give a struct tags_shared_config";
    __builtin_memset(&same, 0, sizeof same);
    same.clients = config->clients;
    same.reserve_lag_ns = config->reserve_lag_ns;
    same.limit_burst_ns = config->limit_burst_ns;
    return tags_config_error(&same);
}

/* The head is as large as an entry. */
QOS_PRIV void tags_priv_shared_layout(struct qos_layout *layout, const struct tags_shared_config *config)
{
    qos_layout_begin(layout, NULL);
    (void)qos_layout_part(layout, (size_t)config->clients + 1, sizeof(struct tags_priv_shared_client), 8);
}

QOS_API size_t tags_shared_memsize(const struct tags_shared_config *config)
{
    struct qos_layout layout;
    if (tags_shared_config_error(config))
        return 0;
    tags_priv_shared_layout(&layout, config);
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status tags_shared_init(struct tags_shared *shared, uint64_t now_ns, size_t size_bytes,
                                         const struct tags_shared_config *config)
{
    struct qos_layout layout;
    enum qos_status status;
    if (tags_shared_config_error(config))
        return config ? QOS_ERANGE : QOS_EINVAL;
    tags_priv_shared_layout(&layout, config);
    status = qos_layout_check(&layout, shared, size_bytes);
    if (status != QOS_OK)
        return status;
    __builtin_memset((void *)shared, 0, qos_layout_size_bytes(&layout));
    shared->base_ns = now_ns;
    shared->reserve_lag_ns = tags_priv_default(config->reserve_lag_ns, TAGS_DEFAULT_RESERVE_LAG_NS);
    shared->limit_burst_ns = tags_priv_default(config->limit_burst_ns, TAGS_DEFAULT_LIMIT_BURST_NS);
    shared->clients = config->clients;
    return QOS_OK;
}

QOS_API enum qos_status tags_shared_change(struct tags_shared *shared, uint64_t now_ns, uint32_t id,
                                           const struct tags_client *terms)
{
    struct tags_priv_shared_client *c;
    uint64_t limit;
    if (tags_client_error(terms))
        return terms ? QOS_ERANGE : QOS_EINVAL;
    if (id >= shared->clients)
        return QOS_ENOENT;
    limit = tags_priv_limit_of(terms);
    if (terms->reservation_per_s > TAGS_SHARED_RATE_MAX || limit > TAGS_SHARED_RATE_MAX)
        return QOS_ERANGE;
    c = tags_priv_shared(shared, id);
    c->reservation_per_s = terms->reservation_per_s;
    c->limit_per_s = limit;
    c->reserved = tags_priv_shared_due(shared, now_ns, terms->reservation_per_s);
    c->limited = tags_priv_shared_due(shared, now_ns, limit);
    return QOS_OK;
}

#endif

/* Lets units through if the word is at most `due`. Credit below `lowest` is dropped. *word_now: the word afterwards, or
 * the one that was not due. Relaxed: a word publishes nothing else, and has a single modification order. */
QOS_PRIV bool tags_priv_word_take(qos_word_t *word, uint64_t due, uint64_t lowest, uint64_t units, uint64_t *word_now)
{
#if TAGS_HAS_SHARED
    uint64_t seen = qos_atomic_load_relaxed(word), next;
    while (seen <= due) {
        next = qos_sat_add(qos_max(seen, lowest), units);
        if (qos_atomic_cas_relaxed(word, &seen, next)) { /* fails only if another scheduler's claim succeeded */
            *word_now = next;
            return true;
        }
    }
    *word_now = seen;
#else
    (void)word, (void)due, (void)lowest, (void)units, (void)word_now;
#endif
    return false;
}

QOS_PRIV void tags_priv_word_back(qos_word_t *word, uint64_t units)
{
#if TAGS_HAS_SHARED
    (void)qos_atomic_add_relaxed(word, qos_wrap_sub(0, units));
#else
    (void)word, (void)units;
#endif
}

/* Claims the units on one shared word, in any case with `force`, and copies its tag. That of a reservation only rises
 * here: what was left unused elsewhere is no debt of those here. */
QOS_PRIV bool tags_priv_claim_one(const struct tags *tags, uint32_t id, bool limit, uint64_t units, bool force)
{
    const struct tags_shared *shared = tags->config.shared;
    struct tags_priv_shared_client *c = tags_priv_shared(shared, id);
    qos_word_t *word = limit ? &c->limited : &c->reserved;
    struct tags_priv_rate *own = limit ? &tags->limit[id] : &tags->reserve[id], alone = *own;
    const uint64_t rate_per_s = own->rate_per_s, keep_ns = limit ? shared->limit_burst_ns : shared->reserve_lag_ns;
    uint64_t due = tags_priv_shared_due(shared, tags->now_ns, rate_per_s), word_now = 0;
    uint64_t lowest = qos_elapsed_ns(shared->base_ns, qos_sat_sub(tags->now_ns, keep_ns));
    bool granted;
    /* `lowest` is rounded up, so that at most keep_ns is kept. If keep_ns is less than one unit, it is rounded down, or
     * a late client would pay a whole unit. */
    if (keep_ns >= (QOS_NS_PER_S + rate_per_s - 1) / rate_per_s)
        lowest = qos_mul_div_ceil(lowest, rate_per_s, QOS_NS_PER_S);
    else
        lowest = qos_mul_div_floor(lowest, rate_per_s, QOS_NS_PER_S);
    granted = tags_priv_word_take(word, force ? UINT64_MAX : due, lowest, units, &word_now);
    word_now = qos_mul_div_ceil(word_now, QOS_NS_PER_S, rate_per_s);
    own->tag_ns = qos_sat_add(shared->base_ns, word_now);
    own->rest = 0;
    tags_priv_rate_add(&alone, granted ? units : 0);
    if (!limit && tags_priv_rate_key(&alone) > tags_priv_rate_key(own))
        *own = alone;
    return granted;
}

/* Takes the units from the shared words. false: another scheduler was faster; the tag that refused is known now. */
QOS_PRIV_NOINLINE bool tags_priv_claim(struct tags *tags, uint32_t id, enum tags_phase phase, uint64_t reserved_units,
                                       uint64_t limited_units)
{
    if (limited_units && !tags_priv_claim_one(tags, id, true, limited_units, phase == TAGS_PHASE_FORCED))
        return false; /* it steps aside when it would be chosen again */
    if (!reserved_units || tags_priv_claim_one(tags, id, false, reserved_units, phase != TAGS_PHASE_RESERVATION))
        return true;
    if (limited_units) {
        tags_priv_word_back(&tags_priv_shared(tags->config.shared, id)->limited, limited_units);
        (void)tags_priv_rate_refund(&tags->limit[id], TAGS_PRIV_ABSENT, 0, limited_units);
    }
    return false;
}

/* ==== chapter: parallel devices ====================================================================
 *
 *   The share tag advances at dispatch by the estimate F, 3/4 of the mean of the client's last services; completion
 *   replaces it by what the request took, also if the client is away. So a short service after long ones is charged 3/4
 *   of one too much at most; with less than 1/2 who is first at the device would swing. The mean forgets evenly: the
 *   newest weighs 2 / (N + 1), so all are as old on average as in a mean of N; until that is less, of n each 1 / n.
 *
 *   Attribution. With n requests at the device latencies overlap; charging each 1/n of the time rewards nobody on a
 *   serial device. It works on M of them (config.channels). If it takes them in order of arrival, the M oldest are at
 *   work: they are charged for 1 / min(n, M) each of the time that passes, and the others for nothing yet:
 *
 *       oldest                    newest         passed  += dt / min(n, M)        O(1) at each event
 *       [ a ][ b ][ c ] | [ d ][ e ]             charge   = passed(end) - passed(when it came among the M oldest)
 *          M = 3 at work    waiting
 *
 *   A request that ends before it came among the M oldest was at work in the place of one of them, the oldest: it is
 *   charged for its time, and that one begins anew. With M = 1, or all at once, this is right in any order. Between the
 *   two, if more than one of 32 ends so, the device is taken for a serial one for the next 65,536 completions: equal
 *   clients are charged alike, but there is little reward. M cannot be told from outside in general.
 *
 *   k completions may carry the same now_ns. If k > M, all k were at work in between: each is charged dt / k, in any
 *   order. Reward needs polls that come often.
 *
 *   Invariants
 *   1. The slots at the device are a list in order of dispatch. The first min(n, M) are at work, to worked_last.
 *   2. passed counts up to passed_ns. If the order is kept, charges and what cancelled requests used add up to the time
 *      in which the device had something, but for 1/256 ns of each request at each event.
 *   3. Completions of one now_ns are in the batch until a later call, or none is left; they have left the device.
 */

/* F in 1/256 ns. Of a client without history: of the one measured last, at most service_ns, as V passes a large one. */
QOS_PRIV uint64_t tags_priv_estimate(const struct tags *tags, uint32_t id)
{
    const uint64_t mean = QOS_LIKELY(tags->mean[id].count) ? tags->mean[id].amount : tags->first_mean;
    return mean - mean / 4;
}

QOS_PRIV void tags_priv_measure(struct tags *tags, uint32_t id, uint64_t service_ns)
{
    struct tags_priv_mean *m = &tags->mean[id];
    const int64_t more = (int64_t)(service_ns << 8) - (int64_t)m->amount; /* both at most TAGS_PRIV_AMOUNT_MAX */
    if (2 * m->count <= tags->config.window)
        m->count++;
    m->amount = (uint64_t)((int64_t)m->amount + 2 * more / (int64_t)qos_min(2 * m->count, tags->config.window + 1));
    tags->first_mean = qos_min(tags->config.service_ns << 8, m->amount);
}

/* A share tag that the request of a slot was charged to moves by plus - minus, amounts without the weight. */
TAGS_PRIV_INLINE void tags_priv_recharge_one(struct tags *tags, struct tags_priv_pool *pool, uint32_t id,
                                             uint32_t flags, uint64_t plus, uint64_t minus)
{
    const struct tags_priv_hot *h = &tags->hot[id];
    struct qos_u128 *tag = tags_priv_axis(tags, id, flags), by;
    uint32_t rest = 0;
    if (flags & TAGS_PRIV_NO_SHARE)
        return;
    by = tags_priv_per_weight(h, plus < minus ? minus - plus : plus - minus, &rest);
    if (plus < minus)
        *tag = tags_priv_lead(*tag, by);
    else
        tags_priv_move(tag, tags_priv_axis_v(pool, flags), by);
    if (h->queued)
        tags_priv_s_set(tags, pool, id);
}

QOS_PRIV_NOINLINE void tags_priv_recharge(struct tags *tags, uint32_t i, uint64_t plus, uint64_t minus)
{
    uint32_t id = tags->slot[i].client, level = 0;
    for (; id != QOS_NONE; id = tags_priv_up(tags, id))
        tags_priv_recharge_one(tags, tags_priv_pool_of(tags, id), id, tags->slot[i].flags[level++], plus, minus);
}

/* A client's part of an amount, by weight, among those that wait and itself. */
QOS_PRIV_NOINLINE uint64_t tags_priv_part(struct tags *tags, uint32_t id, uint64_t amount)
{
    const struct tags_priv_hot *h = &tags->hot[id];
    const uint64_t weight = tags_priv_weight(h), all = tags_priv_pool_of(tags, id)->weights + (h->queued ? 0 : weight);
    amount = qos_mul_div_floor(amount, weight, all);
    return id < tags->grouped ? tags_priv_part(tags, tags->group[id], amount) : amount;
}

/* What the device worked for it, in 1/256 ns, as far as it is charged: the rest was a stall, or a wrong now_ns. */
QOS_PRIV uint64_t tags_priv_worth(struct tags *tags, uint32_t id, uint64_t service_ns, uint64_t estimate)
{
    uint64_t work = qos_min(service_ns, TAGS_PRIV_AMOUNT_MAX >> 8) << 8, mean, most;
    tags_priv_count(tags, id, offsetof(struct tags_priv_counters, device_ns), service_ns);
    if (QOS_LIKELY(3 * work <= 8 * estimate)) /* two means */
        return work;
    mean = estimate + estimate / 3;
    most = qos_min(qos_sat_mul(tags->config.reserve_lag_ns, 256), TAGS_PRIV_AMOUNT_MAX);
    most = mean + qos_max(mean, tags_priv_part(tags, id, most));
    qos_counter_add(&tags->forgiven_ns, qos_sat_sub(work, most) >> 8);
    return qos_min(work, most);
}

/* Work that is due to the weight phase, times 1000; at completion plus what it took, minus the estimate. */
QOS_PRIV_NOINLINE void tags_priv_credit_weight(struct tags *tags, const struct tags_priv_slot *slot, uint64_t plus,
                                               uint64_t minus)
{
    const int64_t most = INT64_C(1) << 62, permille = (int64_t)tags->config.weight_share_permille;
    int64_t work = (int64_t)qos_min(plus, UINT64_C(1) << 52) - (int64_t)qos_min(minus, UINT64_C(1) << 52);
    if (slot->flags[0] & TAGS_PRIV_EARNED)
        work *= permille;
    else
        work *= slot->flags[0] & TAGS_PRIV_SPENT ? permille - 1000 : 0;
    work += tags->weight_credit; /* below 2^63 */
    tags->weight_credit = work > most ? most : work < -most ? -most : work;
}

/* It is complete: the estimate that it was charged is replaced by what it took. */
TAGS_PRIV_INLINE void tags_priv_correct(struct tags *tags, uint32_t i, uint64_t service_ns)
{
    const struct tags_priv_slot *slot = &tags->slot[i];
    uint64_t floor = tags->config.service_floor_ns, work;
    const uint64_t estimate = slot->amount;
    work = tags_priv_worth(tags, slot->client, service_ns, estimate);
    if (work < floor << 8) {
        qos_counter_add(&tags->floor_ns, floor - (work >> 8));
        work = floor << 8;
    }
    tags_priv_measure(tags, slot->client, work >> 8);
    if (QOS_UNLIKELY(tags->config.weight_share_permille))
        tags_priv_credit_weight(tags, slot, work, estimate);
    if (QOS_UNLIKELY(tags->grouped))
        tags_priv_recharge(tags, i, work, estimate);
    else
        tags_priv_recharge_one(tags, &tags->root, slot->client, slot->flags[0], work, estimate);
}

/* The device does not stand still. */
QOS_PRIV uint64_t tags_priv_device_ns(const struct tags *tags)
{
    return qos_sat_add(tags->now_ns, tags->stood_ns);
}

/* The list of the requests at the device, and which of them it works on. */
QOS_PRIV void tags_priv_slot_take(struct tags *tags)
{
    uint32_t i = tags->free_slot;
    struct tags_priv_slot *slot = &tags->slot[i];
    QOS_ASSERT(i != QOS_NONE);
    tags->free_slot = slot->next;
    slot->next = QOS_NONE;
    slot->prev = tags->newest;
    slot->dispatch_ns = tags_priv_device_ns(tags);
    slot->serial = ++tags->serial;
    if (tags->newest != QOS_NONE)
        tags->slot[tags->newest].next = i;
    else
        tags->oldest = i;
    tags->newest = i;
}

QOS_PRIV void tags_priv_slot_free(struct tags *tags, uint32_t i)
{
    struct tags_priv_slot *slot = &tags->slot[i];
    if (slot->prev != QOS_NONE)
        tags->slot[slot->prev].next = slot->next;
    else
        tags->oldest = slot->next;
    if (slot->next != QOS_NONE)
        tags->slot[slot->next].prev = slot->prev;
    else
        tags->newest = slot->prev;
    slot->next = tags->free_slot;
    tags->free_slot = i;
}

QOS_PRIV void tags_priv_begin_work(struct tags *tags, uint32_t i)
{
    tags->slot[i].flags[0] |= TAGS_PRIV_AT_WORK;
    tags->slot[i].entered = tags->passed;
    tags->worked_last = i;
    tags->worked++;
}

/* Divides the time up to now among `parts`; what each gets. */
QOS_PRIV uint64_t tags_priv_pass(struct tags *tags, uint64_t now_ns, uint32_t parts)
{
    uint64_t dt;
    if (now_ns <= tags->passed_ns)
        return 0;
    dt = qos_min(now_ns - tags->passed_ns, TAGS_PRIV_AMOUNT_MAX);
    tags->passed_ns = now_ns;
    return parts ? dt * 256 / parts : 0; /* < 2^62 */
}

/* The device is taken to work on the `most` oldest. */
QOS_PRIV void tags_priv_take_for(struct tags *tags, uint32_t most)
{
    uint32_t next = tags->worked ? tags->slot[tags->worked_last].next : tags->oldest;
    tags->at_work_max = most;
    for (; tags->worked > most; tags->worked--) {
        tags->slot[tags->worked_last].flags[0] &= (uint16_t)~TAGS_PRIV_AT_WORK;
        tags->worked_last = tags->slot[tags->worked_last].prev;
    }
    for (; next != QOS_NONE && tags->worked < most; next = tags->slot[next].next)
        tags_priv_begin_work(tags, next);
}

/* It leaves; if it was at work, the next one is. */
QOS_PRIV_NOINLINE void tags_priv_end_work(struct tags *tags, uint32_t i)
{
    if (tags->slot[i].flags[0] & TAGS_PRIV_AT_WORK) {
        tags->worked--;
        if (i == tags->worked_last)
            tags->worked_last = tags->slot[i].prev;
    }
    tags_priv_slot_free(tags, i);
    tags_priv_take_for(tags, tags->at_work_max);
}

/* The time that was spent on the request of this slot, in 1/256 ns. */
QOS_PRIV uint64_t tags_priv_used(struct tags *tags, uint32_t i)
{
    uint64_t used = qos_wrap_sub(tags->passed, tags->slot[i].entered), others;
    tags->out_of_order -= tags->out_of_order / 64;
    if (tags->slot[i].flags[0] & TAGS_PRIV_AT_WORK)
        return used;
    tags->out_of_order += 1024;
    others = qos_wrap_sub(tags->passed, tags->slot[tags->oldest].entered);
    tags->slot[tags->oldest].entered = tags->passed;
    return qos_min(used, others);
}

/* A request ended; by attribution it took what it used, and `each`. */
QOS_PRIV void tags_priv_settle_used(struct tags *tags, uint32_t i, uint64_t each)
{
    uint64_t charge = each + tags->given_rest + tags_priv_used(tags, i);
    tags->given_rest = (uint32_t)(charge & 255);
    tags_priv_correct(tags, i, charge >> 8);
    tags_priv_end_work(tags, i);
}

/* Charges the completions of the batch, all of one moment; first those among the M oldest, whose places others take. */
QOS_PRIV void tags_priv_settle_batch(struct tags *tags)
{
    uint32_t i = tags->batch, next, others = QOS_NONE, k = tags->batch_count, before = tags->worked;
    uint64_t each = tags_priv_pass(tags, tags->batch_ns, (uint32_t)qos_max(before, k));
    if (k <= before) {
        tags->passed = qos_wrap_add(tags->passed, each);
        each = 0;
    }
    tags->batch = QOS_NONE;
    tags->batch_count = 0;
    for (; i != QOS_NONE; i = next) {
        next = tags->slot[i].batch;
        if (tags->slot[i].flags[0] & TAGS_PRIV_AT_WORK) {
            tags_priv_settle_used(tags, i, each);
        } else {
            tags->slot[i].batch = others;
            others = i;
        }
    }
    for (i = others; i != QOS_NONE; i = next) {
        next = tags->slot[i].batch;
        tags_priv_settle_used(tags, i, each);
    }
    if (tags->serial_for > k) {
        tags->serial_for -= k;
    } else if (tags->serial_for || (tags->config.channels > 1 && tags->out_of_order > 2048)) {
        tags->serial_for = tags->serial_for ? 0 : 65536;
        tags->out_of_order = 2048; /* the next one is enough, if soon */
        tags_priv_take_for(tags, tags->serial_for ? 1 : tags->config.channels);
    }
}

QOS_PRIV void tags_priv_catch_up(struct tags *tags)
{
    if (tags->batch != QOS_NONE)
        tags_priv_settle_batch(tags);
    tags->passed = qos_wrap_add(tags->passed, tags_priv_pass(tags, tags_priv_device_ns(tags), tags->worked));
}

/* ==== chapter: requests ============================================================================
 *
 *   A dispatch (Algorithm 2, with what ERRATA and hard use have shown):
 *   1. Clients whose limit tag is due come back.
 *   2. Reservation phase: the earliest deadline of those that are due. A client at its limit steps aside.
 *   3. Weight phase: the least share tag, in the same way; its reservation tag is not charged. With
 *      config.weight_share_permille this comes first while work is due to it: dispatches by reservation add permille of
 *      their work to a credit, and while that is above 0, those by weight take (1000 - permille) of theirs.
 *   4. TAGS_ALLOW, all at their limits: the least surplus tag. Nothing else is charged.
 *
 *   A grant names a slot, which holds what was charged, and a serial number that is used once: it is given back once.
 *
 *       add      arrive      choose, dispatch        complete, fail, give_up: charged
 *     ------> id -----> queued --------------> slot ----------------------------------> free
 *                <----- withdraw                 +---- cancel: refunded ---------------> free
 *
 *   After tags_remove tags, weight and rates stay in place for the next tags_add: reconnecting forgives nothing. Forced
 *   requests are charged to all three tags; they may lead V, and the limit, by force_debt_requests of the client's.
 *
 *   Groups. A pool is a set of ids that compete: all groups, and the clients of each group. Each has its own V, clock
 *   and trees, and the rules above hold in it as if it were alone.
 *
 *       root      [ group 40 ]      [ group 41 ]       chosen: by its reservation tag, or its share tag
 *                  |  |  |           |  |
 *       inside    [0][1][2]         [8][9]             then, by reservation: who is due, else (TAGS_PHASE_GROUP) by
 *                                                      weight; by weight: by weight
 *
 *   The reservations inside fit in the group's: deadlines inside are kept but for one request of the group. Both levels
 *   are charged, each by its own phase. A group of which no client may be served waits until the first limit inside.
 *
 *   Invariants
 *   1. queued and at_device of the whole are the sums over the clients; those of a group too.
 *   2. A client is WAITING only with requests queued and a limit; a group also if all its clients are.
 *   3. Tags that were charged when the terms were others are refunded in units of requests.
 *
 *   Map (without tags_priv_): check, layout; apply (new terms); arrive: rejects, join: begin (into the trees);
 *   choose: by_reservation, by_weight, choose_inside (a group); send: charge_rates, weigh, charge_share, charge_level;
 *   sent (queue and trees); true_cost, refund (given back)
 */

/* -- configuration and memory */

/* NULL, or what is wrong; *status to match. */
QOS_PRIV const char *tags_priv_check(const struct tags_config *c, enum qos_status *status)
{
    const struct qos_rule ranges[] = {
        {c->clients && c->clients <= TAGS_CLIENTS_MAX, "clients: give 1..TAGS_CLIENTS_MAX"},
        {(uint64_t)c->groups + c->clients <= TAGS_CLIENTS_MAX || c->groups == 0,
         "groups: give at most TAGS_CLIENTS_MAX, the clients included"},
        {c->at_device_max <= TAGS_AT_DEVICE_MAX, "at_device_max: give at most TAGS_AT_DEVICE_MAX, or 0 for 64"},
        {c->channels <= TAGS_AT_DEVICE_MAX, "channels: give at most TAGS_AT_DEVICE_MAX, or 0 if it is not known"},
        {c->window <= TAGS_WINDOW_MAX, "window: give at most TAGS_WINDOW_MAX, or 0 for 5"},
        {c->lead_requests <= 65536, "lead_requests: give at most 65536, or 0 for 16"},
        {c->weight_share_permille <= 999, "weight_share_permille: give at most 999, or 0 for none"},
        {c->cost_max <= QOS_TOKENS_MAX, "cost_max: give at most QOS_TOKENS_MAX in a larger unit, or 0 for 1"},
        {tags_priv_at_most(c->limit_burst_ns, TAGS_PRIV_LONGEST_NS),
         "limit_burst_ns: give at most 2^62, 0 for 100 ms, or QOS_NOTHING"},
        {tags_priv_at_most(c->reserve_lag_ns, TAGS_PRIV_LONGEST_NS),
         "reserve_lag_ns: give at most 2^62, 0 for 1 s, or QOS_NOTHING"},
        {tags_priv_at_most(c->force_debt_requests, 65536),
         "force_debt_requests: give at most 65536, 0 for 64, or QOS_NOTHING"},
        {c->service_ns <= QOS_TOKENS_MAX, "service_ns: give at most QOS_TOKENS_MAX, or 0 for 1 ms"},
        {tags_priv_at_most(c->service_floor_ns, QOS_NS_PER_S),
         "service_floor_ns: give at most 1 s, 0 for 100 ns, or QOS_NOTHING"},
    };
    const struct qos_rule rules[] = {
        {(unsigned)c->mode <= TAGS_PS, "mode: give TAGS_REWARD or TAGS_PS"},
        {(unsigned)c->at_limit <= TAGS_REJECT, "at_limit: give TAGS_WAIT, TAGS_ALLOW or TAGS_REJECT"},
        {!c->no_completions || c->mode == TAGS_PS,
         "no_completions: give false with TAGS_REWARD, which learns from completions"},
        {!c->attribute || c->mode == TAGS_REWARD, "attribute: give false with TAGS_PS, which uses no service times"},
        {!c->channels || c->attribute, "channels: give 0, or set attribute too"},
        {!c->groups || c->clients % 8 == 0, "groups: give 0, or a multiple of 8 clients"},
        {!c->groups || !c->shared, "groups: give 0 with shared tags"},
#if TAGS_HAS_SHARED
        {!c->shared || c->clients <= c->shared->clients, "clients: give at most those of the shared tags"},
#else
        {!c->shared, "shared: give NULL, as this target has no lock-free 64-bit word"},
#endif
    };
    const char *why = qos_first_broken(ranges, sizeof ranges / sizeof *ranges);
    *status = why ? QOS_ERANGE : QOS_EINVAL;
    why = why ? why : qos_first_broken(rules, sizeof rules / sizeof *rules);
    *status = why ? *status : QOS_OK;
    return why;
}

QOS_API const char *tags_config_error(const struct tags_config *config)
{
    enum qos_status status;
    return config ? tags_priv_check(config, &status) : "config: is NULL; give a struct tags_config";
}

QOS_API const char *tags_client_error(const struct tags_client *terms)
{
    if (!terms)
        return "terms: is NULL; give a struct tags_client";
    {
        const uint64_t limit = tags_priv_limit_of(terms);
        const struct qos_rule rules[] = {
            {terms->weight <= TAGS_WEIGHT_MAX, "weight: give at most TAGS_WEIGHT_MAX, or 0 for 1"},
            {terms->reservation_per_s <= QOS_RATE_MAX, "reservation_per_s: give at most QOS_RATE_MAX, or 0 for none"},
            {limit <= QOS_RATE_MAX,
             "limit_per_s: give at most QOS_RATE_MAX, or QOS_UNLIMITED for none; remove who may do nothing"},
            {!limit || terms->reservation_per_s <= limit,
             "limit_per_s: give at least reservation_per_s, or QOS_UNLIMITED for none"},
        };
        return qos_first_broken(rules, sizeof rules / sizeof *rules);
    }
}

QOS_PRIV void tags_priv_fill(struct tags_config *out, const struct tags_config *in)
{
    *out = *in;
    out->at_device_max = (uint32_t)qos_default(in->at_device_max, TAGS_DEFAULT_AT_DEVICE);
    if (in->no_completions)
        out->at_device_max = 0;
    if (in->attribute && out->at_device_max == 1)
        out->channels = 1;
    out->window = (uint32_t)qos_default(in->window, TAGS_DEFAULT_WINDOW);
    out->lead_requests = (uint32_t)qos_default(in->lead_requests, TAGS_DEFAULT_LEAD_REQUESTS);
    out->moves_max = (uint32_t)qos_default(in->moves_max, TAGS_DEFAULT_MOVES);
    out->cost_max = qos_default(in->cost_max, 1);
    out->limit_burst_ns = tags_priv_default(in->limit_burst_ns, TAGS_DEFAULT_LIMIT_BURST_NS);
    out->reserve_lag_ns = tags_priv_default(in->reserve_lag_ns, TAGS_DEFAULT_RESERVE_LAG_NS);
    out->force_debt_requests = tags_priv_default(in->force_debt_requests, TAGS_DEFAULT_FORCE_DEBT_REQUESTS);
    out->service_ns = qos_default(in->service_ns, TAGS_DEFAULT_SERVICE_NS);
    out->service_floor_ns = tags_priv_default(in->service_floor_ns, TAGS_DEFAULT_SERVICE_FLOOR_NS);
    if (in->attribute && out->channels == 0) { /* whose time it is cannot be told */
        out->mode = TAGS_PS;
        out->attribute = false;
    }
}

/* Where a pool's nodes begin: 8 k clients have at most 3 k in s, and 1.5 k in the others, rounded down. */
QOS_PRIV size_t tags_priv_s_at(uint32_t first)
{
    return (size_t)first / 8 * 3;
}

/* A pool that nobody waits in: nothing is left of those that were in it before. */
QOS_PRIV void tags_priv_pool_begin(struct tags *tags, struct tags_priv_pool *pool, uint32_t first, uint32_t places)
{
    size_t s_nodes, t_keys;
    __builtin_memset(pool, 0, sizeof *pool);
    s_nodes = tags_priv_nodes(places, 4, &pool->s_levels, pool->s_base);
    t_keys = 8 * (size_t)tags_priv_nodes(places, 8, &pool->t_levels, pool->t_base);
    pool->first = first;
    pool->places = places;
    pool->s_top = tags_priv_wide(TAGS_PRIV_ABSENT, TAGS_PRIV_ABSENT);
    pool->r.least = pool->d.least = pool->l.least = TAGS_PRIV_ABSENT;
    pool->s = tags->s + tags_priv_s_at(first);
    pool->r.key = tags->t + 24 * (tags_priv_s_at(first) / 2);
    pool->d.key = pool->r.key + t_keys;
    pool->l.key = pool->d.key + t_keys;
    __builtin_memset(pool->s, 0xff, s_nodes * sizeof *pool->s); /* TAGS_PRIV_ABSENT */
    __builtin_memset(pool->r.key, 0xff, 3 * t_keys * sizeof *tags->t);
}

/* config: with its defaults filled in. What is not needed stays as it is: NULL. */
QOS_PRIV void tags_priv_layout(struct qos_layout *layout, struct tags *tags, const struct tags_config *config)
{
    struct tags_priv_pool *root = &tags->root;
    size_t n = (size_t)config->clients + config->groups, slots = config->at_device_max ? config->at_device_max : 1;
    size_t s_nodes, t_keys;
    tags->ids = (uint32_t)n;
    tags->grouped = config->groups ? config->clients : 0;
    root->first = tags->grouped;
    root->places = tags->ids - tags->grouped;
    s_nodes = tags_priv_s_at(tags->grouped) + tags_priv_nodes(root->places, 4, &root->s_levels, root->s_base);
    t_keys = tags_priv_s_at(tags->grouped) / 2 + tags_priv_nodes(root->places, 8, &root->t_levels, root->t_base);
    QOS_LAYOUT_SET(layout, tags->s, s_nodes);
    QOS_LAYOUT_SET(layout, tags->t, 24 * t_keys);
    QOS_LAYOUT_SET(layout, tags->hot, n);
    QOS_LAYOUT_SET(layout, tags->skipped, n);
    QOS_LAYOUT_SET(layout, tags->rest, n);
    QOS_LAYOUT_SET(layout, tags->limit, n);
    QOS_LAYOUT_SET(layout, tags->reserve, n);
    if (config->groups) {
        QOS_LAYOUT_SET(layout, tags->pool, config->groups);
        QOS_LAYOUT_SET(layout, tags->group, config->clients);
        QOS_LAYOUT_SET(layout, tags->outer, slots);
        QOS_LAYOUT_SET(layout, tags->seen, n);
    }
    QOS_LAYOUT_SET(layout, tags->slot, slots);
    if (config->mode == TAGS_REWARD)
        QOS_LAYOUT_SET(layout, tags->mean, n);
    if (config->intrusive)
        QOS_LAYOUT_SET(layout, tags->queue, n);
    if (config->at_limit == TAGS_ALLOW)
        QOS_LAYOUT_SET(layout, tags->surplus, n);
    if (config->count_cost)
        QOS_LAYOUT_SET(layout, tags->reserve_units, n);
    if (config->count_cost && config->at_limit == TAGS_REJECT)
        QOS_LAYOUT_SET(layout, tags->queued_cost, n);
    if (config->count_by_client)
        QOS_LAYOUT_SET(layout, tags->by_client, n);
}

/* All fields that follow from the configuration, laid out on mem. */
QOS_PRIV struct qos_layout tags_priv_build(struct tags *tags, void *mem, const struct tags_config *config)
{
    struct qos_layout layout;
    __builtin_memset(tags, 0, sizeof *tags);
    tags_priv_fill(&tags->config, config);
    qos_layout_begin(&layout, mem);
    tags_priv_layout(&layout, tags, &tags->config);
    return layout;
}

QOS_API size_t tags_memsize(const struct tags_config *config)
{
    struct tags scratch;
    struct qos_layout layout;
    if (tags_config_error(config))
        return 0;
    layout = tags_priv_build(&scratch, NULL, config);
    return qos_layout_size_bytes(&layout);
}

QOS_API enum qos_status tags_init(struct tags *tags, void *mem, size_t size_bytes, const struct tags_config *config)
{
    struct tags fresh;
    struct qos_layout layout;
    enum qos_status status;
    uint32_t i;
    QOS_ASSERT(tags);
    if (!config)
        return QOS_EINVAL;
    if (tags_priv_check(config, &status))
        return status;
    layout = tags_priv_build(&fresh, NULL, config);
    status = qos_layout_check(&layout, mem, size_bytes);
    if (status != QOS_OK)
        return status;
    __builtin_memset(mem, 0, qos_layout_size_bytes(&layout));
    (void)tags_priv_build(&fresh, mem, config);
    fresh.at_work_max = fresh.config.channels;
    fresh.first_mean = fresh.config.service_ns << 8;
    fresh.oldest = fresh.newest = fresh.worked_last = fresh.batch = QOS_NONE;
    QOS_ASSERT(fresh.s && fresh.t); /* laid out on memory that was checked */
    tags_priv_pool_begin(&fresh, &fresh.root, fresh.root.first, fresh.root.places);
    if (fresh.group)
        __builtin_memset(fresh.group, 0xff, fresh.config.clients * sizeof *fresh.group); /* QOS_NONE */
    for (i = 0; i < fresh.config.at_device_max; i++)
        fresh.slot[i].next = i + 1 < fresh.config.at_device_max ? i + 1 : QOS_NONE;
    *tags = fresh;
    return QOS_OK;
}

/* -- clients */

QOS_PRIV uint64_t tags_priv_held(const struct tags *tags, uint32_t id)
{
    return tags->hot[id].packed & TAGS_PRIV_RESERVED ? tags->reserve[id].rate_per_s : 0;
}

/* The largest reservation that would be admitted of an id that holds so much; QOS_NONE: of a new client or group. */
QOS_PRIV uint64_t tags_priv_admissible(const struct tags *tags, uint32_t id, uint64_t held)
{
    uint64_t capacity = tags->config.capacity_per_s ? tags->config.capacity_per_s : UINT64_MAX;
    uint64_t others = tags->root.reserved_sum;
    if (id < tags->grouped) {
        QOS_ASSERT(tags->group);
        capacity = tags_priv_held(tags, tags->group[id]);
        others = tags_priv_inside(tags, tags->group[id])->reserved_sum;
    }
    return qos_min(qos_max(qos_sat_sub(capacity, others - held), held), QOS_RATE_MAX);
}

QOS_PRIV enum qos_status tags_priv_terms(const struct tags *tags, uint32_t id, const struct tags_client *terms)
{
    const struct tags_priv_shared_client *c = tags->config.shared ? tags_priv_shared(tags->config.shared, id) : NULL;
    uint64_t most, least = 0;
    if (tags_client_error(terms))
        return terms ? QOS_ERANGE : QOS_EINVAL;
    if (c && (c->reservation_per_s != terms->reservation_per_s || c->limit_per_s != tags_priv_limit_of(terms)))
        return QOS_EINVAL;
    most = tags_priv_admissible(tags, id, tags_priv_held(tags, id));
    if (id >= tags->config.clients)
        least = tags_priv_inside(tags, id)->reserved_sum;
    return terms->reservation_per_s > most || terms->reservation_per_s < least ? QOS_EADMISSION : QOS_OK;
}

/* A tag on an axis when its client's weight changes: its lead over v, times old / weight, rounded down. */
QOS_PRIV struct qos_u128 tags_priv_reweigh(struct qos_u128 tag, struct qos_u128 v, uint64_t old, uint64_t weight)
{
    return tags_priv_less(v, tag) ? qos_add_wide(v, tags_priv_scale(tags_priv_lead(tag, v), old, weight)) : tag;
}

/* Requests at the device keep what they were charged, in requests. */
QOS_PRIV void tags_priv_rescale_slots(struct tags *tags, uint32_t id, uint64_t weight, uint64_t reservation,
                                      uint64_t limit)
{
    const struct tags_priv_hot *h = &tags->hot[id];
    const struct tags_priv_pool *pool = tags_priv_pool_of(tags, id);
    uint64_t clock = tags_priv_clock(tags, pool);
    uint32_t i, left = h->at_device, level = id >= tags->config.clients;
    for (i = tags->newest; left > 0 && i != QOS_NONE; i = tags->slot[i].prev) {
        struct tags_priv_charge *charge = tags_priv_charge_at(tags, i, level);
        struct qos_u128 v = tags_priv_axis_v(pool, tags->slot[i].flags[level]);
        if (tags_priv_id_at(tags, i, level) != id || tags->slot[i].serial == 0)
            continue;
        left--;
        charge->share = tags_priv_reweigh(charge->share, v, tags_priv_weight(h), weight);
        if (reservation)
            charge->reserve_ns =
                tags_priv_rescale(charge->reserve_ns, tags->reserve[id].rate_per_s, reservation, clock);
        if (limit)
            charge->limit_ns = tags_priv_rescale(charge->limit_ns, tags->limit[id].rate_per_s, limit, tags->now_ns);
    }
}

/* The client is in no tree. What its tags are ahead or behind is kept in requests. */
QOS_PRIV void tags_priv_apply(struct tags *tags, uint32_t id, const struct tags_client *terms)
{
    struct tags_priv_hot *h = &tags->hot[id];
    struct tags_priv_rate *reserve = &tags->reserve[id];
    struct tags_priv_pool *pool = tags_priv_pool_of(tags, id);
    uint64_t clock = tags_priv_clock(tags, pool), weight = qos_default(terms->weight, 1), old = tags_priv_weight(h);
    uint64_t limit = tags_priv_limit_of(terms), oldest, spacing;
    if (h->at_device)
        tags_priv_rescale_slots(tags, id, weight, terms->reservation_per_s, limit);
    if (old && old != weight) {
        h->tag = tags_priv_reweigh(h->tag, pool->v, old, weight);
        if (tags->surplus)
            tags->surplus[id] = tags_priv_reweigh(tags->surplus[id], pool->surplus_v, old, weight);
    }
    h->unit = (UINT64_C(1) << 62) / weight;
    if (old == 0 && id < tags->config.clients) { /* what it was served elsewhere before does not count here */
        tags->skipped[id] = tags_priv_wide(TAGS_PRIV_LEAD_MAX, 0);
        tags->limit[id].skipped_ns = UINT64_MAX;
    }
    if (!(h->packed & TAGS_PRIV_LIMITED)) /* a new one begins now; none keeps the tag and the rate of the last one */
        tags_priv_rate_return(&tags->limit[id], tags->now_ns);
    if (!(h->packed & TAGS_PRIV_RESERVED))
        tags_priv_rate_return(reserve, tags_priv_reserve_floor(tags, pool, id, clock, false));
    if (limit) {
        tags_priv_rate_set(&tags->limit[id], limit, tags->now_ns);
        spacing = qos_mul_div_ceil(QOS_NS_PER_S, tags->config.count_cost ? tags->config.cost_max : 1, limit);
        tags->spacing_ns = qos_max(tags->spacing_ns, qos_min(spacing, QOS_NS_PER_S));
    }
    if (terms->reservation_per_s && terms->reservation_per_s != tags_priv_held(tags, id)) {
        tags_priv_rate_set(reserve, terms->reservation_per_s, clock);
        pool->rate_max = qos_max(pool->rate_max, terms->reservation_per_s);
        oldest = qos_sat_sub(qos_sat_sub(clock, tags->config.reserve_lag_ns), tags_priv_deadline(tags, id));
        if (oldest) /* not later than those that wait */
            tags_priv_rate_raise(reserve, tags_priv_rate_key(reserve) + oldest);
    }
    pool->reserved_sum += terms->reservation_per_s;
    h->packed = weight | TAGS_PRIV_CLIENT | TAGS_PRIV_CAME | (terms->reservation_per_s ? TAGS_PRIV_RESERVED : 0) |
                (limit ? TAGS_PRIV_LIMITED : 0);
}

/* Its group, after something about a client changed: until when it waits, if it waits. */
QOS_PRIV void tags_priv_tell_group(struct tags *tags, uint32_t id)
{
    if (id < tags->grouped && (tags->hot[tags->group[id]].packed & TAGS_PRIV_WAITING))
        tags_priv_t_put(&tags->root, &tags->root.l, tags->group[id], tags_priv_until(tags, tags->group[id]));
}

QOS_PRIV enum qos_status tags_priv_add(struct tags *tags, uint64_t now_ns, uint32_t id, const struct tags_client *terms)
{
    enum qos_status status = tags_priv_terms(tags, id, terms);
    if (status != QOS_OK)
        return status;
    tags_priv_now(tags, now_ns);
    tags_priv_apply(tags, id, terms);
    tags_priv_pool_of(tags, id)->members++;
    return QOS_OK;
}

QOS_API enum qos_status tags_add(struct tags *tags, uint64_t now_ns, uint32_t id, const struct tags_client *terms)
{
    QOS_ASSERT(tags);
    if (id >= tags->config.clients || (id < tags->grouped && tags->group[id] == QOS_NONE))
        return QOS_ENOENT;
    return tags_priv_client(tags, id) ? QOS_EEXIST : tags_priv_add(tags, now_ns, id, terms);
}

QOS_API enum qos_status tags_group_add(struct tags *tags, uint64_t now_ns, uint32_t id, const struct tags_client *terms,
                                       uint32_t first, uint32_t clients)
{
    struct tags_priv_skips seen;
    enum qos_status status;
    uint32_t i;
    QOS_ASSERT(tags);
    if (id < tags->config.clients || id >= tags->ids)
        return QOS_ENOENT;
    if (clients == 0 || clients % 8 || first % 8)
        return QOS_EINVAL;
    if (first > tags->config.clients || clients > tags->config.clients - first)
        return QOS_ERANGE;
    if (tags_priv_member(tags, id))
        return QOS_EEXIST;
    for (i = first; i < first + clients; i++)
        if (tags->group[i] != QOS_NONE)
            return QOS_EEXIST;
    seen = tags_priv_skips_of(tags, id);
    status = tags_priv_add(tags, now_ns, id, terms);
    if (status != QOS_OK)
        return status;
    tags_priv_pool_begin(tags, tags_priv_inside(tags, id), first, clients);
    for (i = first; i < first + clients; i++) {
        tags->group[i] = id;
        tags->hot[i].tag = tags_priv_wide(0, 0); /* on the axis of this group it owes nothing */
        tags->skipped[i] = tags_priv_wide(TAGS_PRIV_LEAD_MAX, 0);
        tags->seen[i] = seen;
        tags->seen[i].away_ns = qos_wrap_sub(0, tags->now_ns);
        if (tags->surplus)
            tags->surplus[i] = tags_priv_wide(0, 0);
    }
    return QOS_OK;
}

QOS_API enum qos_status tags_change(struct tags *tags, uint64_t now_ns, uint32_t id, const struct tags_client *terms)
{
    struct tags_priv_hot *h = tags_priv_member(tags, id);
    struct tags_priv_pool *pool;
    enum qos_status status;
    if (!h)
        return QOS_ENOENT;
    status = tags_priv_terms(tags, id, terms);
    if (status != QOS_OK)
        return status;
    pool = tags_priv_pool_of(tags, id);
    tags_priv_now(tags, now_ns);
    if (h->queued) {
        tags_priv_leave_trees(tags, pool, id);
        tags_priv_off_limit(pool, h);
        pool->weights -= tags_priv_weight(h);
    }
    pool->reserved_sum -= tags_priv_held(tags, id);
    tags_priv_apply(tags, id, terms);
    if (h->queued) {
        pool->weights += tags_priv_weight(h);
        tags_priv_enter_trees(tags, pool, id);
        tags_priv_tell_group(tags, id);
    }
    return QOS_OK;
}

QOS_PRIV_NOINLINE void tags_priv_empty(struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    struct tags_priv_hot *h = &tags->hot[id];
    tags_priv_leave_trees(tags, pool, id);
    pool->weights -= tags_priv_weight(h);
    pool->backlogged--;
    h->queued = 0;
    if (id < tags->grouped)
        tags->seen[id].away_ns = qos_wrap_sub(tags->seen[id].away_ns, tags->now_ns);
    if (tags->queued_cost)
        tags->queued_cost[id] = 0;
}

/* count requests leave a queue. Their cost stops at 0: a caller may give more at dispatch than at arrival. */
TAGS_PRIV_INLINE void tags_priv_leave(struct tags *tags, struct tags_priv_pool *pool, uint32_t id, uint32_t count,
                                      uint64_t cost)
{
    if (QOS_UNLIKELY(tags->hot[id].queued == count)) {
        tags_priv_empty(tags, pool, id);
        return;
    }
    tags->hot[id].queued -= count;
    if (tags->queued_cost)
        tags->queued_cost[id] = qos_sat_sub(tags->queued_cost[id], qos_max(cost, 1));
}

QOS_PRIV void tags_priv_leave_both(struct tags *tags, uint32_t id, uint32_t count, uint64_t cost)
{
    uint32_t at;
    tags->queued -= count;
    for (at = id; at != QOS_NONE; at = tags_priv_up(tags, at))
        tags_priv_leave(tags, tags_priv_pool_of(tags, at), at, count, cost);
    tags_priv_tell_group(tags, id);
}

QOS_API enum qos_status tags_remove(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t *dropped)
{
    struct tags_priv_hot *h = tags_priv_member(tags, id);
    struct tags_priv_pool *inside = NULL;
    uint32_t i;
    if (!h)
        return QOS_ENOENT;
    if (id >= tags->config.clients) {
        inside = tags_priv_inside(tags, id);
        if (inside->members || h->at_device)
            return QOS_EBUSY;
        for (i = inside->first; i < inside->first + inside->places; i++)
            tags->group[i] = QOS_NONE;
    }
    tags_priv_now(tags, now_ns);
    if (dropped)
        *dropped = h->queued;
    if (h->queued)
        tags_priv_leave_both(tags, id, h->queued, tags->queued_cost ? tags->queued_cost[id] : 0);
    if (tags->queue && !inside)
        tags->queue[id].head = tags->queue[id].tail = NULL;
    tags_priv_pool_of(tags, id)->reserved_sum -= tags_priv_held(tags, id);
    tags_priv_pool_of(tags, id)->members--;
    h->packed &= ~(TAGS_PRIV_CLIENT | TAGS_PRIV_RESERVED | TAGS_PRIV_LIMITED);
    return QOS_OK;
}

/* -- arrivals */

/* TAGS_REJECT: would the last of count new requests wait at the limit for longer than is accepted? */
QOS_PRIV_NOINLINE bool tags_priv_rejects(const struct tags *tags, uint32_t id, uint32_t count, uint64_t cost)
{
    const struct tags_priv_hot *h = &tags->hot[id];
    bool idle = h->queued == 0 && h->at_device == 0;
    uint64_t before = h->queued + (uint64_t)count - 1,
             until_ns = qos_sat_add(tags->now_ns, tags->config.reject_after_ns);
    struct tags_priv_rate p = tags->limit[id];
    if (!(h->packed & TAGS_PRIV_LIMITED) || until_ns >= TAGS_PRIV_ABSENT - 1) /* for ever */
        return false;
    if (tags->queued_cost)
        before = qos_sat_add(tags->queued_cost[id], (count - 1) * cost); /* < 2^31 * 2^32 */
    tags_priv_rate_raise(&p, idle ? tags->now_ns : qos_sat_sub(tags->now_ns, tags->config.limit_burst_ns));
    return p.tag_ns > until_ns ||
           tags_priv_less(qos_mul_wide(until_ns - p.tag_ns, p.rate_per_s),
                          qos_add_wide(qos_mul_wide(before, QOS_NS_PER_S), tags_priv_wide(0, p.rest)));
}

/* Nothing of it was queued: its tags as of now. */
QOS_PRIV void tags_priv_wake(struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    struct tags_priv_hot *h = &tags->hot[id];
    if (h->at_device == 0 && !tags->config.shared) {
        tags_priv_rate_return(&tags->limit[id], tags->now_ns);
    } else if (h->at_device == 0) { /* other schedulers may have kept it active: its words decide */
        if (h->packed & TAGS_PRIV_RESERVED)
            (void)tags_priv_claim_one(tags, id, false, 0, true);
        if (h->packed & TAGS_PRIV_LIMITED)
            (void)tags_priv_claim_one(tags, id, true, 0, true);
    }
    tags_priv_rate_return(&tags->reserve[id],
                          tags_priv_reserve_floor(tags, pool, id, tags_priv_clock(tags, pool), h->at_device != 0));
    tags_priv_raise_v(pool); /* others may have been served alone since */
    tags->skipped[id] = qos_add_wide(tags->skipped[id], tags_priv_lead(pool->v, h->tag));
    h->tag = tags_priv_most_of(pool->v, h->tag);
    h->packed |= TAGS_PRIV_CAME;
}

/* Its queue was empty: into the trees. */
QOS_PRIV_NOINLINE void tags_priv_begin(struct tags *tags, struct tags_priv_pool *pool, uint32_t id, uint64_t cost)
{
    uint32_t at = id - pool->first;
    __builtin_prefetch(&pool->s[pool->s_base[0] + (at >> 2)]); /* far away, if clients are many */
    __builtin_prefetch(&pool->r.key[8 * (pool->t_base[0] + (at >> 3))]);
    __builtin_prefetch(&tags->limit[id]);
    if (tags->reserve_units)
        tags->reserve_units[id] = (uint32_t)cost;
    tags_priv_wake(tags, pool, id);
    if (id < tags->grouped)
        tags->seen[id].away_ns = qos_wrap_add(tags->seen[id].away_ns, tags->now_ns);
    pool->weights += tags_priv_weight(&tags->hot[id]);
    pool->backlogged++;
    tags_priv_enter_trees(tags, pool, id);
}

QOS_PRIV enum qos_status tags_priv_refuses(struct tags *tags, uint32_t id, uint32_t count, uint64_t cost)
{
    uint32_t at;
    for (at = id; at != QOS_NONE; at = tags_priv_up(tags, at)) {
        if (count > TAGS_BACKLOG_MAX - tags->hot[at].queued)
            return QOS_EFULL;
        if (tags->config.at_limit == TAGS_REJECT && tags_priv_rejects(tags, at, count, cost)) {
            tags_priv_count(tags, id, offsetof(struct tags_priv_counters, all.refused), count);
            return QOS_ELIMIT;
        }
    }
    return QOS_OK;
}

/* count requests of cost each join the queues of a client and its group. */
QOS_PRIV_NOINLINE enum qos_status tags_priv_join(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t count,
                                                 uint64_t cost)
{
    enum qos_status status;
    uint32_t at;
    tags_priv_now(tags, now_ns);
    status = tags_priv_refuses(tags, id, count, cost);
    if (status != QOS_OK)
        return status;
    for (at = id; at != QOS_NONE; at = tags_priv_up(tags, at)) {
        if (tags->hot[at].queued == 0)
            tags_priv_begin(tags, tags_priv_pool_of(tags, at), at, cost);
        tags->hot[at].queued += count;
        if (tags->queued_cost)
            tags->queued_cost[at] += count * cost; /* at most 2^31 requests of 2^32 */
    }
    tags_priv_tell_group(tags, id);
    tags->queued += count;
    return QOS_OK;
}

QOS_PRIV enum qos_status tags_priv_arrive(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t count,
                                          uint64_t cost)
{
    struct tags_priv_hot *h = tags_priv_client(tags, id);
    if (!h)
        return QOS_ENOENT;
    if (count == 0 || cost > tags->config.cost_max)
        return QOS_ERANGE;
    if (count > TAGS_BACKLOG_MAX - h->queued)
        return QOS_EFULL;
    if (h->queued == 0 || tags->grouped || tags->config.at_limit == TAGS_REJECT ||
        qos_wrap_sub(now_ns, tags->now_ns) >= tags->plain_ns)
        return tags_priv_join(tags, now_ns, id, count, qos_max(cost, 1));
    tags->now_ns = now_ns; /* more of one that waits: most calls, so they save no registers */
    h->queued += count;
    tags->queued += count;
    return QOS_OK;
}

QOS_API enum qos_status tags_arrive(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t count, uint64_t cost)
{
    QOS_ASSERT(tags);
    return tags->queue ? QOS_EINVAL : tags_priv_arrive(tags, now_ns, id, count, cost);
}

/* cost: of all count; UINT64_MAX: their share of what is queued. */
QOS_PRIV enum qos_status tags_priv_withdraw(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t count,
                                            uint64_t cost)
{
    struct tags_priv_hot *h = tags_priv_client(tags, id);
    if (!h)
        return QOS_ENOENT;
    if (count == 0 || count > h->queued)
        return QOS_ERANGE;
    tags_priv_now(tags, now_ns);
    if (tags->queued_cost && cost == UINT64_MAX)
        cost = qos_mul_div_floor(tags->queued_cost[id], count, h->queued);
    tags_priv_leave_both(tags, id, count, cost);
    return QOS_OK;
}

QOS_API enum qos_status tags_withdraw(struct tags *tags, uint64_t now_ns, uint32_t id, uint32_t count)
{
    QOS_ASSERT(tags);
    return tags->queue ? QOS_EINVAL : tags_priv_withdraw(tags, now_ns, id, count, UINT64_MAX);
}

/* -- choice */

/* QOS_EAGAIN: no client is due. QOS_EBUSY: moves are used up. */
TAGS_PRIV_INLINE enum qos_status tags_priv_by_reservation(struct tags *tags, struct tags_priv_pool *pool,
                                                          uint32_t *moves, struct tags_choice *choice)
{
    uint64_t clock = tags_priv_clock(tags, pool);
    for (;;) {
        bool begins = pool->r.least <= clock, early;
        uint32_t id;
        if (!begins && pool->d.least == TAGS_PRIV_ABSENT)
            return QOS_EAGAIN;
        id = tags_priv_t_top(pool, begins ? &pool->r : &pool->d);
        early = tags_priv_rate_key(&tags->reserve[id]) > clock; /* the clock was moved back since it was due */
        if (early || !tags_priv_may(tags, id, moves)) {
            if (!tags_priv_move_left(moves))
                return QOS_EBUSY;
            tags_priv_step_aside(tags, pool, id, early);
            continue;
        }
        choice->client = id;
        choice->phase = TAGS_PHASE_RESERVATION;
        if (!begins || (pool->d.least == TAGS_PRIV_ABSENT && !tags->reserve_units &&
                        tags->reserve[id].rate_per_s == pool->rate_max))
            return QOS_OK; /* no other one that is due has an earlier deadline */
        if (!tags_priv_move_left(moves))
            return QOS_EBUSY; /* one that was not moved may have an earlier deadline */
        tags_priv_due(tags, pool, id);
    }
}

TAGS_PRIV_INLINE enum qos_status tags_priv_by_weight(struct tags *tags, struct tags_priv_pool *pool, uint32_t *moves,
                                                     struct tags_choice *choice)
{
    struct qos_u128 top;
    while ((top = pool->s_top).hi < TAGS_PRIV_AT_LIMIT) {
        uint32_t id = (uint32_t)(top.lo & TAGS_PRIV_ID_MASK);
        if (tags_priv_may(tags, id, moves)) {
            choice->client = id;
            choice->phase = TAGS_PHASE_WEIGHT;
            return QOS_OK;
        }
        if (!tags_priv_move_left(moves))
            return QOS_EBUSY;
        tags_priv_step_aside(tags, pool, id, false);
    }
    if (top.hi == TAGS_PRIV_ABSENT)
        return QOS_EAGAIN;
    choice->client = (uint32_t)(top.lo & TAGS_PRIV_ID_MASK); /* TAGS_ALLOW: all that wait are at their limits */
    choice->phase = TAGS_PHASE_ABOVE_LIMIT;
    return QOS_OK;
}

QOS_PRIV_NOINLINE enum qos_status tags_priv_choose_inside(struct tags *tags, uint32_t *moves,
                                                          struct tags_choice *choice)
{
    struct tags_priv_pool *pool = tags_priv_inside(tags, choice->client);
    enum tags_phase phase = choice->phase;
    enum qos_status status = QOS_EAGAIN;
    if (pool->l.least <= tags->now_ns)
        tags_priv_release(tags, pool, moves);
    if (phase == TAGS_PHASE_RESERVATION)
        status = tags_priv_by_reservation(tags, pool, moves, choice);
    if (status != QOS_EAGAIN)
        return status;
    status = tags_priv_by_weight(tags, pool, moves, choice);
    choice->phase = phase == TAGS_PHASE_RESERVATION ? TAGS_PHASE_GROUP : phase;
    return status;
}

/* As tags_choose; QOS_EBUSY: moves are used up. */
TAGS_PRIV_INLINE enum qos_status tags_priv_choose(struct tags *tags, uint64_t now_ns, struct tags_choice *choice)
{
    struct tags_priv_pool *root = &tags->root;
    uint32_t moves = tags->config.moves_max;
    enum qos_status status = QOS_EAGAIN;
    tags_priv_now(tags, now_ns);
    if (root->l.least <= tags->now_ns)
        tags_priv_release(tags, root, &moves);
    if (QOS_LIKELY(tags->weight_credit <= 0)) /* else work is due to the weight phase */
        status = tags_priv_by_reservation(tags, root, &moves, choice);
    if (status == QOS_EAGAIN)
        status = tags_priv_by_weight(tags, root, &moves, choice);
    if (status == QOS_OK && tags->grouped)
        return tags_priv_choose_inside(tags, &moves, choice);
    return status == QOS_EAGAIN && root->l.least <= tags->now_ns ? QOS_EBUSY : status;
}

QOS_API enum qos_status tags_choose(struct tags *tags, uint64_t now_ns, struct tags_choice *choice)
{
    struct tags_choice found;
    enum qos_status status;
    QOS_ASSERT(tags);
    if (!choice)
        return QOS_EINVAL;
    status = tags_priv_choose(tags, now_ns, &found);
    if (status == QOS_OK)
        *choice = found;
    return status == QOS_EBUSY ? QOS_EAGAIN : status;
}

QOS_PRIV bool tags_priv_full(const struct tags *tags)
{
    return tags->config.at_device_max && tags->at_device == tags->config.at_device_max;
}

QOS_API uint64_t tags_next_ns(struct tags *tags, uint64_t now_ns)
{
    struct tags_choice choice;
    uint64_t next, at, until, told;
    bool soon, later;
    QOS_ASSERT(tags);
    if (tags_priv_full(tags))
        return QOS_NEVER;
    if (tags_priv_choose(tags, now_ns, &choice) != QOS_EAGAIN)
        return now_ns;
    next = tags->root.l.least; /* all that wait now wait at their limits: below it, a weight is enough */
    if (next == TAGS_PRIV_ABSENT)
        return QOS_NEVER;
    told = qos_sat_add(qos_wrap_add(qos_wrap_sub(tags->now_ns, tags->shift_ns), tags->base_ns),
                       tags->held_ns ? qos_min(tags->held_ns, tags->held_step_ns) : next - tags->now_ns);
    at = qos_wrap_sub(told, tags->base_ns); /* this and now_ns may be before the first time */
    later = qos_wrap_sub(at, tags->now_ns) < UINT64_C(1) << 63;
    if (tags_priv_follows(tags, at, TAGS_PRIV_LEAP_NS) && (tags->held_ns == 0 || later)) {
        until = tags->now_ns + TAGS_PRIV_NEAR_NS; /* a call near now ends the shift */
        soon = qos_wrap_sub(qos_wrap_sub(now_ns, tags->base_ns), until) >= UINT64_C(1) << 63;
        at = next < until && soon ? next : later ? qos_max(at, until) : until;
        told = qos_sat_add(at, tags->base_ns);
    }
    return qos_max(qos_min(told, QOS_NEVER - 1), now_ns); /* one waits: also if that is beyond 2^64 */
}

/* -- dispatch */

/* What the request itself takes from a reservation or limit tag, if it is charged to that. */
QOS_PRIV uint64_t tags_priv_units(const struct tags *tags, const struct tags_priv_slot *slot, bool charged)
{
    return !charged ? 0 : tags->config.count_cost ? slot->cost : 1;
}

/* Charges the reservation tag. In its phase the deadline was the earliest: the clock may move back for all. */
QOS_PRIV void tags_priv_charge_reserve(struct tags *tags, struct tags_priv_pool *pool, uint32_t id,
                                       enum tags_phase phase, uint64_t units, uint64_t elsewhere)
{
    uint64_t oldest = qos_sat_sub(tags_priv_clock(tags, pool), tags->config.reserve_lag_ns);
    tags_priv_rate_charge(&tags->reserve[id], phase == TAGS_PHASE_RESERVATION ? 0 : oldest, units, elsewhere);
    if (phase == TAGS_PHASE_RESERVATION)
        pool->behind_ns += qos_sat_sub(oldest, tags_priv_rate_key(&tags->reserve[id]));
}

QOS_PRIV void tags_priv_charge_limit(const struct tags *tags, uint32_t id, uint64_t units, uint64_t elsewhere)
{
    tags_priv_rate_charge(&tags->limit[id], qos_sat_sub(tags->now_ns, tags->config.limit_burst_ns), units, elsewhere);
}

/* Charges the reservation and limit tags. false: a shared word was not due, nothing was charged. */
TAGS_PRIV_INLINE bool tags_priv_charge_rates(struct tags *tags, struct tags_priv_pool *pool, uint32_t id,
                                             struct tags_priv_slot *slot, struct tags_priv_charge *charge,
                                             uint32_t level, enum tags_phase phase)
{
    const bool shared = tags->config.shared != NULL;
    const uint64_t packed = tags->hot[id].packed;
    uint64_t reserved, limited;
    if (QOS_LIKELY(!(packed & (TAGS_PRIV_RESERVED | TAGS_PRIV_LIMITED)))) {
        slot->rho = 0;
        return true;
    }
    if (packed & TAGS_PRIV_RESERVED) {
        if (phase == TAGS_PHASE_RESERVATION ||
            (phase == TAGS_PHASE_FORCED && tags_priv_rate_key(&tags->reserve[id]) <= tags_priv_clock(tags, pool)))
            slot->flags[level] |= TAGS_PRIV_BY_RESERVE;
    } else {
        slot->rho = 0;
    }
    if ((packed & TAGS_PRIV_LIMITED) && phase != TAGS_PHASE_ABOVE_LIMIT)
        slot->flags[level] |= TAGS_PRIV_BY_LIMIT;
    reserved = tags_priv_units(tags, slot, slot->flags[level] & TAGS_PRIV_BY_RESERVE);
    limited = tags_priv_units(tags, slot, slot->flags[level] & TAGS_PRIV_BY_LIMIT);
    if (shared && !tags_priv_claim(tags, id, phase, reserved + slot->rho, limited ? limited + slot->delta : 0))
        return false;
    if (reserved + slot->rho) {
        if (tags->reserve_units)
            tags->reserve_units[id] = slot->cost;
        if (!shared)
            tags_priv_charge_reserve(tags, pool, id, phase, reserved, slot->rho);
        charge->reserve_ns = tags_priv_rate_key(&tags->reserve[id]);
    }
    if (limited) {
        if (!shared)
            tags_priv_charge_limit(tags, id, limited, slot->delta);
        charge->limit_ns = tags_priv_rate_key(&tags->limit[id]);
    }
    return true;
}

/* By how much the share tag leads V by more than `requests` charges, and what rounding may do (V has no low bits). */
QOS_PRIV struct qos_u128 tags_priv_beyond(struct qos_u128 v, struct qos_u128 tag, struct qos_u128 charge,
                                          uint64_t requests)
{
    struct qos_u128 most = tags_priv_wide(charge.hi >> 24, (charge.hi & 0xffffff) << 40 | charge.lo >> 24);
    const uint64_t hi = qos_sat_mul(charge.hi, requests);
    most = qos_add_wide(most, tags_priv_wide(qos_min(hi, TAGS_PRIV_LEAD_MAX), TAGS_PRIV_ID_MASK));
    most = qos_add_wide(most, qos_mul_wide(charge.lo, requests));
    return tags_priv_lead(tags_priv_lead(tag, v), most);
}

/* Does this charge for a request by reservation lead V by more than lead_requests of them and the lag of the others? */
QOS_PRIV_NOINLINE bool tags_priv_too_far(const struct tags *tags, const struct tags_priv_pool *pool,
                                         const struct tags_priv_hot *h, struct qos_u128 tag, struct qos_u128 by)
{
    const uint64_t weights = pool->weights - tags_priv_weight(h);
    const struct qos_u128 beyond = tags_priv_beyond(pool->v, tag, by, tags->config.lead_requests);
    const struct qos_u128 high = qos_mul_wide(beyond.hi, weights), low = qos_mul_wide(beyond.lo, weights);
    return high.hi != 0 || high.lo >> 63 || /* times the weights, as nothing is divided so: below 2^126 */
           tags_priv_less(tags_priv_lag_work(pool, pool->backlogged - 1),
                          qos_add_wide(tags_priv_wide(high.lo, 0), low));
}

/* The share tag after what a request brings from other servers, but for what V has passed it by in that time. */
QOS_PRIV_NOINLINE struct qos_u128 tags_priv_brought(struct tags *tags, const struct tags_priv_pool *pool, uint32_t id,
                                                    const struct tags_priv_slot *slot)
{
    const uint64_t one = tags->mean ? slot->amount + slot->amount / 3 : 1; /* the mean */
    const uint64_t work = qos_min(qos_sat_mul(one, slot->delta), TAGS_PRIV_AMOUNT_MAX);
    struct qos_u128 tag = tags->hot[id].tag, by = tags_priv_per_weight(&tags->hot[id], work, &tags->rest[id]);
    tags_priv_move(&tag, pool->v, tags_priv_lead(by, tags->skipped[id]));
    tags->skipped[id] = tags_priv_lead(tags->skipped[id], by);
    return tag;
}

/* Charges the share tag, or above the limit the surplus tag. */
TAGS_PRIV_INLINE void tags_priv_charge_share(struct tags *tags, struct tags_priv_pool *pool, uint32_t id,
                                             const struct tags_priv_slot *slot, struct tags_priv_charge *charge,
                                             uint16_t *flags, enum tags_phase phase)
{
    struct tags_priv_hot *h = &tags->hot[id];
    const uint64_t amount = slot->amount;
    struct qos_u128 by = tags_priv_per_weight(h, amount, &tags->rest[id]), tag;
    tags_priv_raise_v(pool);
    if (QOS_UNLIKELY((pool->v.hi | pool->surplus_v.hi) >= TAGS_PRIV_AXIS_END))
        tags_priv_rebase(tags, pool);
    pool->largest = qos_max(amount, pool->largest);
    tag = QOS_UNLIKELY(slot->delta) ? tags_priv_brought(tags, pool, id, slot) : h->tag;
    if (phase == TAGS_PHASE_RESERVATION && tags_priv_too_far(tags, pool, h, qos_add_wide(tag, by), by)) {
        *flags |= TAGS_PRIV_NO_SHARE;
        return;
    }
    if (QOS_UNLIKELY(phase == TAGS_PHASE_ABOVE_LIMIT)) {
        *flags |= TAGS_PRIV_SURPLUS;
        pool->surplus_v = tags_priv_most_of(pool->surplus_v, tags->surplus[id]);
        tags_priv_move(&tags->surplus[id], pool->surplus_v, by);
        charge->share = tags->surplus[id];
        return;
    }
    h->tag = tag;
    tags_priv_move(&h->tag, pool->v, by);
    charge->share = h->tag;
}

/* What the share tags are charged, and to which credit of the weight phase. */
TAGS_PRIV_INLINE void tags_priv_weigh(struct tags *tags, struct tags_priv_slot *slot, enum tags_phase phase)
{
    slot->amount = tags->mean ? tags_priv_estimate(tags, slot->client) : slot->cost;
    if (QOS_LIKELY(tags->config.weight_share_permille == 0))
        return;
    if (phase == TAGS_PHASE_RESERVATION || phase == TAGS_PHASE_GROUP)
        slot->flags[0] |= TAGS_PRIV_EARNED;
    else if (tags->weight_credit > 0)
        slot->flags[0] |= TAGS_PRIV_SPENT;
    tags_priv_credit_weight(tags, slot, slot->amount, 0);
}

/* By which of its own tags a client or group is served: one that is below its limit is not charged above it. */
QOS_PRIV enum tags_phase tags_priv_phase_of(const struct tags *tags, uint32_t id, enum tags_phase phase)
{
    if (phase == TAGS_PHASE_GROUP)
        return id < tags->grouped ? TAGS_PHASE_WEIGHT : TAGS_PHASE_RESERVATION;
    if (phase == TAGS_PHASE_ABOVE_LIMIT && !(tags->hot[id].packed & TAGS_PRIV_WAITING))
        return TAGS_PHASE_WEIGHT;
    return phase;
}

QOS_PRIV void tags_priv_count_in(struct tags_priv_counters *c, enum tags_phase phase, uint64_t units)
{
    qos_counter_add(&c->served[phase], 1);
    qos_counter_add(&c->all.granted, units);
    if (phase != TAGS_PHASE_RESERVATION)
        qos_counter_add(&c->all.borrowed, units);
}

/* Charges a client or group, by its own phase. What counts of a group is its largest request lately. */
TAGS_PRIV_INLINE bool tags_priv_charge_level(struct tags *tags, bool grouped, uint32_t id, struct tags_priv_slot *slot,
                                             struct tags_priv_charge *charge, uint32_t level, enum tags_phase phase)
{
    struct tags_priv_pool *pool = grouped ? tags_priv_pool_of(tags, id) : &tags->root;
    const enum tags_phase own = grouped ? tags_priv_phase_of(tags, id, phase) : phase;
    uint32_t *last = level && tags->reserve_units ? &tags->reserve_units[id] : NULL, before = last ? *last : 0;
    if (!tags_priv_charge_rates(tags, pool, id, slot, charge, level, own))
        return false;
    if (last)
        *last = (uint32_t)qos_max(slot->cost, before - before / 64);
    tags_priv_charge_share(tags, pool, id, slot, charge, &slot->flags[level], own);
    return true;
}

QOS_PRIV_NOINLINE void tags_priv_charge_grouped(struct tags *tags, uint32_t i, uint32_t level, enum tags_phase phase)
{
    struct tags_priv_slot *slot = &tags->slot[i];
    (void)tags_priv_charge_level(tags, true, tags_priv_id_at(tags, i, level), slot, tags_priv_charge_at(tags, i, level),
                                 level, phase);
}

/* What of open_ns counts for n at this rate: what had no place in here_ns. */
QOS_PRIV uint64_t tags_priv_counts(uint64_t open_ns, uint64_t n, uint64_t rate_per_s, uint64_t here_ns)
{
    return qos_min(open_ns, qos_sat_sub(qos_mul_div_ceil(n, QOS_NS_PER_S, rate_per_s), here_ns));
}

/* The group's charge for a request that tells of others. Of what its tags skipped counts what they did since this
 * client's last request, once for all clients; but first the time in which the group was here without this client. */
QOS_PRIV_NOINLINE void tags_priv_charge_told(struct tags *tags, uint32_t i, enum tags_phase phase)
{
    const struct tags_priv_slot *slot = &tags->slot[i];
    const uint32_t id = tags->group[slot->client];
    const struct tags_priv_skips all = tags_priv_skips_of(tags, id), *seen = &tags->seen[slot->client];
    const uint64_t alone_ns = qos_sat_sub(seen->away_ns, all.limit_ns - seen->limit_ns);
    const uint64_t here_ns = qos_sat_sub(alone_ns, tags->config.limit_burst_ns);
    struct tags_priv_skips *used = &tags->seen[id], open, left;
    used->share = tags_priv_most_of(used->share, seen->share);
    used->limit_ns = qos_max(used->limit_ns, seen->limit_ns);
    used->reserve_ns = qos_max(used->reserve_ns, seen->reserve_ns);
    open.share = tags_priv_lead(all.share, used->share);
    open.limit_ns = tags_priv_counts(all.limit_ns - used->limit_ns, slot->delta, tags->limit[id].rate_per_s, here_ns);
    open.reserve_ns =
        tags_priv_counts(all.reserve_ns - used->reserve_ns, slot->rho, tags->reserve[id].rate_per_s, here_ns);
    tags_priv_set_skips(tags, id, open);
    tags_priv_charge_grouped(tags, i, 1, phase);
    left = tags_priv_skips_of(tags, id);
    used->share = qos_add_wide(used->share, tags_priv_lead(open.share, left.share));
    used->limit_ns += qos_sat_sub(open.limit_ns, left.limit_ns);
    used->reserve_ns += qos_sat_sub(open.reserve_ns, left.reserve_ns);
    tags_priv_set_skips(tags, id, all);
}

/* Everything about a dispatch but the queue and the trees. false: as tags_priv_charge_rates. */
TAGS_PRIV_INLINE bool tags_priv_send(struct tags *tags, bool grouped, uint32_t id, uint32_t i, enum tags_phase phase,
                                     struct tags_grant *grant)
{
    struct tags_priv_slot *slot = &tags->slot[i];
    const uint64_t units = tags_priv_units(tags, slot, true);
    uint32_t at;
    tags_priv_weigh(tags, slot, phase);
    if (grouped) {
        tags_priv_charge_grouped(tags, i, 0, phase);
        if (QOS_UNLIKELY(slot->delta))
            tags_priv_charge_told(tags, i, phase);
        else
            tags_priv_charge_grouped(tags, i, 1, phase);
    } else if (!tags_priv_charge_level(tags, false, id, slot, &slot->own, 0, phase)) {
        tags_priv_credit_weight(tags, slot, 0, slot->amount);
        return false;
    }
    tags_priv_count_in(&tags->counters, phase, units);
    for (at = id; tags->by_client && at != QOS_NONE; at = grouped ? tags_priv_up(tags, at) : QOS_NONE)
        tags_priv_count_in(&tags->by_client[at], phase, units);
    grant->client = id;
    grant->phase = phase;
    grant->cost = slot->cost;
    grant->slot = i;
    if (tags->config.at_device_max) {
        tags_priv_slot_take(tags);
        slot->entered = tags->passed;
        if (tags->worked < tags->at_work_max) /* 0 without attribute */
            tags_priv_begin_work(tags, i);
        tags->at_device++;
        tags->hot[id].at_device++;
        if (grouped)
            tags->hot[tags->group[id]].at_device++;
    }
    grant->serial = slot->serial; /* 0 with no_completions */
    return true;
}

QOS_PRIV uint32_t tags_priv_room(struct tags *tags, uint32_t id, uint64_t cost, uint32_t rho, uint32_t delta)
{
    const uint32_t i = tags->free_slot;
    struct tags_priv_slot *slot = &tags->slot[i];
    slot->client = id;
    slot->flags[0] = slot->flags[1] = 0;
    slot->cost = (uint32_t)qos_max(cost, 1);
    slot->rho = rho;
    slot->delta = delta;
    return i;
}

QOS_PRIV void tags_priv_settle_rates(const struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    const struct tags_priv_hot *h = &tags->hot[id];
    if (h->packed & TAGS_PRIV_WAITING)
        tags_priv_t_put(pool, &pool->l, id, tags_priv_until(tags, id));
    else if (h->queued && (h->packed & TAGS_PRIV_RESERVED))
        tags_priv_r_set(tags, pool, id);
}

/* A request of a client, or of its group, was sent: its queue and its places in the trees. */
TAGS_PRIV_INLINE void tags_priv_sent(struct tags *tags, struct tags_priv_pool *pool, uint32_t id, uint32_t i,
                                     uint32_t level)
{
    const struct tags_priv_slot *slot = &tags->slot[i];
    if (level == 0 && (tags->hot[id].packed & TAGS_PRIV_CAME || slot->delta)) {
        const struct tags_priv_skips none = {tags_priv_wide(0, 0), 0, 0, 0};
        tags->hot[id].packed &= ~TAGS_PRIV_CAME;
        tags_priv_set_skips(tags, id, none);
    }
    tags_priv_leave(tags, pool, id, 1, slot->cost);
    if (tags->hot[id].queued == 0)
        return;
    tags_priv_s_put(pool, id, tags_priv_key(tags, id), false);
    if (slot->flags[level] & TAGS_PRIV_BY_RESERVE || slot->rho || (tags->hot[id].packed & TAGS_PRIV_WAITING))
        tags_priv_settle_rates(tags, pool, id);
}

/* With groups or without: two copies are compiled. */
TAGS_PRIV_INLINE enum qos_status tags_priv_dispatch_as(struct tags *tags, bool grouped,
                                                       const struct tags_choice *choice, uint64_t cost, uint32_t rho,
                                                       uint32_t delta, struct tags_grant *grant)
{
    const uint32_t id = choice->client;
    const bool told =
        !delta || tags->limit[id].skipped_ns != UINT64_MAX || tags->config.shared; /* else it is new here */
    const uint32_t i = tags_priv_room(tags, id, cost, told ? rho : 0, told ? delta : 0);
    struct tags_priv_pool *pool = grouped ? tags_priv_pool_of(tags, id) : &tags->root;
    if (!tags_priv_send(tags, grouped, id, i, choice->phase, grant)) {
        tags_priv_settle_rates(tags, pool, id);
        return QOS_EAGAIN;
    }
    tags->queued--;
    if (grouped)
        tags->seen[id] = tags_priv_skips_of(tags, tags->group[id]);
    tags_priv_sent(tags, pool, id, i, 0);
    if (grouped)
        tags_priv_sent(tags, &tags->root, tags->group[id], i, 1);
    return QOS_OK;
}

QOS_PRIV_NOINLINE enum qos_status tags_priv_dispatch_grouped(struct tags *tags, const struct tags_choice *choice,
                                                             uint64_t cost, uint32_t rho, uint32_t delta,
                                                             struct tags_grant *grant)
{
    return tags_priv_dispatch_as(tags, true, choice, cost, rho, delta, grant);
}

/* The choice comes by address: loaded right after its halves were stored, a value costs 5 ns. */
TAGS_PRIV_INLINE enum qos_status tags_priv_dispatch(struct tags *tags, const struct tags_choice *choice, uint64_t cost,
                                                    uint32_t rho, uint32_t delta, struct tags_grant *grant)
{
    if (tags->config.attribute)
        tags_priv_catch_up(tags);
    if (tags->grouped)
        return tags_priv_dispatch_grouped(tags, choice, cost, rho, delta, grant);
    return tags_priv_dispatch_as(tags, false, choice, cost, rho, delta, grant);
}

QOS_API enum qos_status tags_dispatch(struct tags *tags, uint64_t now_ns, const struct tags_choice *choice,
                                      uint64_t cost, uint32_t rho, uint32_t delta, struct tags_grant *grant)
{
    struct tags_priv_hot *h;
    QOS_ASSERT(tags);
    if (!choice || !grant || rho > delta || (unsigned)choice->phase >= TAGS_PHASES ||
        choice->phase == TAGS_PHASE_FORCED)
        return QOS_EINVAL;
    h = tags_priv_client(tags, choice->client);
    if (!h)
        return QOS_ENOENT;
    if (h->queued == 0 || (choice->phase == TAGS_PHASE_RESERVATION && !(h->packed & TAGS_PRIV_RESERVED)) ||
        (choice->phase == TAGS_PHASE_ABOVE_LIMIT && tags->config.at_limit != TAGS_ALLOW) ||
        (choice->phase == TAGS_PHASE_GROUP && !tags->grouped))
        return QOS_EINVAL;
    if (cost > tags->config.cost_max)
        return QOS_ERANGE;
    if (tags_priv_full(tags))
        return QOS_EFULL;
    tags_priv_now(tags, now_ns);
    return tags_priv_dispatch(tags, choice, cost, rho, delta, grant);
}

QOS_API enum qos_status tags_pull(struct tags *tags, uint64_t now_ns, uint64_t cost, struct tags_grant *grant)
{
    struct tags_choice choice;
    enum qos_status status;
    QOS_ASSERT(tags);
    if (!grant)
        return QOS_EINVAL;
    if (cost > tags->config.cost_max)
        return QOS_ERANGE;
    if (tags_priv_full(tags))
        return QOS_EFULL;
    do { /* again only after a lost race for a shared word, which takes the client out until its tag */
        status = tags_priv_choose(tags, now_ns, &choice);
        if (status != QOS_OK)
            return status == QOS_EBUSY ? QOS_EAGAIN : status;
        status = tags_priv_dispatch(tags, &choice, cost, 0, 0, grant);
    } while (QOS_UNLIKELY(status == QOS_EAGAIN));
    return status;
}

QOS_PRIV void tags_priv_place(struct tags *tags, struct tags_priv_pool *pool, uint32_t id)
{
    tags_priv_settle_rates(tags, pool, id);
    if (tags->hot[id].queued)
        tags_priv_s_set(tags, pool, id);
}

/* Units by which the client is ahead of its limit, beyond the one that it always may be. */
QOS_PRIV uint64_t tags_priv_debt_units(const struct tags *tags, uint32_t id)
{
    const struct tags_priv_rate *p = &tags->limit[id];
    uint64_t ahead = qos_sat_sub(tags_priv_rate_key(p), tags->now_ns);
    if (!(tags->hot[id].packed & TAGS_PRIV_LIMITED))
        return 0;
    return qos_sat_sub(qos_mul_div_ceil(ahead, p->rate_per_s, QOS_NS_PER_S), 1);
}

/* May a client, or its group, have one more forced request? amount: what the client's share tag would be charged. */
QOS_PRIV bool tags_priv_may_force(struct tags *tags, uint32_t id, uint64_t amount)
{
    uint64_t debt = tags->config.force_debt_requests, most = tags->config.cost_max;
    struct tags_priv_pool *pool = tags_priv_pool_of(tags, id);
    struct tags_priv_hot *h = &tags->hot[id];
    struct qos_u128 beyond;
    uint32_t rest = 0;
    if (h->queued == 0)
        tags_priv_wake(tags, pool, id);
    else if (h->packed & TAGS_PRIV_WAITING)
        tags_priv_off_limit(pool, h);
    if (tags->queued == 0 && tags->at_device == 0 && tags_priv_less(pool->v, h->tag))
        pool->v = h->tag;
    beyond = tags_priv_beyond(pool->v, h->tag, tags_priv_per_weight(h, amount, &rest), debt);
    return tags_priv_debt_units(tags, id) <= debt * (tags->config.count_cost ? most : 1) &&
           (beyond.hi | beyond.lo) == 0;
}

QOS_PRIV void tags_priv_note_debt(struct tags_priv_counters *c, uint64_t units)
{
    qos_counter_add(&c->debt, qos_wrap_sub(units, qos_counter_read(&c->debt)));
}

QOS_API enum qos_status tags_force(struct tags *tags, uint64_t now_ns, uint32_t id, uint64_t cost,
                                   struct tags_grant *grant)
{
    uint64_t amount, debt;
    uint32_t at;
    bool may = true;
    if (!tags_priv_client(tags, id))
        return QOS_ENOENT;
    if (!grant)
        return QOS_EINVAL;
    if (cost > tags->config.cost_max)
        return QOS_ERANGE;
    if (tags_priv_full(tags))
        return QOS_EFULL;
    tags_priv_now(tags, now_ns);
    if (tags->config.attribute)
        tags_priv_catch_up(tags);
    amount = tags->mean ? tags_priv_estimate(tags, id) : tags->config.cost_max;
    for (at = id; at != QOS_NONE; at = tags_priv_up(tags, at))
        may = tags_priv_may_force(tags, at, amount) && may;
    if (!may) {
        tags_priv_count(tags, id, offsetof(struct tags_priv_counters, all.refused), 1);
        return QOS_EDEBT;
    }
    at = tags_priv_room(tags, id, cost, 0, 0);
    (void)tags_priv_send(tags, tags->grouped != 0, id, at, TAGS_PHASE_FORCED, grant); /* is not refused */
    debt = tags_priv_debt_units(tags, id);
    tags_priv_note_debt(&tags->counters, debt);
    if (tags->by_client)
        tags_priv_note_debt(&tags->by_client[id], debt);
    for (at = id; at != QOS_NONE; at = tags_priv_up(tags, at))
        tags_priv_place(tags, tags_priv_pool_of(tags, at), at);
    tags_priv_tell_group(tags, id);
    return QOS_OK;
}

/* -- given back */

/* The slot of a grant; its request leaves the device. */
QOS_PRIV enum qos_status tags_priv_back(struct tags *tags, uint64_t now_ns, const struct tags_grant *grant, uint32_t *i)
{
    struct tags_priv_slot *slot;
    uint32_t id;
    QOS_ASSERT(tags);
    if (!grant || grant->slot >= tags->config.at_device_max) /* 0 if nothing is given back */
        return QOS_EINVAL;
    slot = &tags->slot[grant->slot];
    if (grant->serial == 0 || slot->serial != grant->serial)
        return QOS_ESTALE;
    tags_priv_now(tags, now_ns);
    if (tags->batch != QOS_NONE && tags->batch_ns != tags_priv_device_ns(tags))
        tags_priv_settle_batch(tags);
    slot->serial = 0;
    tags->at_device--;
    for (id = slot->client; id != QOS_NONE; id = tags_priv_up(tags, id))
        tags->hot[id].at_device--;
    *i = grant->slot;
    return QOS_OK;
}

/* What a client, or its group, was charged is given back (invariant 5 of the tags). What it was charged later moves.
 * The group comes first: of a reservation a client gets back nothing that its group does not. */
QOS_PRIV void tags_priv_refund(struct tags *tags, uint32_t i, uint32_t level, uint64_t amount)
{
    struct tags_priv_slot *slot = &tags->slot[i];
    const struct tags_priv_charge *charge = tags_priv_charge_at(tags, i, level);
    const uint32_t id = tags_priv_id_at(tags, i, level), flags = slot->flags[level];
    struct tags_priv_pool *pool = tags_priv_pool_of(tags, id);
    const uint64_t units = tags_priv_units(tags, slot, slot->flags[level] & TAGS_PRIV_BY_RESERVE);
    uint64_t reserved = units;
    uint64_t limited = tags_priv_units(tags, slot, slot->flags[level] & TAGS_PRIV_BY_LIMIT);
    uint64_t reserve_floor = tags_priv_reserve_floor(tags, pool, id, tags_priv_clock(tags, pool), true);
    uint64_t limit_floor = qos_sat_sub(tags->now_ns, tags->config.limit_burst_ns);
    struct qos_u128 *tag = tags_priv_axis(tags, id, flags), share = tags_priv_wide(0, 0);
    uint32_t rest = 0;
    if (tags->config.shared) {
        reserved = charge->reserve_ns > reserve_floor ? reserved : 0;
        limited = charge->limit_ns > limit_floor ? limited : 0;
        tags_priv_word_back(&tags_priv_shared(tags->config.shared, id)->reserved, reserved);
        tags_priv_word_back(&tags_priv_shared(tags->config.shared, id)->limited, limited);
    }
    if (reserved)
        reserved = tags_priv_rate_refund(&tags->reserve[id], charge->reserve_ns, reserve_floor, reserved);
    if (units && qos_sat_mul(reserved, tags->reserve[id].rate_per_s) < units * QOS_NS_PER_S)
        slot->flags[0] &= (uint16_t)~TAGS_PRIV_BY_RESERVE;
    if (limited)
        limited = tags_priv_rate_refund(&tags->limit[id], charge->limit_ns, limit_floor, limited);
    if (!(flags & TAGS_PRIV_NO_SHARE)) {
        share = tags_priv_least(tags_priv_per_weight(&tags->hot[id], amount, &rest),
                                tags_priv_lead(charge->share, tags_priv_axis_v(pool, flags)));
        *tag = tags_priv_lead(*tag, share);
    }
    slot->flags[level] &= (uint16_t)~TAGS_PRIV_NO_SHARE; /* the time in which it may have kept the device is charged */
    for (i = slot->next; i != QOS_NONE; i = tags->slot[i].next) {
        struct tags_priv_charge *later = tags_priv_charge_at(tags, i, level);
        if (tags_priv_id_at(tags, i, level) != id)
            continue;
        later->reserve_ns = qos_sat_sub(later->reserve_ns, reserved);
        later->limit_ns = qos_sat_sub(later->limit_ns, limited);
        if (((tags->slot[i].flags[level] ^ flags) & TAGS_PRIV_SURPLUS) == 0)
            later->share = tags_priv_lead(later->share, share);
    }
    tags_priv_place(tags, pool, id);
}

/* It took more than was said: the slot holds the difference. */
QOS_PRIV void tags_priv_charge_more(struct tags *tags, uint32_t i, uint32_t level)
{
    const struct tags_priv_slot *slot = &tags->slot[i];
    const uint32_t id = tags_priv_id_at(tags, i, level);
    uint64_t reserved = tags_priv_units(tags, slot, slot->flags[level] & TAGS_PRIV_BY_RESERVE);
    uint64_t limited = tags_priv_units(tags, slot, slot->flags[level] & TAGS_PRIV_BY_LIMIT);
    if (tags->config.shared)
        (void)tags_priv_claim(tags, id, TAGS_PHASE_FORCED, reserved, limited); /* forced claims are not refused */
    else if (reserved)
        tags_priv_rate_charge(&tags->reserve[id], 0, reserved, 0);
    if (limited && !tags->config.shared)
        tags_priv_charge_limit(tags, id, limited, 0);
    tags_priv_settle_rates(tags, tags_priv_pool_of(tags, id), id);
}

/* It is complete and took another cost than was said: what it was charged by cost is corrected. */
QOS_PRIV_NOINLINE void tags_priv_true_cost(struct tags *tags, uint32_t i, const struct tags_grant *grant)
{
    struct tags_priv_slot *slot = &tags->slot[i];
    const bool more = grant->cost > slot->cost;
    uint64_t amount;
    uint32_t n;
    slot->cost = more ? grant->cost - slot->cost : slot->cost - grant->cost;
    amount = tags->mean ? 0 : slot->cost;
    tags_priv_credit_weight(tags, slot, more ? amount : 0, more ? 0 : amount);
    for (n = tags->grouped ? 2 : 1; n > 0; n--) {
        const uint32_t level = n - 1;
        const uint16_t flags = slot->flags[level];
        if (!tags->config.count_cost)
            slot->flags[level] &= (uint16_t) ~(TAGS_PRIV_BY_RESERVE | TAGS_PRIV_BY_LIMIT);
        if (more)
            tags_priv_charge_more(tags, i, level);
        else
            tags_priv_refund(tags, i, level, 0);
        slot->flags[level] = flags;
    }
    tags_priv_recharge(tags, i, more ? amount : 0, more ? 0 : amount); /* also what V has passed */
    tags_priv_tell_group(tags, slot->client);
    slot->cost = grant->cost;
}

QOS_API enum qos_status tags_complete(struct tags *tags, uint64_t now_ns, const struct tags_grant *grant,
                                      uint64_t service_ns)
{
    uint32_t i = 0;
    enum qos_status status;
    if (grant && grant->cost > tags->config.cost_max)
        return QOS_ERANGE;
    status = tags_priv_back(tags, now_ns, grant, &i);
    if (status != QOS_OK)
        return status;
    if (QOS_UNLIKELY(grant->cost != tags->slot[i].cost && grant->cost != 0))
        tags_priv_true_cost(tags, i, grant);
    if (tags->config.attribute) {
        tags->slot[i].batch = tags->batch;
        tags->batch = i;
        tags->batch_ns = tags_priv_device_ns(tags);
        tags->batch_count++;
        if (tags->at_device == 0) /* no more of them */
            tags_priv_settle_batch(tags);
        return QOS_OK;
    }
    if (tags->mean)
        tags_priv_correct(tags, i, service_ns);
    tags_priv_slot_free(tags, i);
    return QOS_OK;
}

QOS_API enum qos_status tags_fail(struct tags *tags, uint64_t now_ns, const struct tags_grant *grant,
                                  uint64_t service_ns)
{
    enum qos_status status = tags_complete(tags, now_ns, grant, service_ns);
    if (status == QOS_OK)
        tags_priv_count(tags, grant->client, offsetof(struct tags_priv_counters, failed), 1);
    return status;
}

QOS_API enum qos_status tags_cancel(struct tags *tags, uint64_t now_ns, const struct tags_grant *grant)
{
    uint32_t i = 0, id, level;
    uint64_t amount;
    enum qos_status status = tags_priv_back(tags, now_ns, grant, &i);
    if (status != QOS_OK)
        return status;
    id = tags->slot[i].client;
    amount = tags->slot[i].amount;
    for (level = tags->grouped ? 2 : 1; level > 0; level--)
        tags_priv_refund(tags, i, level - 1, amount);
    tags_priv_tell_group(tags, id);
    tags_priv_credit_weight(tags, &tags->slot[i], 0, amount);
    if (tags->config.attribute) {
        tags_priv_catch_up(tags);
        tags_priv_recharge(tags, i, tags_priv_worth(tags, id, tags_priv_used(tags, i) >> 8, 0), 0);
    }
    tags_priv_end_work(tags, i);
    tags_priv_count(tags, id, offsetof(struct tags_priv_counters, cancelled), 1);
    return QOS_OK;
}

QOS_API enum qos_status tags_give_up(struct tags *tags, uint64_t now_ns, uint64_t age_ns, struct tags_grant *grant)
{
    const struct tags_priv_slot *slot;
    uint64_t took_ns;
    QOS_ASSERT(tags);
    if (!grant || !tags->config.at_device_max)
        return QOS_EINVAL;
    tags_priv_now(tags, now_ns);
    if (tags->config.attribute)
        tags_priv_catch_up(tags);
    if (tags->oldest == QOS_NONE)
        return QOS_EAGAIN;
    slot = &tags->slot[tags->oldest];
    took_ns = qos_elapsed_ns(slot->dispatch_ns, tags_priv_device_ns(tags));
    if (took_ns < age_ns)
        return QOS_EAGAIN;
    grant->client = slot->client;
    grant->phase = slot->flags[0] & TAGS_PRIV_BY_RESERVE ? TAGS_PHASE_RESERVATION : TAGS_PHASE_WEIGHT;
    grant->slot = tags->oldest;
    grant->cost = slot->cost;
    grant->serial = slot->serial;
    tags_priv_count(tags, grant->client, offsetof(struct tags_priv_counters, given_up), 1);
    return tags_fail(tags, now_ns, grant, took_ns);
}

/* -- intrusive requests */

QOS_API enum qos_status tags_push(struct tags *tags, uint64_t now_ns, uint32_t id, struct tags_request *request)
{
    struct tags_priv_queue *q;
    enum qos_status status;
    QOS_ASSERT(tags);
    if (!request || !tags->queue || request->rho > request->delta)
        return QOS_EINVAL;
    status = tags_priv_arrive(tags, now_ns, id, 1, request->cost);
    if (status != QOS_OK)
        return status;
    q = &tags->queue[id];
    request->client = id;
    request->next = NULL;
    request->prev = q->tail;
    if (q->tail)
        q->tail->next = request;
    else
        q->head = request;
    q->tail = request;
    return QOS_OK;
}

/* The prev of the oldest is not kept: a pop touches no other request. */
QOS_PRIV void tags_priv_unqueue(struct tags *tags, struct tags_request *request)
{
    struct tags_priv_queue *q = &tags->queue[request->client];
    const bool first = q->head == request;
    if (first)
        q->head = request->next;
    else
        request->prev->next = request->next;
    if (q->tail == request)
        q->tail = first ? NULL : request->prev;
    else if (!first)
        request->next->prev = request->prev;
    request->next = request->prev = NULL;
}

QOS_API enum qos_status tags_pop(struct tags *tags, uint64_t now_ns, struct tags_request **request)
{
    struct tags_choice choice;
    struct tags_request *head;
    enum qos_status status;
    QOS_ASSERT(tags);
    if (!request || !tags->queue)
        return QOS_EINVAL;
    if (tags_priv_full(tags))
        return QOS_EFULL;
    do { /* as in tags_pull; push has checked what tags_dispatch checks */
        status = tags_priv_choose(tags, now_ns, &choice);
        if (status != QOS_OK)
            return status == QOS_EBUSY ? QOS_EAGAIN : status;
        head = tags->queue[choice.client].head;
        QOS_ASSERT(head);
        status = tags_priv_dispatch(tags, &choice, head->cost, head->rho, head->delta, &head->grant);
    } while (status == QOS_EAGAIN);
    if (status != QOS_OK)
        return status;
    tags_priv_unqueue(tags, head);
    *request = head;
    return QOS_OK;
}

QOS_API enum qos_status tags_unlink(struct tags *tags, uint64_t now_ns, struct tags_request *request)
{
    enum qos_status status;
    QOS_ASSERT(tags);
    if (!request || !tags->queue)
        return QOS_EINVAL;
    status = tags_priv_withdraw(tags, now_ns, request->client, 1, request->cost);
    if (status == QOS_OK)
        tags_priv_unqueue(tags, request);
    return status;
}

QOS_API struct tags_request *tags_head(const struct tags *tags, uint32_t id)
{
    return tags->queue && tags_priv_client(tags, id) ? tags->queue[id].head : NULL;
}

/* -- what can be read */

QOS_API enum qos_status tags_stats(const struct tags *tags, uint32_t id, struct qos_stats *out)
{
    const struct tags_priv_counters *c = &tags->counters;
    QOS_ASSERT(tags);
    if (!out)
        return QOS_EINVAL;
    if (id != QOS_NONE) {
        if (id >= tags->ids)
            return QOS_ENOENT;
        if (!tags->by_client)
            return QOS_EINVAL;
        c = &tags->by_client[id];
    }
    qos_counters_read(&c->all, out);
    out->debt = qos_counter_read(&c->debt);
    return QOS_OK;
}

QOS_API enum qos_status tags_info(const struct tags *tags, uint32_t id, struct tags_state *out)
{
    const struct tags_priv_hot *h = id == QOS_NONE ? NULL : tags_priv_member(tags, id);
    const struct tags_priv_counters *c = !h ? &tags->counters : tags->by_client ? &tags->by_client[id] : NULL;
    unsigned i;
    QOS_ASSERT(tags);
    if (!out)
        return QOS_EINVAL;
    if (!h && id != QOS_NONE)
        return QOS_ENOENT;
    __builtin_memset(out, 0, sizeof *out);
    for (i = 0; c && i < TAGS_PHASES; i++)
        out->served[i] = qos_counter_read(&c->served[i]);
    if (c) {
        out->cancelled = qos_counter_read(&c->cancelled);
        out->failed = qos_counter_read(&c->failed);
        out->given_up = qos_counter_read(&c->given_up);
        out->device_ns = qos_counter_read(&c->device_ns);
    }
    if (h) {
        out->queued = h->queued;
        out->at_device = h->at_device;
        out->waiting_at_limit = (h->packed & TAGS_PRIV_WAITING) != 0;
        out->reserved_per_s = tags_priv_held(tags, id);
        if (h->packed & TAGS_PRIV_LIMITED)
            out->limit_ahead_ns = qos_sat_sub(tags_priv_rate_key(&tags->limit[id]), tags->now_ns);
        if (tags->mean && id < tags->config.clients && tags->mean[id].count)
            out->mean_service_ns = tags->mean[id].amount >> 8;
    } else {
        out->queued = tags->queued;
        out->at_device = tags->at_device;
        out->floor_ns = qos_counter_read(&tags->floor_ns);
        out->forgiven_ns = qos_counter_read(&tags->forgiven_ns);
        out->by_time = tags->mean != NULL;
        out->as_serial = tags->serial_for != 0;
        out->reserved_per_s = tags->root.reserved_sum;
        out->clock_behind_ns = tags->root.behind_ns;
    }
    out->admissible_per_s = tags_priv_admissible(tags, id, h ? out->reserved_per_s : 0);
    return QOS_OK;
}

/* ==== chapter: many servers ========================================================================
 *
 *   dmClock: a client of several servers tells each one, with a request, what it was served elsewhere since its last
 *   request there: delta in all, rho by reservation. It is charged with that request, so reservation and limit hold for
 *   the sum. What it was served elsewhere moves its tags from where they were after its last request here: that time
 *   has passed already, but where it is told late, as after a lost request. The share tag, too: V has passed it. What
 *   it was served before its first request here is not charged. For a group counts the time in which it was away since
 *   that client's last request here, once for all clients; but what fits at the group's limit into the time in which it
 *   was here without this client, beyond limit_burst_ns, is taken to be of that time. So a group whose clients change
 *   servers together keeps its limit, reservation and share. The client counts answers, of all servers and of each:
 *
 *       send to server s:   delta = (done by all - done by s) - told to s before        told to s += delta
 *       answer of server s: done by all, done by s += 1
 *
 *   References
 *   A. Elnably, K. Du, P. Varman: Reward Scheduling for QoS in Cloud Applications, CCGrid 2012 ("the paper").
 *   A. Gulati, A. Merchant, P. Varman: mClock, OSDI 2010 (tags; dmClock's rho and delta).
 *   P. Goyal, H. Vin, H. Cheng: Start-time Fair Queueing, 1996; W. Jin, J. Chase, J. Kaur: SFQ(D), 2004 (V).
 *   D. Knuth: TAOCP vol. 3, 5.4.1 (tournament trees).
 */

QOS_PRIV uint32_t tags_priv_tell(uint64_t elsewhere, uint64_t *told)
{
    uint32_t n = (uint32_t)qos_min(qos_sat_sub(elsewhere, *told), UINT32_MAX);
    *told += n;
    return n;
}

QOS_API void tags_tracker_send(const struct tags_tracker *tracker, struct tags_tracker_server *server, uint32_t *rho,
                               uint32_t *delta)
{
    *delta = tags_priv_tell(tracker->done - server->done, &server->reported_done);
    *rho = tags_priv_tell(tracker->reserved - server->reserved, &server->reported_reserved);
}

QOS_API void tags_tracker_done(struct tags_tracker *tracker, enum tags_phase phase, uint32_t units,
                               struct tags_tracker_server *server)
{
    tracker->done += units;
    server->done += units;
    if (phase == TAGS_PHASE_RESERVATION) {
        tracker->reserved += units;
        server->reserved += units;
    }
}

QOS_API void tags_tracker_server_lost(struct tags_tracker_server *server, uint32_t rho, uint32_t delta)
{
    server->reported_done -= qos_min(delta, server->reported_done);
    server->reported_reserved -= qos_min(rho, server->reported_reserved);
}

#endif /* QOS_DECLARE_ONLY */

#ifdef __cplusplus
}
#endif

#endif /* QOS_TAGS_H */
