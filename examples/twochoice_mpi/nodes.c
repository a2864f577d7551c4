// What all compute nodes do together; node 0 sends the requests.
#include "twochoice_mpi.h"
#include <stdlib.h>
#include <string.h>

struct nodes nodes;

void nodes_open(int rank, int ranks)
{
    nodes.node = (uint32_t)rank - (uint32_t)settings.servers;
    nodes.count = (uint32_t)ranks - (uint32_t)settings.servers;
}

void nodes_gather(const void *mine, size_t bytes, void *all)
{
    link_gather(mine, bytes, all);
    while (!link_gathered())
        if (!client_poll())
            client_wait();
}

void nodes_barrier(void)
{
    uint8_t mine = 0, *all = tool_alloc(nodes.count);
    nodes_gather(&mine, 1, all);
    free(all);
}

uint32_t nodes_tell(enum op op, uint64_t len, struct note *answers)
{
    uint32_t i, failed = 0;
    if (nodes.node != 0)
        return 0;
    for (i = 0; i < settings.servers; i++) {
        struct note n;
        memset(&n, 0, sizeof(uint64_t) * NOTE_HEAD);
        n.op = op;
        n.len = len;
        client_ask(i, &n);
        failed += n.status != ST_OK;
        if (answers)
            memcpy(&answers[i], &n, sizeof(uint64_t) * (NOTE_HEAD + n.words));
    }
    return failed;
}

/* Waits until no server has a request to another under way: a server that ends would leave the other one waiting. */
static void all_rest(void)
{
    struct note *answers = tool_alloc(settings.servers * sizeof *answers);
    uint32_t i, busy = 1;
    while (nodes.node == 0 && busy) {
        nodes_tell(OP_REST, 0, answers);
        for (i = busy = 0; i < settings.servers; i++)
            busy += answers[i].status == ST_NO;
        if (busy)
            client_wait();
    }
    free(answers);
}

void nodes_stop(void)
{
    uint32_t i;
    struct note n;
    all_rest();
    memset(&n, 0, sizeof(uint64_t) * NOTE_HEAD);
    n.op = OP_STOP;
    for (i = 0; i < settings.servers && nodes.node == 0; i++)
        link_send_note((int)i, &n);
}

uint64_t nodes_count(enum count which)
{
    struct note *answers = tool_alloc(settings.servers * sizeof *answers);
    uint64_t sum = 0;
    uint32_t i;
    nodes_tell(OP_COUNTS, 0, answers);
    for (i = 0; i < settings.servers; i++)
        if (answers[i].status == ST_OK && answers[i].words == COUNTS)
            sum += answers[i].word[which];
    free(answers);
    return sum;
}

bool nodes_reset(void)
{
    struct note *answers = tool_alloc(settings.servers * sizeof *answers);
    uint32_t failed = 0, i;
    nodes_barrier();
    all_rest();
    nodes_tell(OP_RESET, 0, answers);
    for (i = 0; i < settings.servers && nodes.node == 0; i++)
        failed += answers[i].status != ST_OK && answers[i].status != ST_DOWN;
    free(answers);
    nodes_barrier();
    return failed == 0;
}
