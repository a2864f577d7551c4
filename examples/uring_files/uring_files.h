/* uring_files.h - the parts of the tool:
 *
 *     main.c        options, the order of the runs, exit status
 *     tenants.c     tenants and their files: parsing, opening, creating, O_DIRECT
 *     loop.c        one run: io_uring, the scheduler, counters, the log
 *     profile.c     device time per request, and from it the cost model and the root's rate
 *     live.c        the live view: what each tenant gets, and what it waits for
 *     judge.c       checks the promises on the log and the seconds of a run
 *     explain.c     where the difference in total comes from: bound, mix or scheduler
 *     overhead.c    what the scheduler itself costs
 *     report.c      tables, JSON, plots, the log as CSV
 *     schedulers.c, scheduler_tags.c, scheduler_token.c   the schedulers behind scheduler.h
 */
#ifndef URING_FILES_H
#define URING_FILES_H

#include "common.h"
#include "scheduler.h"

#define TENANTS_MAX 32
#define DEPTH_MAX 4096u /* requests outstanding, all tenants together */
#define BLOCK_MAX_BYTES (UINT64_C(1) << 24)
#define SLICE_NS UINT64_C(50000000) /* granularity of the series: plots, profile; divides a second */
#define SLICES_PER_S (QOS_NS_PER_S / SLICE_NS)
/* a failed request's place is used again after 10 ms, so errors do not cause a busy loop */
#define FAILED_REST_NS UINT64_C(10000000)
#define LATENCY_MAX_NS (10 * QOS_NS_PER_S)
#define LOG_EVENTS_MAX (UINT64_C(1) << 26) /* 1.5 GiB */

/* A file or device that tenants use. */
struct target {
    char *path;
    uint64_t size_bytes;
    uint32_t align; /* of offsets, lengths and memory under O_DIRECT; else 1 */
    int fd;
    bool direct, writable, created;
};

enum access_kind { RANDREAD, RANDWRITE, READ, WRITE, RANDRW };
#define ACCESS_CHOICES "randread|randwrite|read|write|randrw"

struct tenant {
    char *name;
    enum access_kind rw;
    uint32_t target; /* index */
    char *file;      /* file=PATH; NULL: --file */
    uint64_t bs, depth;
    uint64_t reserve, limit;                 /* bytes per second; 0: none, or not known yet */
    uint64_t reserve_percent, limit_percent; /* of the profiled rate of the tenant alone; 0: not given so */
    uint64_t weight, start_ns, write_percent;
    /* When it asks. Without rate: each of its `depth` places makes a request when its last one is done, think_ns later.
     * With rate: requests come at that rate, `burst` at a time, whether the ones before are done or not. */
    uint64_t rate, burst, think_ns;
    bool constant;       /* arrivals: at equal distances; else Poisson's */
    uint64_t latency_ns; /* latency=: a request completes so long after its turn (tenant_turn_ns); 0: not given */
    uint64_t due_ns;     /* that, or what follows from depth, think time and reservation; 0: no promise in time */
    uint64_t area;       /* bytes at the beginning of its file that it uses; 0: all */
    uint64_t cost[2];    /* of one request, by enum qos_op; 0 until there is a model */
};

enum event_kind { EVENT_DISPATCH, EVENT_DONE, EVENT_FAILED, EVENT_ARRIVAL };
struct event {
    uint64_t at_ns; /* the `now` that the scheduler got; of an arrival, when the tenant wanted the request */
    uint32_t cost;
    uint8_t tenant, kind;
    uint16_t error; /* errno of EVENT_FAILED */
    uint32_t place; /* of its tenant: it has one request at a time */
};
struct event_log {
    struct event *event;
    uint64_t count, room;
    bool full;
};

/* One slice of time of one tenant. */
struct slice {
    uint64_t bytes, cost, ios; /* completed */
    uint64_t timely, late;     /* of a tenant with due_ns: by their turn + due_ns, or not */
};

#define ERRORS_SHOWN 8
struct tenant_result {
    uint64_t arrived;   /* requests made */
    uint64_t submitted; /* handed to the device: arrived, minus those that never left the queue */
    uint64_t completed, failed;
    uint64_t short_ios;   /* partial reads or writes whose remainder was sent again */
    uint64_t bytes, cost; /* completed while all tenants ran: from the last start to the end */
    /* Its part of the time in which requests were at the device: of each request, the time since its dispatch or since
     * the completion before it, whichever is later. Sum and longest. */
    uint64_t served_ns, served_max_ns;
    int error[ERRORS_SHOWN];
    uint64_t errors[ERRORS_SHOWN]; /* how often */
    struct hist latency;           /* from when it was wanted to completion, good requests, while all tenants ran */
    uint64_t timely, late;         /* the same as in the slices, while all tenants ran */
    struct qos_stats stats;
    struct slice *slice; /* slices of the run */
};

struct run {
    const struct scheduler *scheduler;
    const char *label;
    uint64_t start_ns, elapsed_ns; /* elapsed: until the last moment at which tenants could submit */
    uint64_t all_run_ns;           /* when the last tenant started, after start_ns */
    uint64_t cpu_ns, ios;
    uint64_t cpu_wait_ns; /* ready to run, but others had the processor; 0 where the kernel does not report it */
    uint32_t tenants, slices;
    uint64_t dispatch_depth, at_device_max, root_end;
    uint64_t at_device_ns;    /* requests at the device, summed over the time in which all tenants ran */
    uint64_t flight_bound_ns; /* --flight: the bound at the end; 0: there was none */
    uint32_t flight_by;       /* and the tenant that narrowed it last; UINT32_MAX: none */
    uint64_t *full_ns;        /* per slice: the device's places were all taken */
    struct tenant_result *result;
    struct event_log log;
    bool stopped, failed;
};

struct settings {
    const char *file, *json, *plot, *log;
    uint64_t size, runtime_ns, profile_ns, burst_ns, dispatch_depth, seed, overhead_slices, slice_ns;
    int scheduler, direct, order;
    bool compare, explain, live, profile_only, maximizer, flight, judge, progress, overwrite, keep;
    double headroom;
    struct target target[TENANTS_MAX + 1];
    struct tenant tenant[TENANTS_MAX];
    uint32_t targets, tenants;
};

/* Cost model of the file, and how it came about. */
#define POINTS_MAX (TENANTS_MAX * 4)
struct profile_point {
    enum access_kind rw;
    enum qos_op op;
    uint32_t target;
    uint64_t bs, cost, ios_per_s; /* cost: ns of device time; ios_per_s: mean */
};
struct profile {
    struct qos_cost_model model;
    struct profile_point point[POINTS_MAX];
    uint32_t points;
    uint64_t mix_cost_per_s;  /* device time per second that the tenants' own mix got, all together */
    uint64_t root_cost_per_s; /* admission's rate */
    double
        timely_alone[TENANTS_MAX]; /* of tenants with due_ns: the part of their requests in time without the others */
};

struct verdict {
    bool judged, hard_ok, reserve_ok, limit_ok, latency_ok, conclusive;
    uint32_t seconds, eligible; /* of the tenant with the fewest eligible ones */
    char text[2048];
};

/* The runs of one command; NULL: not made. same_depth: without a scheduler, with as many requests at the device as
 * `with` had there on average. */
struct runs {
    const struct run *without, *same_depth, *with;
};

/* Why the totals with and without the scheduler differ (explain.c): each is a ratio of device time per second, the
 * median over groups of slices. total = bound x mix x scheduler, apart from noise. */
struct explanation {
    bool made, conclusive;
    double total;     /* with / without */
    double bound;     /* as many requests at the device as with the scheduler, first come, first served / without */
    double mix;       /* and its mix of requests / that */
    double scheduler; /* with / that */
    double width;     /* half the 95 % interval of without / without, the control */
    uint64_t depth;   /* requests at the device with the scheduler */
};

/* tenants.c. All end the tool with a message and TOOL_USAGE or TOOL_FAILED if something is wrong. */
void tenant_add(struct settings *s, const char *spec);
void targets_open(struct settings *s);
void targets_close(struct settings *s);
bool tenant_uses(const struct tenant *t, enum qos_op op);
bool access_random(enum access_kind rw);
/* From one request's turn to the next one's at the reserved rate. The turn of a request is when it would begin if that rate were
 * a device of its own: at its arrival, or so long after the turn of the one before, whichever is later. Service above the rate
 * counts for one burst at most. */
uint64_t tenant_turn_ns(const struct tenant *t);
extern const char *const access_name[];

/* Has it a reservation, and is it judged by the time of its requests? */
bool tenant_timed(const struct tenant *t);

/* loop.c. Runs the tenants for duration_ns, or until a stop is requested. with_log: keep the events. false: the run
 * could not begin; a message was printed. */
struct loop_options {
    const struct scheduler *scheduler;
    const struct tenant *tenant;
    uint32_t tenants;
    uint64_t duration_ns, dispatch_depth, root_cost_per_s;
    const char *label;
    bool with_log, quiet, ignore_start;
    bool hush; /* no message about failed requests: for the profile, whose results show them */
};
bool run_tenants(const struct settings *s, const struct loop_options *o, struct run *run);
void run_free(struct run *run);
/* Conversions, exact: a reservation is rounded up, a limit down (but not below the reservation). For a tenant that
 * reads and writes the costlier of the two counts for the reservation, the cheaper for the limit. */
uint64_t tenant_reserve_cost(const struct tenant *t);
uint64_t tenant_limit_cost(const struct tenant *t);
uint64_t tenant_reserve_ops(const struct tenant *t);
uint64_t tenant_limit_ops(const struct tenant *t);
/* Requests at the device, rounded; at least 1. */
uint64_t run_mean_depth(const struct run *run);

/* live.c: the live view of a run. */
struct live_run;
/* Returns what the tenant's next request waits for, in a few words. *since_ns: since when; QOS_NEVER: nothing waits. */
typedef const char *live_waits(void *of, uint32_t tenant, uint64_t *since_ns);
struct live_run *live_run_new(const struct loop_options *o, uint64_t now_ns);
void live_run_note(struct live_run *v, uint32_t tenant, uint64_t bytes, uint64_t latency_ns); /* one is complete */
uint64_t live_run_next_ns(const struct live_run *v);                                          /* when to show it */
void live_run_show(struct live_run *v, uint64_t now_ns, live_waits *waits, void *of);
void live_run_free(struct live_run *v); /* may be NULL */

/* profile.c. false: stopped by a signal. */
bool profile_file(struct settings *s, struct profile *p);
void profile_print(const struct settings *s, const struct profile *p);

/* explain.c. Slices in turn, after the run with the scheduler. false: stopped, or a slice could not run. */
bool explain_runs(const struct settings *s, const struct profile *p, const struct run *with, struct explanation *e);
void explain_print(const struct settings *s, const struct explanation *e);

/* overhead.c: the --overhead mode. The exit status. */
int overhead_run(struct settings *s);
/* Sorts v. */
double median(double *v, size_t n);

/* judge.c */
#define JUDGE_TIMELY 0.99 /* of the requests of a tenant with a promise in time */
void judge_run(const struct settings *s, const struct profile *p, const struct run *run, struct verdict *v);
void judge_print_trace(const struct settings *s, const struct profile *p, const struct run *run);

/* report.c */
void report_table(const struct settings *s, const struct profile *p, const struct runs *runs);
bool report_json(const struct settings *s, const struct profile *p, const struct runs *runs, const struct verdict *v,
                 const struct explanation *e);
bool report_plots(const struct settings *s, const struct runs *runs);
bool report_log(const struct settings *s, const struct runs *runs);

#endif
