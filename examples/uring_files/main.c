// links: -luring
// flags: -D_GNU_SOURCE
// uring_files: tenants share real files through io_uring, without and with quality of service.
#include "uring_files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct settings settings;

static void on_tenant(const char *spec)
{
    tenant_add(&settings, spec);
}

static const char about[] = "tenants share a file or device through io_uring, without and with QoS";
static const char examples[] =
    "A tenant is name:key=value,...   (sizes and rates in bytes; k, M, G are powers of 1024)\n"
    "  rw=" ACCESS_CHOICES "   what it does (default randread)\n"
    "  bs=4k  depth=16     block size; requests outstanding: a new one is made when one is done\n"
    "  think=2ms           and so long after it\n"
    "  rate=5M             bytes per second that it asks for, whether requests are done or not; at most\n"
    "                      `depth` (128) are made: others wait, which counts as latency\n"
    "  arrivals=constant   of that rate (default poisson)   burst=8   so many requests at a time\n"
    "  latency=5ms         with reserve and --flight: done so long after its turn at the reserved rate\n"
    "  reserve=20M         guaranteed bytes per second; refused if they do not fit\n"
    "  limit=60M           bytes per second that it never exceeds\n"
    "  weight=2            share of what is left over (default 1); --scheduler token: requests in a turn\n"
    "  reserve=25% limit=5%  the same, as a share of what it would get alone by the profile\n"
    "  start=10s           begins later\n"
    "  write=30            percent of writes in randrw (default 50)\n"
    "  area=64M            uses only this many bytes at the beginning of the file\n"
    "  file=PATH           its own file instead of --file\n"
    "\n"
    "A database beside a scan, without and with a reservation:\n"
    "  uring_files --file /tmp/test --size 256M --compare --runtime 2s \\\n"
    "      --tenant db:rw=randread,bs=4k,depth=32,reserve=60M \\\n"
    "      --tenant scan:rw=randread,bs=128k,depth=64\n"
    "\n"
    "Exit status: 0 done; 1 something failed, or --judge found a broken promise; 2 wrong usage; 3 --judge\n"
    "could not tell, as the device gave less than in the profile; 130 stopped.\n";

static void check_settings(const struct settings *s)
{
    uint32_t i;
    if (s->tenants == 0)
        tool_die(TOOL_USAGE, "no tenants; write e.g. --tenant mail:rw=randread,bs=4k,depth=16 (--help shows more)");
    if (s->runtime_ns < SLICE_NS || s->runtime_ns > 86400 * QOS_NS_PER_S)
        tool_die(TOOL_USAGE, "--runtime: 50ms to 24h");
    if (s->profile_ns < 6 * SLICE_NS || s->profile_ns > 600 * QOS_NS_PER_S)
        tool_die(TOOL_USAGE, "--profile-time: 300ms to 10m");
    if (s->burst_ns == 0 || s->burst_ns > QOS_NS_PER_S)
        tool_die(TOOL_USAGE, "--burst: more than 0, at most 1s");
    if (s->dispatch_depth == 0 || s->dispatch_depth > DEPTH_MAX)
        tool_die(TOOL_USAGE, "--dispatch-depth: 1 to %u", DEPTH_MAX);
    if (!(s->headroom > 0 && s->headroom <= 1))
        tool_die(TOOL_USAGE, "--headroom: more than 0, at most 1");
    if (s->flight && (s->maximizer || s->scheduler != 1))
        tool_die(TOOL_USAGE, "--flight: with --scheduler htb, and without --maximizer");
    for (i = 0; i < s->tenants; i++)
        if (s->tenant[i].latency_ns && s->scheduler != 0 && !s->flight)
            tool_die(TOOL_USAGE, "tenant %s: latency=: with --flight, which bounds what is at the device",
                     s->tenant[i].name);
    if (s->explain && !s->compare)
        tool_die(TOOL_USAGE, "--explain: with --compare");
    if (s->explain && s->slice_ns < 6 * SLICE_NS)
        tool_die(TOOL_USAGE, "--slice: at least 300ms");
    if (s->compare && s->scheduler == 0)
        tool_die(TOOL_USAGE, "--compare needs a scheduler to compare with none: --scheduler htb");
}

static void parse(int argc, char **argv)
{
    struct settings *s = &settings;
    const struct opt opts[] = {
        {"file", OPT_TEXT, &s->file, "PATH",
         "file or block device; created with --size and removed at the end if it does not exist", NULL},
        {"size", OPT_SIZE, &s->size, "SIZE", "bytes of it to use (default: all there are)", NULL},
        {"tenant", OPT_EACH, NULL, "SPEC", "a tenant and its requests, see below; once for each tenant", on_tenant},
        {"scheduler", OPT_CHOICE, &s->scheduler, SCHEDULER_CHOICES,
         "what decides who is next (default htb); none: first come, first served; token: pshift.h's token scheduler",
         NULL},
        {"compare", OPT_FLAG, &s->compare, NULL,
         "three runs: without the scheduler, with it, and without it at the scheduler's depth", NULL},
        {"explain", OPT_FLAG, &s->explain, NULL,
         "with --compare: why the totals differ, from 21 slices (--slice): fewer requests at the device, another mix, "
         "or waits",
         NULL},
        {"runtime", OPT_TIME, &s->runtime_ns, "TIME", "of each run (default 10s)", NULL},
        {"maximizer", OPT_FLAG, &s->maximizer, NULL, "raise the root's rate while all promises hold (the paper's 5.5)",
         NULL},
        {"flight", OPT_FLAG, &s->flight, NULL,
         "htb: bound the device time in flight, not the rate, so that the device is never left idle", NULL},
        {"dispatch-depth", OPT_COUNT, &s->dispatch_depth, "N", "requests at the device at once (default 32)", NULL},
        {"burst", OPT_TIME, &s->burst_ns, "TIME", "burst of every bucket (default 20ms)", NULL},
        {"order", OPT_CHOICE, &s->order, "fifo|elevator",
         "of the dispatch queue: fifo for flash (default), elevator for disks", NULL},
        {"live", OPT_FLAG, &s->live, NULL,
         "a view of each tenant while it runs: got, reserved, limit, p99, what it waits for", NULL},
        {"profile", OPT_FLAG, &s->profile_only, NULL, "measure the file, print the rates that it sustains, and stop",
         NULL},
        {"profile-time", OPT_TIME, &s->profile_ns, "TIME", "for each measurement of the profile (default 1s)", NULL},
        {"headroom", OPT_REAL, &s->headroom, "RATIO", "share of the profiled rate that is promised (default 0.9)",
         NULL},
        {"direct", OPT_CHOICE, &s->direct, "auto|yes|no", "O_DIRECT; auto: where the file system has it (default)",
         NULL},
        {"overwrite", OPT_FLAG, &s->overwrite, NULL, "allow tenants to write to a file that exists", NULL},
        {"keep", OPT_FLAG, &s->keep, NULL, "do not remove a file that was created", NULL},
        {"judge", OPT_FLAG, &s->judge, NULL, "check every promise; the exit status is the result", NULL},
        {"overhead", OPT_COUNT, &s->overhead_slices, "N",
         "instead: measure what the scheduler costs, in N slices without, with and without it", NULL},
        {"slice", OPT_TIME, &s->slice_ns, "TIME", "length of a slice of --overhead and --explain (default 1s)", NULL},
        {"json", OPT_TEXT, &s->json, "FILE", "all results (- for stdout)", NULL},
        {"plot", OPT_TEXT, &s->plot, "DIR", "SVG figures (needs gnuplot)", NULL},
        {"log", OPT_TEXT, &s->log, "FILE", "every dispatch and completion, as CSV", NULL},
        {"seed", OPT_COUNT, &s->seed, "N", "of the offsets (default 1)", NULL},
        {"progress", OPT_FLAG, &s->progress, NULL, "a live line even if stderr is no terminal", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    int rest;
    s->scheduler = 1;
    s->runtime_ns = 10 * QOS_NS_PER_S;
    s->profile_ns = QOS_NS_PER_S;
    s->slice_ns = QOS_NS_PER_S;
    s->burst_ns = 20000000;
    s->dispatch_depth = 32;
    s->seed = 1;
    s->headroom = 0.9;
    tool_set_name(argv[0]);
    rest = opt_parse(argc, argv, opts, about, examples);
    if (rest < argc)
        tool_die(TOOL_USAGE, "%s: not an option; --help lists them", argv[rest]);
    check_settings(s);
}

/* depth: requests at the device; 0: no bound. */
static bool run_one(const struct profile *p, const struct scheduler *scheduler, uint64_t depth, const char *label,
                    struct run *run)
{
    struct loop_options o;
    bool ok;
    memset(&o, 0, sizeof o);
    o.scheduler = scheduler;
    o.tenant = settings.tenant;
    o.tenants = settings.tenants;
    o.duration_ns = settings.runtime_ns;
    o.dispatch_depth = depth;
    o.root_cost_per_s = p->root_cost_per_s;
    o.label = label;
    o.with_log = settings.judge || settings.log;
    ok = run_tenants(&settings, &o, run);
    return ok;
}

static bool any_failed(const struct run *run)
{
    uint32_t k;
    for (k = 0; run->result && k < run->tenants; k++)
        if (run->result[k].failed)
            return true;
    return false;
}

/* A second run with a new profile, as the device may have changed. If that is impossible (the reservations no longer
 * fit, or a stop), the first one counts. */
static void try_again(struct profile *profile, const struct scheduler *scheduler, struct run *run,
                      struct verdict *verdict)
{
    static struct profile new_profile;
    static struct tenant old_tenant[TENANTS_MAX];
    static struct run again;
    memcpy(old_tenant, settings.tenant, sizeof old_tenant);
    printf("the disk gave less than in its profile for too many seconds to judge; once more, with a new profile\n");
    if (profile_file(&settings, &new_profile)) {
        profile_print(&settings, &new_profile);
        if (run_one(&new_profile, scheduler, settings.dispatch_depth, "with QoS", &again) && !again.stopped) {
            run_free(run);
            *run = again;
            *profile = new_profile;
            judge_run(&settings, profile, run, verdict);
            return;
        }
        run_free(&again);
    }
    memcpy(settings.tenant, old_tenant, sizeof old_tenant);
}

/* Writes the requested files. false: one could not be written. */
static bool write_files(const struct profile *profile, const struct runs *runs, const struct verdict *verdict,
                        const struct explanation *explanation)
{
    bool ok = !settings.plot || report_plots(&settings, runs);
    if (settings.json && !report_json(&settings, profile, runs, verdict, explanation))
        ok = false;
    else if (settings.json)
        printf("results: %s\n", settings.json);
    if (settings.log && !report_log(&settings, runs))
        ok = false;
    else if (settings.log)
        printf("log: %s\n", settings.log);
    return ok;
}

/* Prints the verdict; returns its exit status. */
static int print_verdict(const struct verdict *verdict, const struct profile *profile, const struct run *with)
{
    if (!verdict->judged)
        return TOOL_OK;
    printf("%s", verdict->text);
    if (!verdict->conclusive)
        judge_print_trace(&settings, profile, with);
    if (!verdict->hard_ok || !verdict->reserve_ok || !verdict->limit_ok || !verdict->latency_ok)
        return TOOL_FAILED;
    return verdict->conclusive ? TOOL_OK : TOOL_INCONCLUSIVE;
}

/* Profile, then the runs. Returns the exit status. */
static int compare(void)
{
    static struct run without, same_depth, with;
    static struct profile profile;
    static struct verdict verdict;
    static struct explanation explanation;
    const struct scheduler *scheduler = scheduler_find(settings.scheduler);
    bool has_without = settings.compare || settings.scheduler == 0, has_with = settings.scheduler != 0;
    struct runs runs;
    int status;
    if (!profile_file(&settings, &profile))
        return stop_asked() ? TOOL_STOPPED : TOOL_FAILED;
    profile_print(&settings, &profile);
    if (settings.profile_only)
        return TOOL_OK;
    if (has_without && !run_one(&profile, &scheduler_none, 0, "without QoS", &without))
        return TOOL_FAILED;
    if (has_with && !stop_asked() && !run_one(&profile, scheduler, settings.dispatch_depth, "with QoS", &with))
        return TOOL_FAILED;
    if (settings.judge && has_with && with.result && !with.stopped) {
        judge_run(&settings, &profile, &with, &verdict);
        if (!verdict.conclusive && verdict.hard_ok)
            try_again(&profile, scheduler, &with, &verdict);
    }
    if (settings.judge && !has_with && !without.stopped)
        judge_run(&settings, &profile, &without, &verdict);
    if (settings.compare && with.result && !stop_asked() &&
        !run_one(&profile, &scheduler_none, run_mean_depth(&with), "same depth", &same_depth))
        return TOOL_FAILED;
    runs.without = has_without ? &without : NULL;
    runs.same_depth = same_depth.result ? &same_depth : NULL;
    runs.with = with.result ? &with : NULL;
    report_table(&settings, &profile, &runs);
    if (settings.explain && runs.same_depth && !stop_asked() && explain_runs(&settings, &profile, &with, &explanation))
        explain_print(&settings, &explanation);
    status = print_verdict(&verdict, &profile, &with);
    if (!write_files(&profile, &runs, &verdict, &explanation) || any_failed(&without) || any_failed(&with))
        status = TOOL_FAILED;
    if (stop_asked())
        status = TOOL_STOPPED;
    run_free(&without);
    run_free(&same_depth);
    run_free(&with);
    return status;
}

/* Before the runs, not after them. */
static void check_output(const char *option, const char *path)
{
    int file;
    if (!path || strcmp(path, "-") == 0)
        return;
    file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0)
        unlink(path);
    else if (errno == EEXIST)
        file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        tool_die(TOOL_FAILED, "%s %s: cannot write: %s", option, path, strerror(errno));
    close(file);
}

int main(int argc, char **argv)
{
    int status;
    parse(argc, argv);
    check_output("--json", settings.json);
    check_output("--log", settings.log);
    if (settings.plot && !plot_mkdir(settings.plot))
        tool_die(TOOL_FAILED, "--plot %s: cannot be made: %s", settings.plot, strerror(errno));
    if (settings.plot && !plot_script("")) /* is gnuplot there? */
        return TOOL_FAILED;
    stop_on_signals();
    prctl(PR_SET_TIMERSLACK, 1UL); /* by default a wait for a token is up to 50 us longer */
    targets_open(&settings);
    status = stop_asked() ? TOOL_STOPPED : settings.overhead_slices ? overhead_run(&settings) : compare();
    targets_close(&settings);
    if (status == TOOL_STOPPED)
        tool_warn("stopped");
    return status;
}
