// links: -lzmq -lcurl -ljson-c -pthread
// flags: -D_GNU_SOURCE
// cluster_agent: makes a server of several processes, such as nginx, a node of a cluster. It writes the tokens of tenants into a
// file that these processes map (tokens.h).
//
// What was spent is the difference between what was given and what is left. It is told to the scheduler of pshift.h as requests that
// were served, so everything else is as in a server that has the scheduler itself.
#include "agent.h"
#include "common.h"
#include "tokens.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_NS 1000000
#define WAITS_NS 100000000   /* a request that found too few tokens this long ago still waits, or comes again */
#define SERVES_NS 1000000000 /* the server is there, if one of its processes was there this long ago */

static struct {
    struct cluster_options options;
    const char *path, *group;
} settings = {.options = {.keys = "."}};

static struct {
    struct tokens_file *file;
    struct pshift_scheduler scheduler;
    uint64_t now_ns;
    struct {
        char name[CLUSTER_NAME]; /* "": nobody's */
        uint64_t given;          /* what its word had when it was written */
        bool known;
    } place[TOKENS_TENANTS]; /* as in the file; place k has queue k */
} s;

/* ---- tokens; called by the agent --------------------------------------------------------------------------------- */

static void nothing(void)
{
}

static bool waits(uint32_t queue)
{
    return qos_sat_sub(s.now_ns, tokens_read(&s.file->tenant[queue].wanted_ns)) < WAITS_NS;
}

static bool up(void)
{
    return qos_sat_sub(s.now_ns, tokens_read(&s.file->served_ns)) < SERVES_NS;
}

/* As many requests wait in the queue. */
static void wait_in_queue(uint32_t place, uint64_t n)
{
    struct pshift_scheduler_state queue;
    enum qos_status st = pshift_scheduler_info(&s.scheduler, place, &queue);
    if (st == QOS_OK && queue.pending < n)
        st = pshift_scheduler_arrive(&s.scheduler, place, n - queue.pending);
    else if (st == QOS_OK && queue.pending > n)
        st = pshift_scheduler_cancel(&s.scheduler, place, queue.pending - n);
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "%s: %s", s.place[place].name, qos_strerror(st));
}

/* Tells what was spent: while it was valid, even if it is told later. One request waits for all that do. */
static void serve(uint32_t place, uint64_t spent)
{
    const uint64_t ends_ns = agent_state().ends_ns, at_ns = ends_ns ? qos_min(s.now_ns, ends_ns - 1) : s.now_ns;
    if (spent != 0)
        wait_in_queue(place, spent);
    for (; spent != 0; spent--)
        if (pshift_scheduler_force(&s.scheduler, at_ns, place) != QOS_OK)
            tool_die(TOOL_FAILED, "%s: more tokens were spent than there were", s.place[place].name);
    wait_in_queue(place, waits(place));
}

/* Takes what is left, so that nothing is spent while it changes. */
static uint64_t take(uint32_t place)
{
    struct tokens_tenant *t = &s.file->tenant[place];
    const uint64_t word = tokens_read(&t->word) & ~((UINT64_C(1) << TOKENS_GENERATION) - 1);
    return __atomic_exchange_n(&t->word, word, __ATOMIC_ACQ_REL) & (TOKENS_COUNT - 1);
}

static void before(bool changes)
{
    uint32_t k;
    for (k = 0; k < TOKENS_TENANTS; k++) {
        uint64_t left;
        if (!*s.place[k].name)
            continue;
        left = changes ? take(k) : tokens_read(&s.file->tenant[k].word) & (TOKENS_COUNT - 1);
        serve(k, qos_sat_sub(s.place[k].given, left)); /* a process of the server may write any value */
        s.place[k].given = changes ? 0 : qos_min(s.place[k].given, left);
    }
}

static void granted(void)
{
    const struct pshift_agent_state agent = agent_state();
    uint32_t k;
    tokens_write(&s.file->period, agent.period);
    tokens_write(&s.file->ends_ns, agent.ends_ns);
    for (k = 0; k < TOKENS_TENANTS; k++) {
        struct tokens_tenant *t = &s.file->tenant[k];
        struct pshift_scheduler_state queue;
        if (!*s.place[k].name || pshift_scheduler_info(&s.scheduler, k, &queue) != QOS_OK)
            continue;
        tokens_write(&t->reserved, queue.r_tokens);
        s.place[k].given = queue.l_tokens == QOS_UNLIMITED
                               ? TOKENS_UNLIMITED
                               : qos_min(qos_sat_add(queue.r_tokens, queue.l_tokens), TOKENS_UNLIMITED);
        tokens_write(&t->word, t->word | s.place[k].given | (queue.l_tokens == QOS_UNLIMITED ? TOKENS_COUNT : 0));
    }
    tokens_write(&s.file->granted, s.file->granted + 1);
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

static uint32_t place_of(const char *name)
{
    uint32_t k;
    for (k = 0; k < TOKENS_TENANTS && strcmp(s.place[k].name, name) != 0; k++)
        ;
    return k;
}

static void leave(uint32_t place)
{
    struct tokens_tenant *t = &s.file->tenant[place];
    serve(place, qos_sat_sub(s.place[place].given, take(place)));
    wait_in_queue(place, 0);
    tokens_write(&t->id, 0);
    tokens_write(&t->word, ((t->word >> TOKENS_GENERATION) + 1) << TOKENS_GENERATION);
    agent_forget(s.place[place].name);
    *s.place[place].name = 0;
    s.place[place].given = 0;
}

/* The tenants of the file are those of which a contract is in force. */
static void tenants_changed(void)
{
    bool changed = false;
    uint32_t k, place;
    for (k = 0; k < TOKENS_TENANTS; k++)
        s.place[k].known = false;
    for (k = 0; k < cluster.tenants; k++) {
        const struct cluster_tenant *tenant = &cluster.tenant[k];
        struct cluster_contract contract;
        if (!cluster.period_ns || !cluster_in_force(tenant->status, cluster.period_ns, &contract, NULL))
            continue;
        place = place_of(tenant->name);
        if (place == TOKENS_TENANTS) {
            place = agent_tenant(tenant->name);
            if (place == QOS_NONE)
                continue; /* until the places of removed ones are free */
            snprintf(s.place[place].name, CLUSTER_NAME, "%s", tenant->name);
            tokens_write(&s.file->tenant[place].reserved, 0);
            tokens_write(&s.file->tenant[place].token_bytes, contract.token_bytes);
            tokens_write(&s.file->tenant[place].id, tenant->id);
            changed = true;
        }
        s.place[place].known = true;
    }
    for (k = 0; k < TOKENS_TENANTS; k++)
        if (*s.place[k].name && !s.place[k].known) {
            leave(k);
            changed = true;
        }
    if (changed)
        tokens_write(&s.file->changed, s.file->changed + 1);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void open_file(void)
{
    const int fd = open(settings.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct group *group;
    struct stat st;
    uint32_t k;
    if (fd < 0)
        tool_die(TOOL_FAILED, "%s: %s", settings.path, strerror(errno));
    group = settings.group ? getgrnam(settings.group) : NULL;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) /* held until this process ends */
        tool_die(TOOL_FAILED, "%s: another cluster_agent has it", settings.path);
    if (settings.group && (!group || fchown(fd, (uid_t)-1, group->gr_gid) != 0 || fchmod(fd, 0660) != 0))
        tool_die(TOOL_FAILED, "%s: it cannot be given to the group %s", settings.path, settings.group);
    if (fstat(fd, &st) != 0 || (st.st_size != 0 && st.st_size != (off_t)sizeof *s.file))
        tool_die(TOOL_FAILED, "%s: it is no file of tokens: remove it, or name another one", settings.path);
    errno = posix_fallocate(fd, 0, (off_t)sizeof *s.file); /* on a full disk a write to a hole would end this process */
    if (errno != 0)
        tool_die(TOOL_FAILED, "%s: %s: make room for %zu bytes", settings.path, strerror(errno), sizeof *s.file);
    s.file = mmap(NULL, sizeof *s.file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s.file == MAP_FAILED)
        tool_die(TOOL_FAILED, "%s: %s", settings.path, strerror(errno));
    if (s.file->magic != TOKENS_MAGIC && s.file->magic != 0)
        tool_die(TOOL_FAILED, "%s: it is no file of tokens of this version: remove it, or name another one",
                 settings.path);
    for (k = 0; k < TOKENS_TENANTS; k++) { /* what another one left */
        struct tokens_tenant *t = &s.file->tenant[k];
        tokens_write(&t->id, 0);
        tokens_write(&t->word, ((t->word >> TOKENS_GENERATION) + 1) << TOKENS_GENERATION);
        tokens_write(&t->wanted_ns, 0);
    }
    tokens_write(&s.file->ends_ns, 0);
    tokens_write(&s.file->changed, s.file->changed + 1);
    tokens_write(&s.file->magic, TOKENS_MAGIC);
}

static void parse(int argc, char **argv)
{
    const struct opt opts[] = {
        {"tokens", OPT_TEXT, &settings.path, "FILE", "shared with the server; made if it is missing", NULL},
        {"group", OPT_TEXT, &settings.group, "GROUP", "may write the file: that of the server's processes", NULL},
        {"keys", OPT_TEXT, &settings.options.keys, "DIR", "with this node's keys (.)", NULL},
        CLUSTER_OPTIONS(settings.options),
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL}};
    const char *about =
        "Makes nginx, with the module of this kit, a node of a cluster: limits and reservations hold over all nodes.\n"
        "The zone of the module names the same file: qos_zone ... cluster=FILE.";
    const char *examples = "  cluster_agent --tokens /run/qoskit/disks --cluster http://127.0.0.1:2379 "
                           "--name n1 --keys keys\n";
    if (opt_parse(argc, argv, opts, about, examples) != argc)
        tool_die(TOOL_USAGE, "there are only options");
    if (!settings.path || !settings.options.endpoints || !settings.options.name)
        tool_die(TOOL_USAGE, "--tokens, --cluster and --name are needed");
}

int main(int argc, char **argv)
{
    const struct pshift_scheduler_config queues = {.queues = TOKENS_TENANTS};
    struct agent_config agent = {.scheduler = &s.scheduler,
                                 .tenants_max = TOKENS_TENANTS,
                                 .lock = nothing,
                                 .unlock = nothing,
                                 .waits = waits,
                                 .up = up,
                                 .before = before,
                                 .granted = granted};
    parse(argc, argv);
    agent.options = settings.options;
    stop_on_signals();
    stop_not_for_readers();
    open_file();
    if (pshift_scheduler_init(&s.scheduler, tool_alloc_aligned(pshift_scheduler_memsize(&queues), 64),
                              pshift_scheduler_memsize(&queues), &queues) != QOS_OK)
        tool_die(TOOL_FAILED, "the scheduler cannot be opened");
    agent_open(&agent);
    while (!stop_asked()) {
        s.now_ns = tool_now_ns();
        if (agent_step(s.now_ns))
            tenants_changed();
        tool_sleep_until_ns(s.now_ns + STEP_NS);
    }
    return TOOL_OK;
}
