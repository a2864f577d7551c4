// proves: the detector's load, its preassigned half and its rivals equal those of a naive model, over random probes,
// proves: decisions, arrivals and timeouts (paper, Sections III-C and V-D); messages survive the wire.
#include "check.h"
#include "twochoice.h"

#define MOST 64

/* The model keeps every undecided probe in a list, oldest deadline first. */
struct entry {
    uint64_t request, deadline, len, expected;
    bool promised;
};
static struct entry list[MOST + 1];
static size_t listed;
static uint64_t ops, bytes, now;

static struct check_rng rng;
static struct twochoice_detector d;

static uint64_t model_load(void)
{
    uint64_t sum = ops * 10 + bytes;
    size_t i;
    for (i = 0; i < listed; i++)
        sum += list[i].expected;
    return sum;
}

static void drop(size_t i)
{
    memmove(&list[i], &list[i + 1], (--listed - i) * sizeof *list);
}

static void model_expire(void)
{
    while (listed && list[0].deadline <= now)
        drop(0);
}

static size_t promises(void)
{
    size_t i, n = 0;
    for (i = 0; i < listed; i++)
        n += list[i].promised;
    return n;
}

static void check_counts(void)
{
    struct twochoice_detector_state state;
    CHECK_EQ(twochoice_detector_info(&d, &state), QOS_OK);
    CHECK_EQ(state.promised, promises());
    CHECK_EQ(state.undecided, listed - promises());
}

static size_t model_find(uint64_t request)
{
    size_t i;
    for (i = 0; i < listed && list[i].request != request; i++)
        continue;
    return i;
}

static void run(bool preassign, uint64_t steps)
{
    struct twochoice_detector_config config;
    struct check_mem m;
    uint64_t step;
    memset(&config, 0, sizeof config);
    config.op_cost_bytes = 10;
    config.timeout_ns = 500;
    config.max_probes = MOST;
    config.no_preassign = !preassign;
    check_mem_new(&m, twochoice_detector_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_detector_init(&d, m.mem, m.size, &config), QOS_OK);
    listed = 0;
    ops = bytes = now = 0;
    CHECK_EQ(twochoice_detector_next_ns(&d, now), QOS_NEVER);
    for (step = 0; step < steps; step++) {
        uint64_t what = check_between(&rng, 0, 99), request = check_between(&rng, 0, 3 * MOST);
        uint64_t len = check_between(&rng, 1, 3000);
        uint32_t rivals;
        size_t at;
        CHECK_CONTEXT("step %u", (unsigned)step);
        now += check_between(&rng, 0, 1) ? 0 : check_between(&rng, 0, step / 1000 % 2 ? 40 : 8);
        model_expire();
        at = model_find(request);
        if (what < 40) {
            struct entry e;
            CHECK_EQ(twochoice_detector_load(&d, now), model_load()); /* overdue guesses are gone */
            if (at < listed)
                drop(at);
            e.request = request;
            e.len = len;
            e.deadline = now + 500;
            e.promised = false;
            CHECK_EQ(twochoice_detector_probed(&d, now, request % 5, request, len, &rivals), model_load());
            CHECK_EQ(rivals, listed - promises());
            if (listed == MOST) { /* full: its client's own among the oldest 16, otherwise the oldest */
                for (at = 0; at < 16 && list[at].request % 5 != request % 5; at++)
                    continue;
                drop(at < 16 ? at : 0);
            }
            e.expected = preassign ? len / 2 : 0;
            list[listed++] = e;
        } else if (what < 75) {
            bool chosen = check_between(&rng, 0, 1);
            enum qos_status st = twochoice_detector_decided(&d, now, request % 5, request, chosen ? len : 0);
            if (at == listed || list[at].promised) {
                CHECK_EQ(st, QOS_ENOENT);
            } else {
                struct entry e = list[at];
                CHECK_EQ(st, QOS_OK);
                drop(at);
                if (chosen) {
                    e.promised = true;
                    e.expected = preassign ? len : 0;
                    e.deadline = now + 500;
                    list[listed++] = e;
                }
            }
        } else if (what < 88) {
            twochoice_detector_arrived(&d, now, request % 5, request, len);
            if (at < listed && list[at].promised) {
                list[at].expected -= len < list[at].expected ? len : list[at].expected;
                if (list[at].expected == 0)
                    drop(at);
            }
            ops++;
            bytes += len;
        } else if (ops) { /* an operation of mean size ends */
            uint64_t part = ops == 1 ? bytes : bytes / ops;
            twochoice_detector_end(&d, part);
            ops--;
            bytes -= part;
        }
        twochoice_detector_expire(&d, now);
        CHECK_EQ(twochoice_detector_load(&d, now), model_load());
        check_counts();
        CHECK_EQ(twochoice_detector_next_ns(&d, now), listed ? list[0].deadline : QOS_NEVER);
        if (step % 100 == 0 && now > 50) { /* a clock that goes back changes nothing */
            twochoice_detector_expire(&d, now - 50);
            check_counts();
        }
    }
    now += 10000;
    twochoice_detector_expire(&d, now);
    CHECK_EQ(twochoice_detector_load(&d, now), ops * 10 + bytes); /* no decision came: nothing is expected any more */
    CHECK(check_mem_free(&m));
}

static void peers(void)
{
    struct twochoice_detector_config config;
    struct twochoice_peer out[20];
    struct check_mem m;
    size_t n, i;
    memset(&config, 0, sizeof config);
    config.max_peers = 16;
    config.lifetime_ns = 100;
    check_mem_new(&m, twochoice_detector_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_detector_init(&d, m.mem, m.size, &config), QOS_OK);
    CHECK_EQ(twochoice_detector_peers(&d, 1000, out, 20), 0);
    for (i = 0; i < 10; i++)
        twochoice_detector_heard(&d, 1000 + i, (uint32_t)i, 50 + i, 0);
    n = twochoice_detector_peers(&d, 1050, out, 4);
    CHECK_EQ(n, 4);
    for (i = 0; i < n; i++)
        CHECK(out[i].server == i && out[i].load == 50 + i && out[i].age_ns == 50 - i);
    n = twochoice_detector_peers(&d, 1050, out, 20); /* continues where the last call ended, once around */
    CHECK_EQ(n, 10);
    CHECK_EQ(out[0].server, 4);
    CHECK_EQ(out[9].server, 3);
    twochoice_detector_heard(&d, 1050, 3, 7, 100); /* older than the known load */
    twochoice_detector_heard(&d, 1050, 4, 7, 10);
    twochoice_detector_heard(&d, 1050, 20, 8, 0); /* takes the place of server 4 */
    n = twochoice_detector_peers(&d, 1104, out, 20);
    CHECK_EQ(n, 6); /* 5 to 9 and 20: the others are too old */
    for (i = 0; i < n; i++)
        CHECK(out[i].server >= 5 && out[i].age_ns < 100);
    CHECK_EQ(twochoice_detector_peers(&d, 5000, out, 20), 0);
    memset(m.mem, 1, m.size); /* old contents of the memory do not count as a server's load */
    CHECK_EQ(twochoice_detector_init(&d, m.mem, m.size, &config), QOS_OK);
    twochoice_detector_heard(&d, 0, 1, 7, 50); /* at time 0, and not new */
    CHECK_EQ(twochoice_detector_peers(&d, 40, out, 20), 1);
    CHECK_EQ(out[0].age_ns, 90);
    CHECK_EQ(twochoice_detector_peers(&d, 60, out, 20), 0);
    CHECK_EQ(twochoice_detector_peers(&d, UINT64_C(0x0101010101010101) + 10, out, 20), 0);
    CHECK(check_mem_free(&m));
}

static void configuration(void)
{
    struct twochoice_detector_config config;
    struct check_mem m;
    size_t size;
    memset(&config, 0, sizeof config);
    size = twochoice_detector_memsize(&config);
    CHECK(size > 0);
    check_mem_new(&m, size, 64, 0);
    CHECK_EQ(twochoice_detector_init(&d, m.mem, size - 1, &config), QOS_EMEMORY);
    CHECK_EQ(twochoice_detector_init(&d, m.mem + 1, size, &config), QOS_EALIGN);
    CHECK_EQ(twochoice_detector_init(&d, m.mem, size, &config), QOS_OK);
    twochoice_detector_begin(&d, 100);
    CHECK_EQ(twochoice_detector_load(&d, now), 65536 + 100); /* the default cost of an operation */
    twochoice_detector_begin(&d, UINT64_MAX);
    CHECK_EQ(twochoice_detector_load(&d, now), UINT64_C(1) << 63); /* saturates */
    CHECK(check_mem_free(&m));
    config.max_probes = (1 << 20) + 1;
    CHECK_EQ(twochoice_detector_memsize(&config), 0);
    config.max_probes = 1;
    config.op_cost_bytes = (UINT64_C(1) << 40) + 1;
    CHECK_EQ(twochoice_detector_memsize(&config), 0);
    config.op_cost_bytes = QOS_NOTHING;
    config.max_peers = (1 << 20) + 1;
    CHECK_EQ(twochoice_detector_memsize(&config), 0);
    config.max_peers = 1;
    check_mem_new(&m, twochoice_detector_memsize(&config), 64, 0);
    CHECK_EQ(twochoice_detector_init(&d, m.mem, m.size, &config), QOS_OK);
    twochoice_detector_begin(&d, 100);
    CHECK_EQ(twochoice_detector_load(&d, now), 100);
    CHECK(check_mem_free(&m));
}

static void messages(void)
{
    static struct twochoice_peer peers_in[300], peers_out[300];
    static uint8_t buf[TWOCHOICE_MESSAGE_BYTES(300) + 1];
    struct twochoice_message in, out;
    uint64_t round;
    for (round = 0; round < check_scaled(400); round++) {
        size_t len = 0, cut, i;
        memset(&in, 0, sizeof in);
        in.type = (uint32_t)check_between(&rng, TWOCHOICE_PROBE, TWOCHOICE_DECISION);
        in.server = (uint32_t)check_rand(&rng);
        in.state = (uint32_t)check_between(&rng, 0, 2);
        *(in.type == TWOCHOICE_LOAD ? &in.rivals : &in.chosen) = (uint32_t)check_rand(&rng);
        in.request = check_rand(&rng);
        in.len_bytes = check_rand(&rng);
        in.load = check_rand(&rng);
        in.peer_count = (uint32_t)check_between(&rng, 0, round % 2 ? 300 : 3);
        in.client = check_rand(&rng);
        for (i = 0; i < in.peer_count; i++) {
            peers_in[i].server = (uint32_t)check_rand(&rng);
            peers_in[i].load = check_rand(&rng);
            peers_in[i].age_ns = check_rand(&rng);
        }
        CHECK_EQ(twochoice_message_encode(&in, peers_in, buf, TWOCHOICE_MESSAGE_BYTES(in.peer_count) - 1, &len),
                 QOS_EMEMORY);
        CHECK_EQ(twochoice_message_encode(&in, peers_in, buf, sizeof buf, &len), QOS_OK);
        CHECK_EQ(len, TWOCHOICE_MESSAGE_BYTES(in.peer_count));
        CHECK_EQ(twochoice_message_decode(buf, len, &out, peers_out, 300), QOS_OK);
        CHECK(out.type == in.type && out.server == in.server && out.state == in.state && out.chosen == in.chosen &&
              out.rivals == in.rivals);
        CHECK(out.request == in.request && out.client == in.client && out.len_bytes == in.len_bytes &&
              out.load == in.load);
        CHECK_EQ(out.peer_count, in.peer_count);
        for (i = 0; i < in.peer_count; i++) {
            CHECK_EQ(peers_out[i].server, peers_in[i].server);
            CHECK_EQ(peers_out[i].load, peers_in[i].load);
            CHECK_EQ(peers_out[i].age_ns, peers_in[i].age_ns);
        }
        for (cut = 0; cut < len; cut += 1 + cut / 8) {
            out.peer_count = 300;
            CHECK_EQ(twochoice_message_decode(buf, cut, &out, peers_out, 300), QOS_ETRUNCATED);
            CHECK_EQ(out.peer_count, 300); /* unchanged */
        }
        if (in.peer_count) {
            CHECK_EQ(twochoice_message_decode(buf, len, &out, peers_out, in.peer_count - 1), QOS_EMEMORY);
            CHECK_EQ(twochoice_message_decode(buf, len, &out, NULL, 0), QOS_EMEMORY);
        }
        cut = (size_t)check_between(&rng, 0, len - 1);
        buf[cut] ^= (uint8_t)(1u << check_between(&rng, 0, 7));
        CHECK(twochoice_message_decode(buf, len, &out, peers_out, 300) < 0);
    }
    in.peer_count = 65536;
    CHECK_EQ(twochoice_message_encode(&in, peers_in, buf, sizeof buf, &(size_t){0}), QOS_ERANGE);
    in.peer_count = 1;
    CHECK_EQ(twochoice_message_encode(&in, NULL, buf, sizeof buf, &(size_t){0}), QOS_EINVAL);
    in.peer_count = 0;
    in.type = 4;
    CHECK_EQ(twochoice_message_encode(&in, peers_in, buf, sizeof buf, &(size_t){0}), QOS_ERANGE);
    CHECK_EQ(twochoice_message_decode(NULL, 0, &out, peers_out, 300), QOS_EINVAL);
    { /* well-formed frames with wrong content */
        size_t sealed;
        struct qos_frame f = {TWOCHOICE_MESSAGE_MAGIC, TWOCHOICE_MESSAGE_VERSION, TWOCHOICE_LOAD, 44};
        memset(buf, 0, sizeof buf);
        CHECK_EQ(qos_frame_seal(&f, buf, sizeof buf, &sealed), QOS_OK);
        CHECK_EQ(twochoice_message_decode(buf, sealed, &out, peers_out, 300), QOS_OK);
        f.type = 9;
        CHECK_EQ(qos_frame_seal(&f, buf, sizeof buf, &sealed), QOS_OK);
        CHECK_EQ(twochoice_message_decode(buf, sealed, &out, peers_out, 300), QOS_ECORRUPT);
        f.type = TWOCHOICE_LOAD;
        f.payload_bytes = 43;
        CHECK_EQ(qos_frame_seal(&f, buf, sizeof buf, &sealed), QOS_OK);
        CHECK_EQ(twochoice_message_decode(buf, sealed, &out, peers_out, 300), QOS_ECORRUPT);
        f.payload_bytes = 45;
        CHECK_EQ(qos_frame_seal(&f, buf, sizeof buf, &sealed), QOS_OK);
        CHECK_EQ(twochoice_message_decode(buf, sealed, &out, peers_out, 300), QOS_ECORRUPT);
        f.payload_bytes = 44;
        f.version = TWOCHOICE_MESSAGE_VERSION + 1;
        CHECK_EQ(qos_frame_seal(&f, buf, sizeof buf, &sealed), QOS_OK);
        CHECK_EQ(twochoice_message_decode(buf, sealed, &out, peers_out, 300), QOS_EVERSION);
        f.version = TWOCHOICE_MESSAGE_VERSION;
        buf[QOS_FRAME_HEADER_BYTES + 4] = 3; /* a state that does not exist */
        CHECK_EQ(qos_frame_seal(&f, buf, sizeof buf, &sealed), QOS_OK);
        CHECK_EQ(twochoice_message_decode(buf, sealed, &out, peers_out, 300), QOS_ECORRUPT);
    }
}

int main(void)
{
    check_begin("twochoice_detector");
    check_rng_init(&rng, 3);
    run(true, check_scaled(60000));
    run(false, check_scaled(20000));
    peers();
    configuration();
    messages();
    return check_end();
}
