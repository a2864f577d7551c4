// Commands on objects that stay: random writes with a journal, reading back, list, check, drain.
#include "journal.h"
#include "twochoice_mpi.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_NS UINT64_C(60000000000) /* a drain gives up after this time */
#define CHUNK_BYTES (UINT64_C(256) << 10)

/* Each node has a region of one file, in which the writes of its processes may overlap. With --shared all nodes write
 * to the first region, and have one journal. */
static struct file_layout all_servers;

static uint64_t region_bytes(void)
{
    return settings.per_process * settings.procs;
}

static uint64_t region_start(void)
{
    return nodes.node * region_bytes();
}

static struct journal *open_journal(void)
{
    char path[600];
    struct journal *j = NULL;
    if (settings.journal && !plot_mkdir(settings.journal))
        tool_warn("%s: %s", settings.journal, strerror(errno));
    snprintf(path, sizeof path, "%s/node-%u.journal", settings.journal ? settings.journal : "",
             settings.shared ? 0 : nodes.node);
    if (settings.journal)
        j = journal_open(path, nodes.node);
    all_servers.width = (uint32_t)settings.servers;
    return j;
}

struct verdict {
    struct client_tally tally;
    uint64_t writes, acknowledged, bytes, wrong, unread, redirects, given_up, compactions, recovered, torn;
    bool no_journal;
};

/* Reads the region through the homes' tables and judges every byte. */
static void verify_region(struct journal *j, struct verdict *v)
{
    struct transfer *t = tool_alloc(settings.procs * sizeof *t);
    uint64_t end = region_start() + region_bytes(), at = region_start(), i, where = 0;
    uint8_t *data = tool_alloc(settings.procs * CHUNK_BYTES);
    while (at < end && !stop_asked()) {
        for (i = 0; i < settings.procs; i++) {
            memset(&t[i], 0, sizeof t[i]);
            t[i].layout = &all_servers;
            t[i].process = (uint32_t)i;
            t[i].offset = at;
            t[i].len = qos_min(CHUNK_BYTES, end - at);
            t[i].data = data + i * CHUNK_BYTES;
            memset(t[i].data, 0xaa, CHUNK_BYTES);
            at += t[i].len;
            if (t[i].len)
                client_start(&t[i]);
        }
        client_finish();
        for (i = 0; i < settings.procs; i++) {
            uint64_t wrong;
            if (t[i].failed || !t[i].len) {
                v->unread += t[i].len;
                continue;
            }
            wrong = journal_wrong(j, t[i].offset, t[i].data, t[i].len, &where);
            if (wrong && v->wrong == 0)
                tool_warn("node %u: byte %" PRIu64 " is not what was acknowledged, nor what might be", nodes.node,
                          where);
            v->wrong += wrong;
        }
    }
    free(data);
    free(t);
}

/* The verdicts of all nodes, printed by node 0. */
static int conclude(struct verdict *mine, const char *what)
{
    struct verdict *all = tool_alloc(nodes.count * sizeof *all), sum = {0};
    struct json json;
    uint32_t i;
    bool ok = true;
    mine->redirects = nodes.node == 0 ? nodes_count(COUNT_FRAGMENTS) : 0;
    mine->given_up = nodes.node == 0 ? nodes_count(COUNT_GIVEN_UP) : 0;
    mine->compactions = nodes.node == 0 ? nodes_count(COUNT_COMPACTIONS) : 0;
    mine->recovered = nodes.node == 0 ? nodes_count(COUNT_RECOVERED) : 0;
    mine->torn = nodes.node == 0 ? nodes_count(COUNT_TORN_BYTES) : 0;
    mine->tally = client_counts.tally;
    nodes_gather(mine, sizeof *mine, all);
    for (i = 0; i < nodes.count; i++) {
        sum.writes += all[i].writes;
        sum.acknowledged += all[i].acknowledged;
        sum.bytes += all[i].bytes;
        sum.wrong += all[i].wrong;
        sum.unread += all[i].unread;
        client_tally_add(&sum.tally, &all[i].tally);
        ok &= !all[i].no_journal;
    }
    ok &= sum.wrong == 0 && sum.unread == 0 && sum.tally.failed == 0;
    if (nodes.node == 0) {
        printf("%s: %" PRIu64 " writes, %" PRIu64 " acknowledged (%s); %" PRIu64 " bytes wrong, %" PRIu64
               " could not be read; %" PRIu64 " redirects\n",
               what, sum.writes, sum.acknowledged, human_bytes((double)sum.bytes).text, sum.wrong, sum.unread,
               all[0].redirects);
        if (sum.tally.decisions)
            printf("decisions: %" PRIu64 "; servers that did not answer in time: %" PRIu64
                   ", said that they are full: %" PRIu64 ", or gone: %" PRIu64
                   "; writes that went elsewhere in the end: %" PRIu64 ", failed: %" PRIu64
                   "; announced and never came: %" PRIu64 "\n",
                   sum.tally.decisions, sum.tally.no_answer, sum.tally.said_full, sum.tally.said_down, sum.tally.redone,
                   sum.tally.failed, all[0].given_up);
        fflush(stdout);
    }
    if (nodes.node == 0 && settings.json && json_open(&json, settings.json)) {
        json_text(&json, "command", settings.command);
        json_u64(&json, "writes", sum.writes);
        json_u64(&json, "acknowledged", sum.acknowledged);
        json_u64(&json, "acknowledged_bytes", sum.bytes);
        json_u64(&json, "wrong_bytes", sum.wrong);
        json_u64(&json, "unread_bytes", sum.unread);
        json_u64(&json, "redirects", all[0].redirects);
        client_tally_json(&json, &sum.tally);
        json_u64(&json, "given_up", all[0].given_up);
        json_u64(&json, "compactions", all[0].compactions);
        json_u64(&json, "recovered_records", all[0].recovered);
        json_u64(&json, "torn_bytes", all[0].torn);
        ok &= json_close(&json);
    }
    free(all);
    return ok ? TOOL_OK : TOOL_FAILED;
}

static int verify(struct journal *j, struct verdict *v)
{
    if (j)
        journal_totals(j, &v->writes, &v->acknowledged, &v->bytes);
    else
        v->no_journal = true;
    if (j)
        verify_region(j, v);
    return conclude(v, "verified");
}

static bool need_journal(void)
{
    if (!settings.journal && nodes.node == 0)
        tool_warn("%s needs --journal", settings.command);
    return settings.journal != NULL;
}

int workload_verify(void)
{
    struct verdict v = {0};
    struct journal *j;
    int status;
    if (!need_journal())
        return TOOL_USAGE;
    j = open_journal();
    status = verify(j, &v);
    if (j)
        journal_close(j);
    return status;
}

/* ---- stress ---------------------------------------------------------------------------------------------- */

struct writer {
    struct transfer t;
    uint64_t number;
    bool busy;
    uint8_t *data;
};

static void begin_write(struct journal *j, struct writer *w, struct qos_rng *rng)
{
    uint64_t len = 1 + qos_rng_below(rng, qos_min(settings.write_bytes, region_bytes()));
    memset(&w->t, 0, sizeof w->t);
    w->t.write = true;
    w->t.layout = &all_servers;
    w->t.offset = (settings.shared ? 0 : region_start()) + qos_rng_below(rng, region_bytes() - len + 1);
    w->t.len = len;
    w->t.data = w->data;
    w->number = journal_intent(j, w->t.offset, len);
    journal_fill(w->number, w->t.offset, w->data, len);
    w->busy = true;
    client_start(&w->t);
}

int workload_stress(void)
{
    struct writer *writer = tool_alloc(settings.procs * sizeof *writer);
    struct verdict v = {0};
    struct journal *j;
    struct progress progress;
    struct qos_rng rng;
    uint64_t end_ns, i, wrong;
    int status;
    if (!need_journal())
        return TOOL_USAGE;
    j = open_journal();
    verify(j, &v); /* what an earlier run left. Bytes of a server that is gone cannot be judged; the others are */
    wrong = v.wrong;
    if (!j)
        return TOOL_FAILED;
    nodes_tell(OP_GO, 0, NULL);
    if (nodes.node == 0)
        printf("writing\n");
    fflush(stdout);
    qos_rng_seed(&rng, settings.seed * 1000 + nodes.node);
    progress_init(&progress, settings.progress);
    end_ns = settings.run_ns ? tool_now_ns() + settings.run_ns : QOS_NEVER;
    for (i = 0; i < settings.procs; i++) {
        writer[i].data = tool_alloc(settings.write_bytes);
        writer[i].t.process = (uint32_t)i;
    }
    for (;;) {
        uint64_t now_ns = tool_now_ns();
        bool going = now_ns < end_ns && !stop_asked();
        for (i = 0; i < settings.procs; i++) {
            struct writer *w = &writer[i];
            if (w->busy && w->t.done) {
                journal_over(j, w->number, !w->t.failed);
                w->busy = false;
            }
            if (!w->busy && going)
                begin_write(j, w, &rng);
        }
        if (!going && client_under_way() == 0)
            break;
        if (!client_poll())
            client_wait();
        if (nodes.node == 0 && progress_due(&progress, now_ns))
            progress_show(&progress, "%" PRIu64 " writes by node 0, %" PRIu64 " parts redirected, %" PRIu64 " failed",
                          client_counts.writes, client_counts.tally.redirected, client_counts.tally.failed);
    }
    progress_end(&progress);
    memset(&v, 0, sizeof v);
    journal_totals(j, &v.writes, &v.acknowledged, &v.bytes);
    v.wrong = wrong;
    status = conclude(&v, "written");
    journal_close(j);
    for (i = 0; i < settings.procs; i++)
        free(writer[i].data);
    free(writer);
    return status;
}

/* ---- list, check, drain ---------------------------------------------------------------------------------- */

int workload_list(void)
{
    struct note *answers = tool_alloc(settings.servers * sizeof *answers);
    struct table *table = table_new("home|object|from|to|at server|version");
    uint32_t i;
    uint64_t k;
    nodes_tell(OP_LIST, 0, answers);
    for (i = 0; i < settings.servers && nodes.node == 0; i++) {
        if (answers[i].status != ST_OK) {
            tool_warn("server %u: %s", i, status_text(answers[i].status));
            continue;
        }
        for (k = 0; k + 5 <= answers[i].words; k += 5) {
            table_cellf(table, "%u", i);
            table_cellf(table, "%016" PRIx64, answers[i].word[k]);
            table_cellf(table, "%" PRIu64, answers[i].word[k + 1]);
            table_cellf(table, "%" PRIu64, answers[i].word[k + 2]);
            table_cellf(table, "%" PRIu64, answers[i].word[k + 3]);
            table_cellf(table, "%" PRIu64, answers[i].word[k + 4]);
        }
    }
    if (nodes.node == 0) {
        printf("the oldest redirects of each home, at most %u:\n", NOTE_WORDS / 5);
        table_print(table, stdout);
    }
    table_free(table);
    free(answers);
    return TOOL_OK;
}

int workload_check(void)
{
    struct note *answers = tool_alloc(settings.servers * sizeof *answers);
    uint64_t found = 0, unchecked = 0, redirects;
    struct json json;
    uint32_t i;
    int status = TOOL_OK;
    nodes_tell(OP_CHECK, 0, answers);
    redirects = nodes_count(COUNT_FRAGMENTS);
    for (i = 0; i < settings.servers && nodes.node == 0; i++) {
        if (answers[i].status == ST_OK) {
            found += answers[i].len;
        } else {
            unchecked++;
            tool_warn("server %u is not checked: %s", i, status_text(answers[i].status));
        }
    }
    if (nodes.node == 0) {
        printf("%" PRIu64 " redirects checked, %" PRIu64 " disagreements, %" PRIu64 " servers not checked\n", redirects,
               found, unchecked);
        status = found || unchecked ? TOOL_FAILED : TOOL_OK;
        if (settings.json && json_open(&json, settings.json)) {
            json_u64(&json, "redirects", redirects);
            json_u64(&json, "disagreements", found);
            json_u64(&json, "servers_not_checked", unchecked);
            if (!json_close(&json))
                status = TOOL_FAILED;
        }
    }
    free(answers);
    return status;
}

int workload_drain(void)
{
    struct progress progress;
    uint64_t left = 1, start_ns = tool_now_ns(), give_up_ns = start_ns + DRAIN_NS;
    nodes_tell(OP_DRAIN, 0, NULL);
    progress_init(&progress, settings.progress);
    while (nodes.node == 0 && !stop_asked() && tool_now_ns() < give_up_ns) {
        left = nodes_count(COUNT_FRAGMENTS);
        if (left == 0)
            break;
        if (progress_due(&progress, tool_now_ns()))
            progress_show(&progress, "%" PRIu64 " redirects left", left);
        tool_sleep_until_ns(tool_now_ns() + 20000000);
    }
    progress_end(&progress);
    if (nodes.node != 0)
        return TOOL_OK;
    printf("%s pulled home in %s; %" PRIu64 " redirects left\n",
           human_bytes((double)nodes_count(COUNT_PULLED_BYTES)).text, human_ns((double)(tool_now_ns() - start_ns)).text,
           left);
    return left ? TOOL_FAILED : TOOL_OK;
}
