/* tokenpool_mpi - Haechi over MPI one-sided operations: MPI_Get for records, MPI_Fetch_and_op for claims, MPI_Put for
 * reports. Rank 0 is the data node, every other rank a client. It runs on any fabric that the MPI library supports.
 *
 * With Open MPI 4.1: osc=sm (all ranks on one host) and osc=ucx progress by themselves; osc=pt2pt and osc=rdma need the
 * data node to call into MPI, which its monitor does every 0.1 ms (MPI_Iprobe), or with --busy all the time. osc=rdma
 * over btl=vader, the default of 4.1.4, crashes at the first MPI_Get from another rank's memory. It is excluded unless
 * the user chooses a component. */
// compiler: mpicc
#include "examples/tokenpool_common/node.h"
#include <mpi.h>

struct mpi_link {
    struct node_link link;
    MPI_Win window;
    uint64_t base; /* of the region in the window: MPI does not align to cache lines */
    bool node;
};

static bool said(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (rc == MPI_SUCCESS)
        return true;
    MPI_Error_string(rc, text, &n);
    tool_warn("%s: %.*s", what, n, text);
    return false;
}

static bool mpi_op(struct node_link *l, const struct tokenpool_op *op, uint64_t *answer)
{
    MPI_Win w = ((struct mpi_link *)l)->window;
    MPI_Aint at = (MPI_Aint)(((struct mpi_link *)l)->base + op->offset_bytes);
    uint64_t operand = op->operand, compare = op->compare, old = 0;
    int rc;
    switch (op->kind) {
    case TOKENPOOL_READ: rc = MPI_Fetch_and_op(&operand, &old, MPI_UINT64_T, 0, at, MPI_NO_OP, w); break;
    case TOKENPOOL_WRITE: rc = MPI_Put(&operand, 1, MPI_UINT64_T, 0, at, 1, MPI_UINT64_T, w); break;
    case TOKENPOOL_FETCH_ADD: rc = MPI_Fetch_and_op(&operand, &old, MPI_UINT64_T, 0, at, MPI_SUM, w); break;
    default: rc = MPI_Compare_and_swap(&operand, &compare, &old, MPI_UINT64_T, 0, at, w); break;
    }
    if (rc == MPI_SUCCESS)
        rc = MPI_Win_flush(0, w);
    *answer = old;
    return said(rc, "operation on the data node");
}

static bool mpi_read(struct node_link *l, const uint64_t *offset, unsigned n, void *to)
{
    struct mpi_link *m = (struct mpi_link *)l;
    int rc = MPI_SUCCESS;
    unsigned i;
    for (i = 0; i < n && rc == MPI_SUCCESS; i++)
        rc = MPI_Get((char *)to + i * NODE_RECORD, (int)NODE_RECORD, MPI_BYTE, 0, (MPI_Aint)(m->base + offset[i]),
                     (int)NODE_RECORD, MPI_BYTE, m->window);
    if (rc == MPI_SUCCESS)
        rc = MPI_Win_flush(0, m->window);
    return said(rc, "reading records");
}

static bool busy; /* the data node never sleeps: for components in which the target must make progress */

static void mpi_idle(struct node_link *l, uint64_t until_ns)
{
    struct mpi_link *m = (struct mpi_link *)l;
    uint64_t now_ns = tool_now_ns();
    int flag;
    if (m->node) { /* progress for one-sided accesses to our memory; makes their writes visible to our loads */
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        MPI_Win_sync(m->window);
    }
    if (until_ns > now_ns && !(m->node && busy))
        tool_sleep_until_ns(qos_min(until_ns, now_ns + (m->node ? 100000 : 1000000)));
    else
        sched_yield();
}

int main(int argc, char **argv)
{
    static struct mpi_link mpi = {.link = {.op = mpi_op, .read = mpi_read, .idle = mpi_idle}};
    const struct opt opts[] = {
        NODE_OPTIONS,
        {"busy", OPT_FLAG, &busy, NULL, "the data node polls without pause; for osc=pt2pt and the like", NULL},
        {NULL, OPT_FLAG, NULL, NULL, NULL, NULL},
    };
    struct node_setup *s = &node_options;
    static struct node_log log;
    void *region = NULL;
    int rank, ranks, i, *model, have, status = TOOL_OK;
    /* Open MPI 4.1 picks osc/rdma on one host, whose accumulate crashes; every other component works. */
    setenv("OMPI_MCA_osc", "^rdma", 0);
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        tool_die(TOOL_FAILED, "MPI does not start");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    node_clients = (uint64_t)(ranks > 1 ? ranks - 1 : 1);
    i = opt_parse(argc, argv, opts,
                  "Rank 0 is the data node; the other ranks read its records, and tokens decide how many.",
                  "mpirun -n 5 tokenpool_mpi --periods 3 --table 256M\n");
    if (i < argc)
        tool_die(TOOL_USAGE, "%s: not an option; see --help", argv[i]);
    if (ranks < 2 || node_clients != (uint64_t)ranks - 1)
        tool_die(TOOL_USAGE, "one rank more than clients: mpirun -n 5 for 4 clients");
    node_check_options();
    stop_on_signals();
    mpi.node = rank == 0;
    if (!said(MPI_Win_allocate(rank == 0 ? (MPI_Aint)(node_bytes(s) + NODE_PAGE) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                               &region, &mpi.window),
              "window"))
        MPI_Abort(MPI_COMM_WORLD, TOOL_FAILED);
    MPI_Win_set_errhandler(mpi.window, MPI_ERRORS_RETURN);
    if (MPI_Win_get_attr(mpi.window, MPI_WIN_MODEL, &model, &have) != MPI_SUCCESS || !have || *model != MPI_WIN_UNIFIED)
        tool_die(TOOL_FAILED, "this MPI keeps public and private copies of a window apart; the monitor needs one");
    if (rank == 0) {
        mpi.base = (uint64_t)((NODE_PAGE - ((uintptr_t)region & (NODE_PAGE - 1))) & (NODE_PAGE - 1));
        region = (char *)region + mpi.base;
    }
    MPI_Bcast(&mpi.base, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, mpi.window);
    if (rank == 0) {
        node_fill(s, region);
        MPI_Win_sync(mpi.window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        if (!node_bare(&mpi.link, s, region, &log) || !node_monitor(&mpi.link, s, region, &log, false))
            status = TOOL_FAILED;
        if (status != TOOL_OK)
            node_set_phase(s, region, NODE_STOP);
    } else {
        node_client(&mpi.link, s, (uint32_t)rank - 1);
    }
    { /* the data node stays within MPI until all clients are done; this barrier does not spin on a core */
        MPI_Request r;
        int done = 0;
        MPI_Ibarrier(MPI_COMM_WORLD, &r);
        while (!done) {
            MPI_Test(&r, &done, MPI_STATUS_IGNORE);
            mpi_idle(&mpi.link, tool_now_ns() + 1000000);
        }
    }
    if (rank == 0 && status == TOOL_OK) {
        struct node_verdict v;
        MPI_Win_sync(mpi.window);
        v = node_report(s, region, &log, node_json, node_figures, "tokenpool_mpi");
        status = node_status(&v, log.periods >= s->periods);
    }
    MPI_Win_unlock_all(mpi.window);
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Win_free(&mpi.window);
    MPI_Finalize();
    return status;
}
