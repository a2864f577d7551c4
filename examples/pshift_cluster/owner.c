// Who owns a period: the key of struct pshift_owner, in a file of this host (`--owner file:PATH`) or in etcd (`--cluster
// http://HOST:2379,...`, the key qos/owner). Both hold one line: its number, its nonce in two halves, and the owner's
// period in ns. The number never falls and the key is never removed; whoever restores it from a backup writes a number above
// all that were used, and 0 0. A line that cannot be true is nobody's: it is reported, nothing is owned, and when somebody has
// repaired it the controllers go on.
//
// The file. A swap locks another file beside it, compares, and overwrites the line in its place. It must not wait for the
// disk: a controller that syncs on a busy disk for longer than T loses its periods while it lives. So the kernel writes
// the line on its own, at once. A process that dies loses nothing. If the host crashes, all controllers of the cluster die
// with it; a number that the disk did not get is then used again. That breaks no limit, as a swap comes T after the key was
// first seen, but nodes refuse periods up to the last one that they have heard of.
//
// etcd. A swap compares the revision of the key's last change. If its reply is lost, the key is read until it is known
// who owns what. One request is on its way at a time, and nothing waits for it.
#include "cluster.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct line {
    uint64_t number;
    struct qos_u128 nonce;
    uint64_t period_ns; /* of the owner; 0: not known */
};

static struct {
    struct pshift_owner owner;
    struct qos_u128 nonce;
    char path[400], dir[400];
    int lock;
    uint64_t look_ns, looked_ns;
    bool etcd, asked, others; /* asked: a request is on its way; others: the key has another process's nonce */
    bool damaged, told;       /* told: the key's state, in etcd */
    uint64_t behind;          /* the period that nodes have heard of; 0: none above ours */
    uint64_t revision, swapped, period_ns; /* period_ns: of the other owner */
} o;

static bool parse(const char *text, struct line *l)
{
    char number[24] = "", hi[17] = "", lo[17] = "", period[20] = "0";
    int end = 0;
    if (sscanf(text, "%23[0-9] %16[0-9a-f] %16[0-9a-f] %n%19[0-9] %n", number, hi, lo, &end, period, &end) < 3 ||
        text[end] || text[strlen(number)] != ' ')
        return false;
    l->number = strtoull(number, NULL, 10);
    l->nonce.hi = strtoull(hi, NULL, 16);
    l->nonce.lo = strtoull(lo, NULL, 16);
    l->period_ns = strtoull(period, NULL, 10);
    return l->number <= PSHIFT_COUNT_MAX && l->period_ns <= PSHIFT_COUNT_MAX;
}

/* The key is what `l` says, or cannot be. */
static bool saw(const struct line *l, bool good)
{
    char text[600] = "good";
    const bool fell = good && l->number < o.owner.seen && o.owner.step != PSHIFT_OWNER_READS;
    const bool was = o.damaged;
    o.damaged = !good || fell;
    if (o.behind && good && l->number >= o.behind) {
        o.behind = 0;
        o.told = false;
    }
    if (o.damaged)
        snprintf(text, sizeof text, "%s %s: put a number above %" PRIu64 " and all others that were used, then 0 0",
                 o.etcd ? "qos/owner" : o.path, good ? "fell" : "is damaged", o.owner.seen);
    if (o.damaged && !was)
        tool_warn("%s", text);
    if (o.etcd && !o.behind && (o.damaged != was || !o.told))
        contracts_status("status/owner", text);
    o.told = true;
    if (o.damaged)
        return false;
    o.others = l->number != 0 && (l->nonce.hi != o.nonce.hi || l->nonce.lo != o.nonce.lo);
    o.period_ns = l->period_ns;
    pshift_owner_saw(&o.owner, tool_now_ns(), l->number, l->nonce);
    return true;
}

/* An empty file is one that was never written. */
static bool read_owner(struct line *l)
{
    FILE *f = fopen(o.path, "r");
    char text[120] = "";
    bool empty;
    *l = (struct line){0};
    if (!f)
        return errno == ENOENT;
    empty = fgets(text, sizeof text, f) == NULL;
    fclose(f);
    return empty || parse(text, l);
}

static int own_line(char text[100], uint64_t number)
{
    return snprintf(text, 100, "%" PRIu64 " %016" PRIx64 " %016" PRIx64 " %" PRIu64, number, o.nonce.hi, o.nonce.lo,
                    o.owner.config.period_ns);
}

/* first: the file has no line yet; it and its name are synced. */
static bool write_owner(uint64_t number, bool first)
{
    char text[100];
    int length = own_line(text, number);
    int file = open(o.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644), dir;
    bool good;
    text[length++] = '\n'; /* a longer line before it leaves a second one, which nobody reads */
    if (file < 0)
        return false;
    good = pwrite(file, text, (size_t)length, 0) == length;
    if (!first)
        (void)sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE); /* begins to write; does not wait */
    else
        good = fsync(file) == 0 && good;
    good = close(file) == 0 && good;
    if (!first)
        return good;
    dir = open(o.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    good = dir >= 0 && fsync(dir) == 0 && good;
    if (dir >= 0)
        close(dir);
    return good;
}

void owner_open(const char *where, uint64_t period_ns)
{
    struct pshift_owner_config config = {cluster_nonce(), period_ns, 0};
    char path[420], *slash;
    o.nonce = config.nonce;
    o.look_ns = period_ns / 50;
    if (pshift_owner_init(&o.owner, &config) != QOS_OK)
        tool_die(TOOL_USAGE, "--owner: %s", pshift_owner_config_error(&config));
    o.etcd = settings.cluster.endpoints != NULL;
    if (o.etcd)
        return;
    if (strncmp(where, "file:", 5) != 0 || strlen(where) < 6 || strlen(where) >= sizeof o.path)
        tool_die(TOOL_USAGE, "--owner %s: file:PATH, the same for all controllers of the cluster; with etcd: --cluster",
                 where);
    snprintf(o.path, sizeof o.path, "%s", where + 5);
    snprintf(o.dir, sizeof o.dir, "%s", where + 5);
    slash = strrchr(o.dir, '/');
    if (slash)
        slash[slash == o.dir] = 0;
    else
        snprintf(o.dir, sizeof o.dir, ".");
    snprintf(path, sizeof path, "%s.lock", o.path);
    o.lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (o.lock < 0)
        tool_die(TOOL_FAILED, "%s: %s", path, strerror(errno));
}

/* After another owner's periods a swap waits a while longer: an owner that lives goes on, so a busy host does not change its
 * controller needlessly. */
static bool others_turn(uint64_t now_ns)
{
    return o.others && now_ns < o.owner.seen_ns + qos_max(o.owner.config.period_ns, o.period_ns) + 12 * o.look_ns;
}

/* What a read found, or a swap that did not succeed. */
static void found_in_etcd(const struct etcd_reply *reply)
{
    struct line l = {0};
    o.asked = false;
    if (reply->error)
        return; /* it is read again */
    o.revision = reply->pairs ? reply->pair[0].revision : 0;
    (void)saw(&l, reply->pairs == 0 || parse(reply->pair[0].value, &l));
}

static void swapped_in_etcd(const struct etcd_reply *reply)
{
    if (reply->error || !reply->succeeded) {
        found_in_etcd(reply);
        return;
    }
    o.asked = o.others = false;
    o.revision = reply->store;
    pshift_owner_saw(&o.owner, tool_now_ns(), o.swapped, o.nonce);
}

/* An owner need not read before its next swap. */
static void step_in_etcd(uint64_t now_ns)
{
    char line[100];
    etcd_step();
    if (o.asked)
        return;
    if (!o.damaged && o.owner.step == PSHIFT_OWNER_WAITS && !others_turn(now_ns) &&
        pshift_owner_ask(&o.owner, tool_now_ns(), &o.swapped) == QOS_OK) {
        o.asked = true;
        (void)own_line(line, o.swapped);
        etcd_swap("owner", o.revision, line, swapped_in_etcd);
    } else if (now_ns - o.looked_ns >= o.look_ns && (o.others || o.damaged || o.owner.step != PSHIFT_OWNER_WAITS)) {
        o.asked = true;
        o.looked_ns = now_ns;
        etcd_read("owner", found_in_etcd);
    }
}

/* Reads the key now and then, and swaps it when that is due. */
void owner_step(uint64_t now_ns)
{
    struct line l;
    uint64_t number = 0, due = pshift_owner_next_ns(&o.owner, now_ns);
    if (o.etcd) {
        step_in_etcd(now_ns);
        return;
    }
    if (due > now_ns && now_ns - o.looked_ns < o.look_ns)
        return;
    o.looked_ns = now_ns;
    if (flock(o.lock, LOCK_EX | LOCK_NB) != 0)
        return; /* another controller is at it */
    if (saw(&l, read_owner(&l)) && !others_turn(now_ns) &&
        pshift_owner_ask(&o.owner, tool_now_ns(), &number) == QOS_OK) {
        if (!write_owner(number, l.number == 0))
            tool_warn("%s: cannot be written: %s", o.path, strerror(errno));
        (void)saw(&l, read_owner(&l));
    }
    (void)flock(o.lock, LOCK_UN);
}

void owner_behind(uint32_t server, uint64_t heard)
{
    char text[600];
    if (heard <= o.behind)
        return;
    snprintf(text, sizeof text,
             "%s is behind: server %" PRIu32 " knows period %" PRIu64 ", and servers refuse smaller ones: put a number "
             "above all that were used, then 0 0",
             o.etcd ? "qos/owner" : o.path, server, heard);
    if (!o.behind)
        tool_warn("%s", text);
    if (o.etcd)
        contracts_status("status/owner", text);
    o.behind = heard;
}

bool owner_holds(uint64_t now_ns, uint64_t *period, uint64_t *start_ns)
{
    return pshift_owner_holds(&o.owner, now_ns, period, start_ns) == QOS_OK;
}

struct qos_u128 owner_own_nonce(void)
{
    return o.nonce;
}
