// What a restart of a node must not forget (struct pshift_agent_config): the number of this start, the largest epoch of a
// controller, the period. memcached_gate has it, too.
#include "cluster.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * QOS_NS_PER_S + (uint64_t)t.tv_nsec;
}

void state_read(struct node_state *s, const char *path)
{
    FILE *f = path ? fopen(path, "r") : NULL;
    uint64_t number[3] = {0, 0, 0};
    char text[96] = "", *at = text;
    uint32_t k;
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        for (k = 0; k < 3; k++)
            number[k] = strtoull(at, &at, 10);
        if (*at != '\n')
            tool_die(TOOL_FAILED, "%s: damaged; remove it if no process of this number served in this period", path);
    }
    s->path = path;
    s->kept = false;
    s->epoch = qos_max(number[0] + 1, wall_ns() / 1000000);
    s->controller_epoch = number[1];
    s->period = number[2];
}

void state_keep(struct node_state *s, const struct pshift_agent *agent)
{
    struct pshift_agent_state now;
    char path[512], text[96];
    int file, length;
    (void)pshift_agent_info(agent, &now);
    if (!s->path || (s->kept && now.controller_epoch == s->controller_epoch && now.period == s->period))
        return;
    s->kept = true;
    s->controller_epoch = now.controller_epoch;
    s->period = now.period;
    snprintf(path, sizeof path, "%s.new", s->path);
    length =
        snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", s->epoch, s->controller_epoch, s->period);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || write(file, text, (size_t)length) != length || fdatasync(file) != 0 || close(file) != 0 ||
        rename(path, s->path) != 0)
        tool_die(TOOL_FAILED, "%s: cannot be written: %s", s->path, strerror(errno));
}
