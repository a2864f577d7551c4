/* gate.h - shared by the parts of memcached_gate.
 *
 *     main.c      options and the settings file
 *     gate.c      workers: one thread for each core, epoll, listeners, the order of a turn
 *     client.c    a client's connection: its requests are read one after the other, its replies are written
 *     protocol.c  the text protocol: one line, or one key of a get, at a time
 *     backend.c   a worker's connections to memcached, one for each bucket: requests go out in a pipeline, replies come
 *                 back in order and are checked
 *     buckets.c   classifies requests; schedules them (tags.h, or pshift.h in a cluster); statistics
 *     metrics.c   statistics: as text, for Prometheus, over HTTP
 *     agent.c     with a cluster: a node of it, by cluster_agent
 *
 *     client --> its bucket's queue --> granted --> memcached --> reply --> client
 *
 * 1. A client has at most one request in a queue and WINDOW_REQUESTS at memcached, all on one connection: a request of
 *    another bucket waits until they have come back. So its requests stay in order, and it holds at most one request and
 *    WINDOW_REQUESTS replies in memory. It is not read further meanwhile, so TCP slows it down. A get of many keys is a
 *    request for each key.
 * 2. tags.h picks. Requests by reservation are sent at once, others while there is room at memcached (--depth, and 4 MiB as
 *    far as replies can be foreseen).
 * 3. A request is forwarded only if all of it can be parsed; others are answered here, in memcached's words. noreply and q
 *    are cut out, and the reply is dropped.
 * 4. A connection to memcached never changes its bucket. Each line of a reply is compared with its request: one that the
 *    command can have, with the key (get, k) and the opaque (meta commands; the gate adds one). If it does not fit, or is an
 *    error that a valid request cannot get, the connection ends. So if memcached and the gate ever disagree about where a
 *    reply ends, only clients of that bucket see it, and only until the next reply that does not fit.
 * 5. A reply is read at once. If its client does not read, it stops, and what is above BLOCK_BYTES is charged to its bucket.
 */
#ifndef MEMCACHED_GATE_H
#define MEMCACHED_GATE_H

#include "agent.h"
#include "common.h"
#include "qos.h"
#include "tags.h"
#include <netinet/in.h>
#include <pthread.h>

#define LINE_BYTES_MAX 2048 /* as in memcached; a get may be longer */
#define KEY_BYTES_MAX 250
#define OPAQUE_BYTES_MAX 32 /* with its letter O */
#define WINDOW_REQUESTS 32  /* of one client at memcached */
#define BLOCK_BYTES 8192    /* a client's buffer of this size is not charged to its bucket */
#define BUCKETS_LIMIT 1024
#define LISTENERS_MAX 64
#define DEPTH_MAX 4096

/* ---- main.c ------------------------------------------------------------------------------------------- */

enum policy { POLICY_PS, POLICY_REWARD };

struct gate_settings {
    const char *memcached, *stats_file, *metrics;
    uint64_t patience_ns, idle_ns; /* idle: 0: no limit */
    uint64_t drain_ns;
    uint64_t threads, clients_max, connections_max, depth, memory_bytes, value_bytes_max, burst_ns, timeout_ns;
    int policy;
    bool allow_flush;
};
extern struct gate_settings gate_settings;
/* On SIGHUP: reads all settings again. A child process tries them first; if they are wrong, it says why, and nothing changes. */
void settings_again(void);

/* ---- protocol.c --------------------------------------------------------------------------------------- */

enum reply_kind {
    REPLY_WORD,       /* a line of one word */
    REPLY_LINE,       /* a line that begins with one of the words */
    REPLY_NUMBER,     /* a word, or a number */
    REPLY_VALUES,     /* a VALUE line with its data, or none; then END */
    REPLY_VALUES_CAS, /* the same, with a number more in the line */
    REPLY_META,       /* a line with flags; data follows if it begins with VA */
    REPLY_DEBUG,      /* a line with the key */
    REPLY_STATS       /* STAT lines, then a word */
};
struct shape { /* of a command's reply */
    const char *name;
    enum reply_kind kind;
    const char *words, *errors; /* errors: whole lines */
};
extern const struct shape protocol_unlink;

enum head_kind {
    HEAD_MORE,      /* the line is incomplete */
    HEAD_REQUEST,   /* goes to memcached */
    HEAD_KEYS,      /* a get; its keys follow, each a request */
    HEAD_ANSWER,    /* answered here, with `answer` */
    HEAD_STATS_QOS, /* answered here */
    HEAD_CLOSE      /* as HEAD_ANSWER, then the connection ends; without an answer: quit */
};

/* One request, without its data. Offsets count from the first parsed byte. */
struct head {
    enum head_kind kind;
    const struct shape *shape;
    bool of_get;
    bool quiet;          /* noreply: nothing of the reply is shown */
    bool server_wide;    /* concerns every bucket of this memcached */
    bool refuse_unlinks; /* memcached removes the old value when it cannot store the new one */
    bool base64;         /* of the key */
    bool last;           /* the last key of a get */
    bool swallow_line;   /* ignore the remainder of the line */
    uint32_t bytes;      /* the line, or the key and the spaces before it */
    uint32_t text_bytes; /* the line without its end */
    uint32_t key_at, key_bytes;
    uint32_t opaque_at, opaque_bytes;
    uint64_t letters;           /* of a meta command's flags; see protocol_letter */
    uint32_t cut_at, cut_bytes; /* noreply or q is removed: memcached always replies, so that replies can be counted */
    uint64_t data_bytes;        /* value and its end; 0: none */
    uint32_t length_at, length_bytes; /* where the line says so, if not in plain digits, as it is sent */
    const char *hide;                 /* of a quiet meta command: the replies not shown, "HD VA" or "EN" */
    const char *answer;               /* without the end of the line */
};

/* Parses the request at the start of data. Reads nothing beyond bytes; keeps no state. */
void protocol_line(const char *data, size_t bytes, struct head *h);
/* The next key of a get. first: the first key. */
void protocol_key(const char *data, size_t bytes, bool first, struct head *h);
/* The key as memcached knows it: base64 is decoded into text. 0: invalid base64. */
size_t protocol_key_text(const char *data, const struct head *h, char text[KEY_BYTES_MAX]);
uint64_t protocol_letter(char c); /* a bit for each; 0: no letter */

/* What a reply must have in common with its request. */
struct tie {
    const struct shape *shape;
    uint64_t letters;
    uint32_t key_bytes, opaque_bytes;
    bool own_opaque; /* the gate's */
    char opaque[OPAQUE_BYTES_MAX], key[KEY_BYTES_MAX];
};
struct reply {
    bool error; /* one that the command may have */
    bool more;  /* another line follows, after the body */
    uint64_t body_bytes;
    uint32_t strip_at, strip_bytes; /* the gate's opaque, with the space before it */
};
/* Reads a line, with its end. False: it is no reply to this request. */
bool protocol_reply(const struct tie *tie, const char *line, size_t bytes, struct reply *r);
/* A number, of digits only, up to `most`. */
bool protocol_number(const char *at, size_t bytes, uint64_t most, uint64_t *value);

/* ---- buckets.c ---------------------------------------------------------------------------------------- */

struct bucket_spec {
    char name[64], prefix[KEY_BYTES_MAX + 1];
    bool has_from;
    uint8_t from[16]; /* an address, IPv4 as ::ffff:a.b.c.d */
    uint32_t from_bits;
    uint64_t port;
    struct tags_client terms;
    char where[128]; /* file and line of its settings; "": the command line */
    /* A bucket that new settings no longer have keeps its number until nothing of it is left. */
    enum { BUCKET_LIVE, BUCKET_REMOVED, BUCKET_FREE } state;
};
/* Workers read these without a lock; they change while all workers are paused. */
extern struct bucket_spec bucket_spec[BUCKETS_LIMIT];
extern uint32_t bucket_count, bucket_other; /* numbers in use; other: the bucket of all clients without a bucket */

struct client;
struct worker;
struct grant { /* the right to send one request */
    uint32_t bucket;
    uint64_t asked_ns;           /* when it was queued */
    uint64_t bytes, reply_bytes; /* expected of the request and its reply; of the reply alone */
    struct tags_grant tags;
};
enum outcome { OUTCOME_DONE, OUTCOME_FAILED, OUTCOME_NOT_SENT, OUTCOME_ANSWERED }; /* answered: here, and charged */
struct done {
    struct grant grant;
    enum outcome outcome;
    uint64_t bytes; /* of the reply */
};

void buckets_open(void);
/* New settings, while all workers are paused: buckets are the same if their names are. */
void buckets_change(const struct bucket_spec *spec, uint32_t count, uint32_t other);
/* The bucket of the key's longest prefix; else the connection's. A bucket with a port or an address has its prefix for
 * its own connections only. */
uint32_t bucket_of_key(const char *key, size_t bytes, uint32_t of_connection);
uint32_t bucket_of_connection(uint32_t port_bucket, const struct sockaddr_storage *from);
/* Memory above BLOCK_BYTES is charged to a bucket: each has an equal share. */
bool bucket_charge(uint32_t bucket, uint64_t bytes, bool force);
bool bucket_over(uint32_t bucket); /* holds more than its share */
void bucket_uncharge(uint32_t bucket, uint64_t bytes);
enum refused { REFUSED_MEMORY, REFUSED_PLACES, REFUSED_IDLE, REFUSED_DOWN, REFUSED_REASONS };
void bucket_refused(uint32_t bucket, enum refused why);
/* A place for one more connection. If buckets have ports or addresses, a bucket may hold at most as many places as it
 * leaves free. */
bool bucket_enter(uint32_t bucket);
void bucket_exit(uint32_t bucket);
bool buckets_several(void);                   /* more than one */
void bucket_move(uint32_t from, uint32_t to); /* a connection, with its place */
/* Accounts for this worker's turn, then grants while there is room at memcached, to clients of other workers too. Sets
 * the time of this worker's next check. True: it has grants, or may get some. */
bool buckets_turn(struct worker *w);

#define TIME_STEPS 32 /* step k: below 2^k us */
struct times {
    uint64_t step[TIME_STEPS], sum_ns;
};
struct bucket_stats {
    struct bucket_spec spec;
    uint64_t waiting, requests, reserved, failed, memory_bytes, clients;
    uint64_t backlog_ns, chances; /* time, and grants to any bucket, while a request of it waited */
    uint64_t emptied;             /* how often the last waiting request was sent */
    uint64_t refused[REFUSED_REASONS];
    struct times wait, latency; /* from arrival to grant; to the reply */
    const char *waits_for;
};
struct gate_stats {
    uint64_t now_ns;
    uint32_t at_memcached;
};
void buckets_look(struct bucket_stats *out, struct gate_stats *all); /* out: [bucket_count] */

/* ---- metrics.c ---------------------------------------------------------------------------------------- */

/* Statistics as the lines of `stats`, or for Prometheus. The caller frees it. */
char *metrics_text(bool prometheus, size_t *bytes);
extern pthread_mutex_t metrics_lock; /* held while buckets change */
/* Serves them over HTTP, from a thread of its own. */
void metrics_listen(const char *address);

/* ---- client.c ----------------------------------------------------------------------------------------- */

struct buffer {
    char *data;
    size_t size, begin, end;
    uint64_t charged; /* to payer */
    uint32_t payer;
};

enum source_kind { SOURCE_CLIENT, SOURCE_BACKEND, SOURCE_LISTENER, SOURCE_WAKE, SOURCE_TICK };
struct source { /* epoll's data pointer; first member of each source */
    enum source_kind kind;
    int fd;
};

enum client_state {
    CLIENT_LINE,  /* a line is next */
    CLIENT_KEYS,  /* the next key of a get is next */
    CLIENT_DATA,  /* the head has been read, its data not yet */
    CLIENT_ORDER, /* its earlier requests are at another bucket's connection: waits for their replies */
    CLIENT_QUEUE, /* waits for its grant */
    CLIENT_SAY,   /* to be answered here, after memcached's earlier replies */
    CLIENT_SWALLOW,
    CLIENT_CLOSE /* after the last reply */
};

struct client {
    struct source source;
    struct worker *worker;
    struct client *next, *prev;                                   /* in its bucket's queue; under the lock */
    struct client *next_granted;                                  /* under the lock, until the worker takes the list */
    struct client *after, *ahead;                                 /* in the worker's list of all clients */
    struct client *next_run, *next_dirty, *next_left, *next_dead; /* lists of the worker */
    enum client_state state;
    bool readable, writable, running, dirty, queued, gone, closing, ended, dead;
    bool get_first, get_failed;   /* no key read yet; an error has ended the get's replies */
    bool answers;                 /* the request that waits for its grant is answered here */
    bool held_back;               /* it must read its replies first */
    uint32_t bucket;              /* of the connection */
    uint32_t in_a_row;            /* requests granted since it had none waiting */
    uint32_t at_bucket;           /* of the connection to memcached that its outstanding requests are on */
    uint32_t outstanding, window; /* window: most at memcached; 1 for large replies */
    struct head head;
    struct grant grant;
    const struct shape *get_shape;
    char lead[32]; /* of a get: the text before each key */
    uint32_t lead_bytes;
    uint64_t swallow_bytes;    /* to skip; then, with head.swallow_line, the line */
    uint64_t turn, read_bytes; /* read in that turn */
    uint64_t half_ns, unread_ns,
        active_ns;    /* since when half a request is here, a reply is not taken; 0: not. Last byte */
    uint64_t room_ns; /* since when its half request waits for memory that other workers' clients hold; 0: not */
    uint32_t payer;   /* of its half request's data */
    struct buffer in, out;
};

void client_open(struct worker *w, int fd, uint32_t bucket);
/* Closes those of a part of the worker's clients that have done nothing for too long. */
void clients_tick(struct worker *w);
/* Closes a half request that holds memory which another worker's client needs; runs those here that waited for it. */
void clients_make_room(struct worker *w);
/* While the gate ends: closes those that wait for nothing. */
void clients_leave(struct worker *w);
/* New settings, while the worker is paused: finds their buckets again. */
void clients_sort(struct worker *w);
bool clients_use(const struct worker *w, uint32_t bucket);
void client_event(struct client *c, uint32_t events);
void client_run(struct client *c);
void client_granted(struct client *c);
/* The same for a small request of this worker's client, under the lock. True: its next one waits for its grant. */
bool client_is_small(const struct client *c);
bool client_granted_small(struct client *c);
void client_flush(struct client *c);
/* Makes room for `bytes` in all. A buffer larger than a block is charged to the bucket that needed it first. force:
 * even above the bucket's share. */
bool buffer_grow(struct worker *w, struct buffer *b, uint32_t payer, size_t bytes, bool force);
void buffer_release(struct worker *w, struct buffer *b);
size_t buffer_held(const struct buffer *b);

/* False: no room; nothing was appended. */
bool client_room(struct client *c, uint32_t payer, size_t bytes);
void client_append(struct client *c, const char *data, size_t bytes);
void client_gone(struct client *c);
void client_replied(struct client *c); /* one request fewer at memcached */

/* ---- backend.c ---------------------------------------------------------------------------------------- */

struct request { /* at memcached */
    struct client *client;
    struct grant grant;
    uint64_t sent_ns;
    const char *hide, *instead; /* instead: shown instead of the reply */
    bool quiet, of_get;
    bool first, last; /* the first or last key of a get; the END of the last one's reply ends all of them */
    bool seen;        /* its first line has arrived */
    bool value_seen;
    uint64_t bytes; /* of the reply, so far */
    bool mute;      /* nothing more of this reply is shown */
    bool inside;    /* part of a value was shown */
    struct tie tie;
};

/*     DOWN --[a request, or the probe, after RETRY_NS]--> CONNECTING --[connected]--> UP
 *     any state --[error, late, a reply that does not fit]--> DOWN; what was on it fails */
enum backend_state { BACKEND_DOWN, BACKEND_CONNECTING, BACKEND_UP };
struct backend { /* a connection of one worker to memcached, for the requests of one bucket */
    struct source source;
    struct worker *worker;
    uint32_t bucket;
    enum backend_state state;
    uint64_t retry_ns;
    struct buffer out;
    char *partial; /* the start of a line, in a block */
    size_t partial_bytes;
    uint64_t body_bytes;  /* of a value, still to come */
    struct request *ring; /* [ring_size], a power of two */
    uint32_t ring_size, first, count;
    uint32_t opaque;                 /* of the last meta command */
    struct client *held, *held_last; /* granted; waits for the connection, or for room in `out` */
    bool dirty, readable;
    bool ending; /* memcached has closed it; what it sent before is still read */
    struct backend *next_dirty, *next_readable;
};

void backend_open(struct worker *w); /* the worker's first one, which tells whether memcached is there */
void backend_event(struct backend *b, uint32_t events);
/* Can a small request be sent at once? */
bool backend_ready(const struct worker *w, uint32_t bucket);
/* Sends the client's granted request now, or when its connection takes it; if that is down, the client gets an error. */
void backend_grant(struct worker *w, struct client *c);
/* Takes the client's head and data. The connection is up. */
void backend_send(struct worker *w, struct client *c);
void backend_flush(struct worker *w);
void backend_read(struct worker *w); /* what the last turn left unread */
/* Reconnects; drops requests that took too long. late_ns: since this call was due. */
void backend_tick(struct worker *w, uint64_t late_ns);
bool backend_used(const struct worker *w, uint32_t bucket);
void backend_drop(struct worker *w, uint32_t bucket); /* one that is not used */

/* ---- gate.c ------------------------------------------------------------------------------------------- */

struct worker {
    struct source wake, tick;
    pthread_t thread;
    uint32_t number;
    int epoll;
    uint32_t clients; /* atomic */
    uint64_t now_ns;
    bool sleeping;    /* atomic */
    uint64_t look_ns; /* time of the next check, at the latest */
    uint64_t turns;
    bool granting;                         /* holds the lock */
    struct qos_bucket free_stats;          /* `stats qos` requests that are not charged */
    struct client *granted, *granted_last; /* under the lock */
    struct client *mine;                   /* granted, taken from that list */
    struct client *arrived, *left;         /* since the last turn */
    struct client *run, *dirty, *dead;
    struct client *later, *later_last; /* clients that have read enough in this turn */
    struct client *all, *next_looked;  /* clients; where clients_tick goes on */
    uint64_t evicted_ns;
    bool room_asked;         /* a client of this worker waits for memory that clients of other workers hold */
    uint32_t room_seen;      /* how often others had made room when it looked last */
    uint64_t room_looked_ns; /* when that was */
    struct done *done;
    uint32_t done_count, done_size;
    struct spare *spare;                    /* blocks that are free */
    struct backend *backend[BUCKETS_LIMIT]; /* by bucket; NULL: never used */
    struct backend *backend_dirty, *backend_readable;
    char *in;                           /* for all of them */
    uint64_t awake_ns;                  /* this worker has looked at the clock without a long pause since then */
    uint32_t backends_up, at_memcached; /* atomic */
};
extern struct worker *workers;
extern uint32_t worker_count;

void worker_run_later(struct client *c);
void worker_run_next_turn(struct client *c);
void worker_dirty(struct client *c);
void worker_bury(struct client *c); /* frees the client at the end of the turn */
void worker_done(struct worker *w, const struct grant *grant, enum outcome outcome, uint64_t bytes);
void worker_poke(struct worker *w);
/* Takes a socket out of epoll, too: a child that tries new settings holds it open for a while, and would let events come for a
 * source that is freed. */
void worker_close(const struct worker *w, int fd);
char *block_take(struct worker *w);
void block_give(struct worker *w, char *block);

void gate_listen(const char *address, uint32_t bucket); /* BUCKETS_LIMIT: the bucket has none of its own */
/* A listening socket; address: ADDRESS:PORT or a path. option: for messages. flags: SOCK_NONBLOCK or 0. */
int gate_socket(const char *option, const char *address, int flags);
/* What such a text means; if it is wrong, this process ends. */
socklen_t gate_address_of(const char *option, const char *text, struct sockaddr_storage *address);
void gate_pause(void); /* no worker runs until gate_resume */
void gate_resume(void);
void gate_ports(void);   /* listens at the buckets' ports of now, on the address of the first --listen */
void gate_signals(void); /* at the start */
void gate_serve(void);
uint32_t gate_clients(void);
extern const char *gate_address; /* of the first --listen */

#endif
