// The state that a restart of a node needs (struct pshift_agent_config): the number of this start, and the largest
// epoch of a controller that was obeyed. memcached_gate uses it, too.
//
// A report must not name an epoch that a restart would forget. So a grant with a new epoch waits until a thread has
// written the epoch to the disk. For pshift.h that is a grant that the network delivers late. Reports do not wait:
// until then they name the old epoch, and the agent obeys the old controller. A disk that stalls costs no period.
#include "cluster.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news;
    uint64_t wanted, stored; /* epochs; covered by the lock */
    uint64_t *grant;         /* a grant that waits for `wanted`; NULL: none */
    size_t bytes;
    int rank, tag;
} w = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};

uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* A new file, synced, then renamed over the old one. */
static void write_file(const struct node_state *s, uint64_t controller_epoch)
{
    char path[512], text[64];
    int file, length = snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 "\n", s->epoch, controller_epoch);
    snprintf(path, sizeof path, "%s.new", s->path);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || write(file, text, (size_t)length) != length || fdatasync(file) != 0 || close(file) != 0 ||
        rename(path, s->path) != 0)
        tool_die(TOOL_FAILED, "%s: cannot be written: %s", s->path, strerror(errno));
}

static void *write_behind(void *arg)
{
    const struct node_state *s = arg;
    pthread_mutex_lock(&w.lock);
    for (;;) {
        uint64_t epoch = w.wanted;
        if (epoch == w.stored) {
            pthread_cond_wait(&w.news, &w.lock);
            continue;
        }
        pthread_mutex_unlock(&w.lock);
        write_file(s, epoch);
        pthread_mutex_lock(&w.lock);
        w.stored = epoch;
    }
    return NULL;
}

void state_read(struct node_state *s, const char *path)
{
    FILE *f = path ? fopen(path, "r") : NULL;
    uint64_t number[2] = {0, 0};
    char text[96] = "", *at = text;
    pthread_t thread;
    uint32_t k;
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        for (k = 0; k < 2; k++)
            number[k] = strtoull(at, &at, 10);
        if (*at != '\n' && *at != ' ') /* a third number: of an earlier version */
            tool_die(TOOL_FAILED, "%s: damaged; remove it if no process of this number served in this period", path);
    }
    s->path = path;
    s->epoch = qos_max(number[0] + 1, wall_ns() / 1000000);
    s->controller_epoch = w.wanted = w.stored = number[1];
    if (!path)
        return;
    write_file(s, s->controller_epoch);
    if (pthread_create(&thread, NULL, write_behind, s) != 0 || pthread_detach(thread) != 0)
        tool_die(TOOL_FAILED, "a thread cannot be started");
}

bool state_obeys(const struct node_state *s, uint64_t controller_epoch, const struct mail *grant)
{
    bool obeys;
    pthread_mutex_lock(&w.lock);
    obeys = !s->path || controller_epoch <= w.stored;
    if (!obeys && controller_epoch >= w.wanted) {
        w.wanted = controller_epoch;
        w.grant = tool_grow(w.grant, grant->bytes + 8);
        w.bytes = grant->bytes;
        w.rank = grant->rank;
        w.tag = grant->tag;
        memcpy(w.grant, grant->data, grant->bytes);
        pthread_cond_signal(&w.news);
    }
    pthread_mutex_unlock(&w.lock);
    return obeys;
}

bool state_take(struct mail *m)
{
    static uint64_t *taken;
    bool ready;
    pthread_mutex_lock(&w.lock);
    ready = w.grant != NULL && w.stored == w.wanted;
    if (ready) {
        free(taken);
        taken = w.grant;
        w.grant = NULL;
        *m = (struct mail){w.rank, w.tag, w.bytes, taken};
    }
    pthread_mutex_unlock(&w.lock);
    return ready;
}
