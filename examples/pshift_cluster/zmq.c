// Transport: the links of examples/cluster_agent between the processes that the command line names. Their keys are in files.
#include "cluster.h"
#include "../cluster_agent/links.h"
#include <errno.h>
#include <string.h>

static bool controls;
static char address[CONTROLLERS_MAX][LINKS_ADDRESS];

static const char *name_of(const char *who, uint64_t number)
{
    static char name[40];
    snprintf(name, sizeof name, "%s-%" PRIu64, who, number);
    return name;
}

static uint32_t split_addresses(void)
{
    const char *at = settings.controllers;
    uint32_t n = 0;
    while (at && *at) {
        size_t length = strcspn(at, ",");
        if (n == CONTROLLERS_MAX || length >= sizeof address[0])
            tool_die(TOOL_USAGE, "--controllers: at most %d addresses", CONTROLLERS_MAX);
        snprintf(address[n++], sizeof address[0], "%.*s", (int)length, at);
        at += length + (at[length] == ',');
    }
    return n;
}

int zmq_make_keys(void)
{
    uint32_t n = split_addresses(), k, made = 0;
    if (!plot_mkdir(settings.keys))
        tool_die(TOOL_FAILED, "%s: cannot be created", settings.keys);
    for (k = 1; k <= n; k++)
        made += links_make_keys(settings.keys, name_of("controller", k));
    for (k = 1; k <= settings.nodes; k++)
        made += links_make_keys(settings.keys, name_of("node", k));
    printf("keys of %u controllers and %u nodes are in %s, %u of them new; give each process its own secret and the "
           "public "
           "ones\n",
           n, settings.nodes, settings.keys, made);
    return TOOL_OK;
}

static void zmq_put(int rank, int tag, const void *data, size_t bytes)
{
    links_send((uint32_t)(controls ? rank - 1 : rank), tag, data, bytes);
}

static bool zmq_take(struct mail *m)
{
    struct links_mail got;
    if (!links_take(&got))
        return false;
    *m = (struct mail){(int)got.from + controls, got.tag, got.bytes, got.data};
    return true;
}

static const struct transport zeromq = {zmq_put, zmq_take, links_push};

void zmq_open_node(void)
{
    char public_key[LINKS_KEY], secret_key[LINKS_KEY];
    uint32_t n = split_addresses(), k;
    links_read_key(public_key, settings.keys, name_of("node", settings.number), "public");
    links_read_key(secret_key, settings.keys, name_of("node", settings.number), "secret");
    links_join(public_key, secret_key);
    for (k = 0; k < n; k++) {
        links_read_key(public_key, settings.keys, name_of("controller", k + 1), "public");
        if (!links_reach(k, address[k], public_key))
            tool_die(TOOL_USAGE, "--controllers: %s is no address", address[k]);
    }
    transport = &zeromq;
}

void zmq_open_controller(void)
{
    char key[LINKS_KEY];
    uint32_t k;
    controls = true;
    if (settings.number > split_addresses())
        tool_die(TOOL_USAGE, "--controllers: it names no controller %" PRIu64, settings.number);
    links_read_key(key, settings.keys, name_of("controller", settings.number), "secret");
    links_serve(address[settings.number - 1], key, settings.nodes);
    for (k = 0; k < settings.nodes; k++) {
        links_read_key(key, settings.keys, name_of("node", k + 1), "public");
        links_admit(k, key);
    }
    transport = &zeromq;
}
