// MPI without waiting: operations are started, and link_poll tests for their end. Idle ranks sleep.
#include "twochoice_mpi.h"
#include <mpi.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { TAG_NOTE = 1, TAG_MESSAGE = 2, TAG_DATA = 16, TAG_DATA_MASK = 0xffff };

/* Operations that MPI has not completed. */
static struct sending {
    void *copy; /* freed here when it is done */
    bool *done;
} * sending;
static MPI_Request *request;
static int *ended;
static size_t active, room;
static MPI_Comm control = MPI_COMM_NULL; /* for notes and messages; data goes over the world's */

static void must(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (rc == MPI_SUCCESS)
        return;
    MPI_Error_string(rc, text, &n);
    tool_warn("MPI, %s: %.*s", what, n, text);
    MPI_Abort(MPI_COMM_WORLD, TOOL_FAILED);
}

void link_open(int *argc, char ***argv, int *rank, int *ranks)
{
    if (MPI_Init(argc, argv) != MPI_SUCCESS)
        tool_die(TOOL_FAILED, "MPI does not start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    must(MPI_Comm_dup(MPI_COMM_WORLD, &control), "starting");
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
}

/* At the end: waits for all ranks without spinning. */
void link_close(void)
{
    static const struct link_handler nobody;
    MPI_Request all;
    int done = 0;
    uint32_t idle = 0;
    while (link_sending()) {
        link_poll(&nobody);
        link_nap(idle++, -1);
    }
    must(MPI_Ibarrier(MPI_COMM_WORLD, &all), "ending");
    while (!done) {
        must(MPI_Test(&all, &done, MPI_STATUS_IGNORE), "ending");
        link_nap(idle++, -1);
    }
    free(sending);
    free(request);
    free(ended);
    MPI_Finalize();
}

static size_t new_request(void *copy, bool *done)
{
    if (active == room) {
        room = room ? room * 2 : 64;
        sending = tool_grow(sending, room * sizeof *sending);
        request = tool_grow(request, room * sizeof(MPI_Request));
        ended = tool_grow(ended, room * sizeof *ended);
    }
    sending[active].copy = copy;
    sending[active].done = done;
    return active++;
}

void link_send_note(int to, const struct note *n)
{
    size_t words = NOTE_HEAD + n->words, i;
    uint64_t *copy = tool_alloc(words * sizeof *copy);
    memcpy(copy, n, words * sizeof *copy);
    i = new_request(copy, NULL);
    must(MPI_Isend(copy, (int)words, MPI_UINT64_T, to, TAG_NOTE, control, &request[i]), "sending a note");
}

void link_send_message(int to, const struct twochoice_message *m)
{
    size_t len = 0, i;
    void *copy = tool_alloc(TWOCHOICE_MESSAGE_BYTES);
    enum qos_status st = twochoice_message_encode(m, copy, TWOCHOICE_MESSAGE_BYTES, &len);
    if (st != QOS_OK)
        tool_die(TOOL_FAILED, "message to %d: %s", to, qos_strerror((int)st));
    i = new_request(copy, NULL);
    must(MPI_Isend(copy, (int)len, MPI_BYTE, to, TAG_MESSAGE, control, &request[i]), "sending a message");
}

static int data_tag(uint64_t id)
{
    return TAG_DATA + (int)(id & TAG_DATA_MASK);
}

void link_send_data(int to, uint64_t id, const void *data, size_t len, bool *done)
{
    size_t i = new_request(NULL, done);
    *done = false;
    must(MPI_Isend(data, (int)len, MPI_BYTE, to, data_tag(id), MPI_COMM_WORLD, &request[i]), "sending data");
}

void link_receive_data(int from, uint64_t id, void *data, size_t len, bool *done)
{
    size_t i = new_request(NULL, done);
    *done = false;
    must(MPI_Irecv(data, (int)len, MPI_BYTE, from, data_tag(id), MPI_COMM_WORLD, &request[i]), "receiving data");
}

static MPI_Comm node_comm = MPI_COMM_NULL;
static MPI_Request gathering = MPI_REQUEST_NULL;

void link_split(bool node)
{
    must(MPI_Comm_split(MPI_COMM_WORLD, node ? 1 : 0, 0, &node_comm), "splitting the ranks");
}

void link_gather(const void *mine, size_t bytes, void *all)
{
    must(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, node_comm, &gathering), "gathering");
}

bool link_gathered(void)
{
    int done = 0;
    must(MPI_Test(&gathering, &done, MPI_STATUS_IGNORE), "gathering");
    return done != 0;
}

bool link_sending(void)
{
    return active != 0;
}

static bool poll_ended(void)
{
    int n = 0, i;
    if (active == 0)
        return false;
    must(MPI_Testsome((int)active, request, &n, ended, MPI_STATUSES_IGNORE), "transfers");
    if (n <= 0)
        return false;
    for (i = 0; i < n; i++) {
        struct sending *s = &sending[ended[i]];
        if (s->done)
            *s->done = true;
        free(s->copy);
    }
    for (i = 0; i < (int)active;) { /* completed ones are MPI_REQUEST_NULL now */
        if (request[i] != MPI_REQUEST_NULL) {
            i++;
            continue;
        }
        active--;
        request[i] = request[active];
        sending[i] = sending[active];
    }
    return true;
}

static void take_note(const struct link_handler *h, MPI_Message *message, const MPI_Status *probed)
{
    struct note n;
    MPI_Status status;
    int words = 0;
    MPI_Get_count(probed, MPI_UINT64_T, &words);
    must(MPI_Mrecv(&n, (int)(sizeof n / sizeof(uint64_t)), MPI_UINT64_T, message, &status), "receiving a note");
    if (words < (int)NOTE_HEAD || n.words > NOTE_WORDS || (uint64_t)words != NOTE_HEAD + n.words)
        tool_warn("rank %d sent something that is no note; ignored", probed->MPI_SOURCE);
    else if (h->note)
        h->note(h->ctx, probed->MPI_SOURCE, &n);
}

static void take_message(const struct link_handler *h, MPI_Message *message, const MPI_Status *probed)
{
    uint8_t buf[TWOCHOICE_MESSAGE_BYTES];
    struct twochoice_message m;
    MPI_Status status;
    enum qos_status st;
    int len = 0;
    MPI_Get_count(probed, MPI_BYTE, &len);
    must(MPI_Mrecv(buf, (int)sizeof buf, MPI_BYTE, message, &status), "receiving a message");
    st = twochoice_message_decode(buf, (size_t)len, &m);
    if (st != QOS_OK)
        tool_warn("rank %d sent something that is no message: %s; ignored", probed->MPI_SOURCE, qos_strerror((int)st));
    else if (h->message)
        h->message(h->ctx, probed->MPI_SOURCE, &m);
}

/* Notes and messages of one sender in the order in which they were sent: the write that a decision announces must not
 * overtake it, or that write would be expected once more. */
static bool poll_control(const struct link_handler *h)
{
    MPI_Message message;
    MPI_Status status;
    int there = 0;
    must(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, control, &there, &message, &status), "looking for messages");
    if (!there)
        return false;
    if (status.MPI_TAG == TAG_NOTE)
        take_note(h, &message, &status);
    else
        take_message(h, &message, &status);
    return true;
}

bool link_poll(const struct link_handler *h)
{
    bool any = poll_ended();
    uint32_t i;
    for (i = 0; i < 64 && poll_control(h); i++)
        any = true;
    return any;
}

/* After an event another one is likely: polls twice, then sleeps 50 us, in the end 2 ms. */
void link_nap(uint32_t idle_rounds, int fd)
{
    struct timespec t = {0, 50000};
    struct pollfd p = {.fd = fd, .events = POLLIN, .revents = 0};
    if (idle_rounds < 2) {
        sched_yield();
        return;
    }
    if (idle_rounds > 2000)
        t.tv_nsec = 2000000;
    else if (idle_rounds > 200)
        t.tv_nsec = 250000;
    if (fd >= 0)
        ppoll(&p, 1, &t, NULL);
    else
        nanosleep(&t, NULL);
}
