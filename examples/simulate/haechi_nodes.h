/* haechi_nodes.h - Haechi over several data nodes (the paper's future work). pshift.h splits each client's reservation
 * over the nodes by demand, then each node runs haechi.h with its part. For comparison: equal parts.
 *
 * Three nodes. Clients 0 to 5 reserve 330 K each and want 20 % more, four fifths of it on one node. Clients 6 to 9
 * reserve 50 K each and read from every node as fast as they can.
 */
#ifndef EXAMPLES_HAECHI_NODES_H
#define EXAMPLES_HAECHI_NODES_H

#include "haechi.h"
#include "pshift.h"

enum { HAECHI_NODES = 3, HAECHI_NODES_CLIENTS = 10 };

struct haechi_nodes {
    uint64_t reservation[HAECHI_NODES_CLIENTS], part[HAECHI_NODES_CLIENTS][HAECHI_NODES];
    double got[HAECHI_NODES_CLIENTS]; /* I/Os in a period, at all nodes */
    uint32_t missed;                  /* clients */
};

/* mem as for haechi_run; pshift_mem for 3 servers, 10 buckets, 30 entries. */
static inline bool haechi_nodes_run(struct haechi_nodes *n, bool by_demand, uint32_t periods, void *mem,
                                    void *pshift_mem, size_t pshift_size)
{
    static struct haechi h;
    static struct pshift_solver ps;
    static struct pshift_solution solution;
    const struct pshift_solver_config config = {HAECHI_NODES, HAECHI_NODES_CLIENTS,
                                                HAECHI_NODES * HAECHI_NODES_CLIENTS};
    uint64_t capacity[HAECHI_NODES], demand[HAECHI_NODES * HAECHI_NODES_CLIENTS];
    uint64_t alloc[HAECHI_NODES * HAECHI_NODES_CLIENTS];
    uint32_t row[HAECHI_NODES_CLIENTS + 1], server[HAECHI_NODES * HAECHI_NODES_CLIENTS], i, j;
    uint8_t cut[HAECHI_NODES];
    struct pshift_problem p = {HAECHI_NODES, HAECHI_NODES_CLIENTS, capacity, n->reservation, row, server, demand};
    memset(n, 0, sizeof *n);
    for (i = 0; i < HAECHI_NODES_CLIENTS; i++) {
        n->reservation[i] = i < 6 ? 330000 : 50000;
        row[i] = HAECHI_NODES * i;
        for (j = 0; j < HAECHI_NODES; j++) {
            uint32_t at = HAECHI_NODES * i + j;
            capacity[j] = (uint64_t)HAECHI_C_G;
            server[at] = j;
            demand[at] = i >= 6 ? 400000 : i % HAECHI_NODES == j ? 317000 : 39500;
            alloc[at] = n->reservation[i] / HAECHI_NODES;
        }
    }
    row[i] = HAECHI_NODES * i;
    if (by_demand) {
        memset(&solution, 0, sizeof solution);
        solution.alloc = alloc;
        solution.cut = cut;
        if (pshift_solver_init(&ps, pshift_mem, pshift_size, &config) != QOS_OK ||
            pshift_solver_solve(&ps, &p, NULL, &solution) != QOS_OK ||
            pshift_solver_verify(&ps, &p, &solution) != QOS_OK)
            return false;
    }
    for (j = 0; j < HAECHI_NODES; j++) {
        haechi_base(&h, periods);
        h.flags = TOKENPOOL_FIXED | TOKENPOOL_GUARD;
        for (i = 0; i < HAECHI_NODES_CLIENTS; i++) {
            h.reservation[i] = n->part[i][j] = alloc[HAECHI_NODES * i + j];
            h.demand[i] = demand[HAECHI_NODES * i + j];
        }
        if (!haechi_run(&h, mem))
            return false;
        for (i = 0; i < HAECHI_NODES_CLIENTS; i++)
            n->got[i] += haechi_mean_of(&h, i, 1);
    }
    for (i = 0; i < HAECHI_NODES_CLIENTS; i++)
        n->missed += n->got[i] < (double)n->reservation[i];
    return true;
}

#endif
