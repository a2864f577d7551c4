// proves: idle queues are not scanned: arrivals, picks, the measurement, the report, an acknowledgement and a grant of
// proves: five busy buckets touch as many pages of memory with 200,000 open queues as with 2,000
// flags: -D_GNU_SOURCE
// variants: native
#include "pshift.h"
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

/* All memory of the scheduler and the agent is made inaccessible before a call. The first access to each page comes
 * here: the page is counted and opened. */
static uint8_t *memory;
static size_t page, bytes, pages; /* page: the machine's, in bytes */

static void on_access(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)number;
    (void)context;
    if (at < (uintptr_t)memory || at >= (uintptr_t)memory + bytes)
        abort();
    pages++;
    if (mprotect((void *)(at - at % page), page, PROT_READ | PROT_WRITE) != 0)
        abort();
}

static void shut(void)
{
    pages = 0;
    CHECK_EQ(mprotect(memory, bytes, PROT_NONE), 0);
}

static size_t touched(void)
{
    size_t n = pages;
    CHECK_EQ(mprotect(memory, bytes, PROT_READ | PROT_WRITE), 0);
    return n;
}

enum { BUSY = 5, CALLS = 6 };
static const char *const call[CALLS] = {"arrive", "pick", "measure", "report", "install", "nothing to report"};

/* Pages that each call touches. */
static void count(uint32_t queues, size_t at[CALLS])
{
    struct pshift_scheduler_config sc = {queues, 0};
    struct pshift_agent_config ac = {NULL, 3, {0, 1}, 0, 0, 0};
    struct pshift_scheduler scheduler;
    struct pshift_agent agent;
    struct pshift_message m;
    struct pshift_report_entry report[BUSY];
    struct pshift_grant_entry grant[BUSY];
    struct pshift_pick pick = {0, PSHIFT_NORMAL};
    const size_t first = (pshift_scheduler_memsize(&sc) + page - 1) / page * page;
    uint32_t k, queue = 0, busy[BUSY];
    ac.scheduler = &scheduler;
    bytes = first;
    memory = mmap(NULL, 2 * first + ((size_t)queues << 8), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQ(pshift_scheduler_init(&scheduler, memory, first, &sc), QOS_OK);
    bytes = first + (pshift_agent_memsize(&ac) + page - 1) / page * page;
    CHECK_EQ(pshift_agent_init(&agent, memory + first, bytes - first, &ac), QOS_OK);
    for (k = 0; k < queues; k++)
        CHECK_EQ(pshift_agent_open(&agent, k, &queue), QOS_OK);
    for (k = 0; k < BUSY; k++)
        busy[k] = queues / BUSY * k + k;
    shut();
    for (k = 0; k < BUSY; k++)
        CHECK_EQ(pshift_scheduler_arrive(&scheduler, busy[k], 10), QOS_OK);
    at[0] = touched();
    for (k = 0; k < BUSY; k++)
        CHECK_EQ(pshift_scheduler_set_tokens(&scheduler, busy[k], 1, 1), QOS_OK);
    shut();
    for (k = 0; k < 2 * BUSY; k++)
        CHECK_EQ(pshift_scheduler_pick(&scheduler, 0, &pick), QOS_OK);
    CHECK_EQ(pshift_scheduler_pick(&scheduler, 0, &pick), QOS_EAGAIN);
    at[1] = touched();
    shut();
    pshift_agent_measure(&agent, 10);
    at[2] = touched();
    shut();
    CHECK_EQ(pshift_agent_report(&agent, &m, report, BUSY), QOS_OK);
    CHECK_EQ(pshift_agent_report(&agent, &m, report, BUSY), QOS_EAGAIN);
    at[3] = touched();
    CHECK(m.count == BUSY && report[BUSY - 1].bucket == busy[BUSY - 1] && report[0].served == 2);
    for (k = 0; k < BUSY; k++)
        grant[k] = (struct pshift_grant_entry){busy[k], 5, 8};
    m.owner.lo = m.period = 1;
    m.answers = m.seq;
    m.left_ns = 1000;
    CHECK_EQ(pshift_agent_install(&agent, 11, &m, grant), QOS_OK); /* a new period: O(queues), once */
    pshift_agent_measure(&agent, 20);
    CHECK_EQ(pshift_agent_report(&agent, &m, report, BUSY), QOS_OK);
    m.answers = m.ack[0].first = m.ack[0].last = m.seq;
    m.left_ns = 1000;
    m.seq = 7;
    shut();
    CHECK_EQ(pshift_agent_install(&agent, 21, &m, grant), QOS_OK);
    at[4] = touched();
    pshift_agent_measure(&agent, 30);
    CHECK_EQ(pshift_agent_report(&agent, &m, report, BUSY), QOS_OK);
    m.answers = m.ack[0].first = m.ack[0].last = m.seq;
    m.left_ns = 1000;
    m.seq = 8;
    m.count = 0;
    CHECK_EQ(pshift_agent_install(&agent, 31, &m, grant), QOS_OK); /* everything is acknowledged and idle now */
    shut();
    pshift_agent_measure(&agent, 40);
    CHECK_EQ(pshift_agent_report(&agent, &m, report, BUSY), QOS_OK);
    at[5] = touched();
    CHECK_EQ(m.count, 0);
    munmap(memory, 2 * first + ((size_t)queues << 8));
}

int main(void)
{
    struct sigaction action;
    size_t few[CALLS], many[CALLS];
    uint32_t k;
    check_begin("unit/pshift_idle");
    page = (size_t)sysconf(_SC_PAGESIZE);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_access;
    action.sa_flags = SA_SIGINFO;
    CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
    count(2000, few);
    count(200000, many);
    for (k = 0; k < CALLS; k++) {
        printf("%-18s %3zu pages of 2,000 queues, %3zu of 200,000\n", call[k], few[k], many[k]);
        CHECK_CONTEXT("%s", call[k]);
        CHECK_LE(few[k], 8 * BUSY);
        CHECK_LE(many[k],
                 /* a queue, its word in each bitmap, its hash slot; with pages of 4 KiB there are over 4,000 */
                 8 * BUSY);
    }
    return check_end();
}
