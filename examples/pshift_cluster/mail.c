// Transport: MPI messages without spinning. Sends are copied and completed later; arrivals are polled.
#include "cluster.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct parcel {
    struct parcel *next;
    MPI_Request request;
    uint64_t data[]; /* aligned for words */
};

static struct parcel *on_the_way;
static uint64_t *inbox;
static size_t inbox_bytes;
static int my_rank, all_ranks;

static void at_the_end(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (!done)
        MPI_Finalize();
}

void mail_open(int *argc, char ***argv)
{
    if (MPI_Init(argc, argv) != MPI_SUCCESS)
        tool_die(TOOL_FAILED, "MPI does not start");
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &all_ranks);
    atexit(at_the_end);
}

int mail_rank(void)
{
    return my_rank;
}

int mail_ranks(void)
{
    return all_ranks;
}

static void tidy_up(void)
{
    struct parcel **at = &on_the_way;
    while (*at) {
        struct parcel *p = *at;
        int done = 0;
        MPI_Test(&p->request, &done, MPI_STATUS_IGNORE);
        if (done) {
            *at = p->next;
            free(p);
        } else {
            at = &p->next;
        }
    }
}

static bool is_words(int tag)
{
    return tag < MAIL_REPORT && tag != MAIL_TROUBLE && tag != MAIL_NOTE && tag != MAIL_GRANT && tag != MAIL_GRANT_ASK;
}

static void mpi_send(int rank, int tag, const void *data, size_t bytes)
{
    struct parcel *p = tool_alloc(sizeof *p + bytes + 8);
    tidy_up();
    if (bytes)
        memcpy(p->data, data, bytes);
    if (is_words(tag))
        MPI_Isend(p->data, (int)(bytes / 8), MPI_UINT64_T, rank, tag, MPI_COMM_WORLD, &p->request);
    else
        MPI_Isend(p->data, (int)bytes, MPI_BYTE, rank, tag, MPI_COMM_WORLD, &p->request);
    p->next = on_the_way;
    on_the_way = p;
}

static bool mpi_take(struct mail *m)
{
    MPI_Status st;
    int some = 0, count = 0;
    if (on_the_way)
        tidy_up();
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &some, &st);
    if (!some)
        return false;
    MPI_Get_count(&st, is_words(st.MPI_TAG) ? MPI_UINT64_T : MPI_BYTE, &count);
    m->rank = st.MPI_SOURCE;
    m->tag = st.MPI_TAG;
    m->bytes = (size_t)count * (is_words(m->tag) ? 8 : 1);
    if (m->bytes + 1 > inbox_bytes) {
        inbox_bytes = m->bytes + 4096;
        inbox = tool_grow(inbox, inbox_bytes);
    }
    if (is_words(m->tag))
        MPI_Recv(inbox, count, MPI_UINT64_T, m->rank, m->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Recv(inbox, count, MPI_BYTE, m->rank, m->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    ((char *)inbox)[m->bytes] = 0; /* ends a text */
    m->data = inbox;
    return true;
}

static void mpi_flush(void)
{
    const struct timespec nap = {0, 200000};
    while (on_the_way) {
        tidy_up();
        if (on_the_way)
            nanosleep(&nap, NULL);
    }
}

static const struct transport mpi = {mpi_send, mpi_take, mpi_flush};
const struct transport *transport = &mpi;
