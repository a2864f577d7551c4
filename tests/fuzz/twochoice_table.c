// proves: any program of creates, local writes, pulls and compactions leaves the redirect table sound and equal to a
// proves: byte map.
#include "twochoice.h"
#include "twochoice_calls.h"
#include "fuzz/fuzz.h"

#define CELLS 256
#define OBJECTS 2
#define PULLS 3

static struct {
    uint32_t target;
    uint32_t op;
} map[OBJECTS][CELLS];
static struct {
    bool open, ready;
    uint32_t id, object;
    uint64_t from, to;
    uint32_t op[CELLS];
} pull[PULLS];
static unsigned char mem[48 * 1024] __attribute__((aligned(64)));

static void check_map(const struct twochoice_table *t, uint64_t scale)
{
    uint32_t o;
    uint64_t c;
    for (o = 0; o < OBJECTS; o++)
        for (c = 0; c < CELLS;) {
            struct twochoice_piece p;
            twochoice_table_find(t, o * UINT64_MAX, c * scale, &p);
            FUZZ_CHECK(p.end > c * scale);
            for (; c < CELLS && c * scale < p.end; c++)
                FUZZ_CHECK(map[o][c].target == p.target);
        }
    FUZZ_CHECK(check_tree(t));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct twochoice_table_config config;
    struct twochoice_table t;
    uint64_t scale, c, from, to;
    uint32_t op = 0, o, i;
    memset(&config, 0, sizeof config);
    config.max_fragments = (uint32_t)fuzz_between(&in, 1, 200);
    config.max_pulls = 4;
    config.max_writes = 4;
    config.home = 7;
    scale = UINT64_C(1) << fuzz_between(&in, 0, 55); /* from 2^25 to 2^31 both kinds of leaf occur */
    FUZZ_CHECK(twochoice_table_memsize(&config) <= sizeof mem);
    FUZZ_CHECK(twochoice_table_init(&t, mem, sizeof mem, &config) == QOS_OK);
    for (o = 0; o < OBJECTS; o++)
        for (c = 0; c < CELLS; c++) {
            map[o][c].target = TWOCHOICE_LOCAL;
            map[o][c].op = 0;
        }
    memset(pull, 0, sizeof pull);
    while (in.left) {
        uint64_t what = fuzz_between(&in, 0, 7);
        o = (uint32_t)fuzz_between(&in, 0, OBJECTS - 1);
        from = fuzz_between(&in, 0, CELLS - 1);
        to = from + fuzz_between(&in, 1, what & 1 ? 8 : CELLS);
        if (to > CELLS - 1)
            to = CELLS - 1;
        if (to <= from)
            continue;
        i = (uint32_t)(from % PULLS);
        op++;
        if (what < 5) {
            uint32_t target = what == 4 ? TWOCHOICE_LOCAL : (uint32_t)fuzz_between(&in, 0, 5);
            enum qos_status st = what == 4
                                     ? redirect(&t, o * UINT64_MAX, from * scale, (to - from) * scale, TWOCHOICE_LOCAL)
                                     : redirect(&t, o * UINT64_MAX, from * scale, (to - from) * scale, target);
            FUZZ_CHECK(st == QOS_OK || (st == QOS_EAGAIN && what == 4) ||
                       (st == QOS_EFULL && counts_of(&t).fragments + 2 > config.max_fragments));
            for (c = from; st == QOS_OK && c < to; c++) {
                map[o][c].target = target;
                map[o][c].op = op;
            }
        } else if (!pull[i].open) {
            struct twochoice_piece p;
            if (start_pull_behind(&t, o * UINT64_MAX, from * scale, (to - from) * scale, &pull[i].id, &p) != QOS_OK)
                continue;
            pull[i].open = true;
            pull[i].ready = false;
            pull[i].object = p.object ? 1 : 0;
            pull[i].from = p.offset / scale;
            pull[i].to = p.end / scale;
            for (c = pull[i].from; c < pull[i].to; c++) {
                FUZZ_CHECK(map[pull[i].object][c].target == p.target);
                pull[i].op[c] = map[pull[i].object][c].op;
            }
        } else if (what == 5) {
            if (twochoice_table_pull_cancel(&t, pull[i].id) == QOS_EBUSY)
                FUZZ_CHECK(finish_pull(&t, pull[i].id) == QOS_OK);
            pull[i].open = false;
        } else if (!pull[i].ready) {
            static struct twochoice_piece out[CELLS];
            size_t n = 0;
            FUZZ_CHECK(twochoice_table_pull_ready(&t, pull[i].id, out, CELLS, &n) == QOS_OK);
            pull[i].ready = true;
        } else {
            enum qos_status st = finish_pull(&t, pull[i].id);
            FUZZ_CHECK(st == QOS_OK || st == QOS_EFULL);
            for (c = pull[i].from; c < pull[i].to; c++) {
                struct twochoice_piece p;
                o = pull[i].object;
                twochoice_table_find(&t, o * UINT64_MAX, c * scale, &p);
                if (map[o][c].op == pull[i].op[c] && (st == QOS_OK || p.target == TWOCHOICE_LOCAL))
                    map[o][c].target = TWOCHOICE_LOCAL;
            }
            if (st != QOS_OK) {
                FUZZ_CHECK(twochoice_table_pull_cancel(&t, pull[i].id) == QOS_EBUSY);
                FUZZ_CHECK(finish_pull(&t, pull[i].id) == QOS_OK);
            }
            pull[i].open = false;
        }
        if (op % 16 == 0)
            check_map(&t, scale);
    }
    check_map(&t, scale);
    return 0;
}
