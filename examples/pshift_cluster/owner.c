// Who owns a period: the key of struct pshift_owner, in a file of this host (`--owner file:PATH`) or in etcd (`--owner
// etcd:http://HOST:2379,...`, the key qos/owner). Both hold one line: its number and its nonce. The number never falls and the
// key is never removed; whoever restores it from a backup writes a number above all that were used.
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
#include "../cluster_agent/etcd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static struct {
    struct pshift_owner owner;
    struct qos_u128 nonce;
    char path[400], dir[400];
    int lock;
    uint64_t look_ns, looked_ns;
    bool etcd, asked, others; /* asked: a request is on its way; others: the key has another process's nonce */
    uint64_t revision, swapped;
} o;

/* A line of three numbers, the last two in hexadecimal. */
static bool parse(const char *text, uint64_t *number, struct qos_u128 *nonce)
{
    char *end[3];
    *number = strtoull(text, &end[0], 10);
    nonce->hi = strtoull(end[0], &end[1], 16);
    nonce->lo = strtoull(end[1], &end[2], 16);
    return end[0] != text && end[1] != end[0] && end[2] != end[1];
}

/* An empty file is one that was never written. */
static bool read_owner(uint64_t *number, struct qos_u128 *nonce)
{
    FILE *f = fopen(o.path, "r");
    char line[120] = "";
    bool empty;
    *number = nonce->hi = nonce->lo = 0;
    if (!f)
        return errno == ENOENT;
    empty = fgets(line, sizeof line, f) == NULL;
    fclose(f);
    return empty || parse(line, number, nonce);
}

/* first: the file has no line yet; it and its name are synced. */
static bool write_owner(uint64_t number, bool first)
{
    char text[80];
    int length =
        snprintf(text, sizeof text, "%-20" PRIu64 " %016" PRIx64 " %016" PRIx64 "\n", number, o.nonce.hi, o.nonce.lo);
    int file = open(o.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644), dir;
    bool good;
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
    struct pshift_owner_config config = {owner_nonce(), period_ns, 0};
    char path[420], *slash;
    o.nonce = config.nonce;
    o.look_ns = period_ns / 50;
    if (pshift_owner_init(&o.owner, &config) != QOS_OK)
        tool_die(TOOL_USAGE, "--owner: %s", pshift_owner_config_error(&config));
    if (strncmp(where, "etcd:", 5) == 0) {
        const struct etcd_config etcd = {.endpoints = where + 5, .prefix = "qos/"};
        o.etcd = true;
        etcd_open(&etcd);
        return;
    }
    if (strncmp(where, "file:", 5) != 0 || strlen(where) < 6 || strlen(where) >= sizeof o.path)
        tool_die(TOOL_USAGE,
                 "--owner %s: file:PATH or etcd:http://HOST:PORT, the same for all controllers of the cluster", where);
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
    return o.others && now_ns < o.owner.seen_ns + o.owner.config.period_ns + 12 * o.look_ns;
}

static void line_of(char line[80], uint64_t number)
{
    snprintf(line, 80, "%" PRIu64 " %016" PRIx64 " %016" PRIx64, number, o.nonce.hi, o.nonce.lo);
}

/* What a read found, or a swap that did not succeed. */
static void found_in_etcd(const struct etcd_reply *reply)
{
    struct qos_u128 nonce = {0, 0};
    uint64_t number = 0;
    o.asked = false;
    if (reply->error)
        return; /* it is read again */
    if (reply->value && !parse(reply->value, &number, &nonce))
        tool_die(TOOL_FAILED, "qos/owner is damaged: put a number above all that were used, then 0 0");
    o.revision = reply->revision;
    o.others = number != 0 && (nonce.hi != o.nonce.hi || nonce.lo != o.nonce.lo);
    pshift_owner_saw(&o.owner, tool_now_ns(), number, nonce);
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
    char line[80];
    etcd_step();
    if (o.asked)
        return;
    if (o.owner.step == PSHIFT_OWNER_WAITS && !others_turn(now_ns) &&
        pshift_owner_ask(&o.owner, tool_now_ns(), &o.swapped) == QOS_OK) {
        o.asked = true;
        line_of(line, o.swapped);
        etcd_swap("owner", o.revision, line, swapped_in_etcd);
    } else if (now_ns - o.looked_ns >= o.look_ns && (o.others || o.owner.step != PSHIFT_OWNER_WAITS)) {
        o.asked = true;
        o.looked_ns = now_ns;
        etcd_read("owner", found_in_etcd);
    }
}

/* Reads the key now and then, and swaps it when that is due. */
void owner_step(uint64_t now_ns)
{
    struct qos_u128 nonce;
    uint64_t number = 0, found = 0, due = pshift_owner_next_ns(&o.owner, now_ns);
    if (o.etcd) {
        step_in_etcd(now_ns);
        return;
    }
    if (due > now_ns && now_ns - o.looked_ns < o.look_ns)
        return;
    o.looked_ns = now_ns;
    if (flock(o.lock, LOCK_EX | LOCK_NB) != 0)
        return; /* another controller is at it */
    if (!read_owner(&found, &nonce))
        tool_die(TOOL_FAILED, "%s: damaged: write a number above all that were used, then 0 0", o.path);
    pshift_owner_saw(&o.owner, tool_now_ns(), found, nonce);
    o.others = found != 0 && (nonce.hi != o.nonce.hi || nonce.lo != o.nonce.lo);
    if (others_turn(now_ns)) {
        (void)flock(o.lock, LOCK_UN);
        return;
    }
    if (found == o.owner.seen && pshift_owner_ask(&o.owner, tool_now_ns(), &number) == QOS_OK) {
        if (!write_owner(number, found == 0))
            tool_warn("%s: cannot be written: %s", o.path, strerror(errno));
        if (read_owner(&found, &nonce))
            pshift_owner_saw(&o.owner, tool_now_ns(), found, nonce);
    }
    (void)flock(o.lock, LOCK_UN);
}

bool owner_holds(uint64_t now_ns, uint64_t *period, uint64_t *start_ns)
{
    return pshift_owner_holds(&o.owner, now_ns, period, start_ns) == QOS_OK;
}

struct qos_u128 owner_own_nonce(void)
{
    return o.nonce;
}
