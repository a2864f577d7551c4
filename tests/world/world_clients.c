// proves: simulated clients keep what their configuration says: numbers and times of requests against the formulas of
// proves: each kind of arrival, a closed loop's N / (service + think), sizes, claims, absence
#include "check.h"
#include "examples/world/clients.h"

static struct world_client client;
static uint64_t costs[3], made; /* requests of cost_min, of cost_max, between */
static uint64_t most_out;

/* Runs a client for a time; every request ends `service` ns after it was made, one at a time (serial) or all at once. */
static void run(const struct world_client_config *config, uint64_t until_ns, uint64_t service_ns)
{
    struct world_queue ends;
    struct world_request q;
    struct world_event e;
    uint64_t t, before = 0;
    memset(&ends, 0, sizeof ends);
    memset(costs, 0, sizeof costs);
    made = most_out = 0;
    world_client_init(&client, config, check_seed(), 3);
    while (true) {
        uint64_t arrives = world_client_next_ns(&client), ends_ns = world_queue_next_ns(&ends);
        t = arrives < ends_ns ? arrives : ends_ns;
        if (t >= until_ns)
            break;
        CHECK(t >= before);
        before = t;
        while (world_queue_take(&ends, t, &e))
            world_client_done(&client, t);
        while (world_client_next(&client, t, &q)) {
            CHECK(q.cost >= client.config.cost_min && q.cost <= client.config.cost_max && q.at_ns <= t);
            CHECK(q.at_ns >= config->start_ns);
            CHECK(config->back_ns <= config->away_ns || t < config->away_ns || t >= config->back_ns);
            costs[q.cost == client.config.cost_min ? 0 : q.cost == client.config.cost_max ? 1 : 2]++;
            made++;
            world_queue_add(&ends, t + service_ns, 0, 0);
            if (client.out > most_out)
                most_out = client.out;
        }
    }
    CHECK_EQ(made, client.made);
    world_queue_free(&ends);
    world_client_free(&client);
}

int main(void)
{
    struct world_client_config c;
    struct world_request q;
    uint64_t second = WORLD_NS_PER_S;
    check_begin("world/world_clients");

    memset(&c, 0, sizeof c); /* closed: N requests each service time, exactly */
    c.outstanding = 4;
    run(&c, second, 1000000);
    CHECK_EQ(made, 4000);
    CHECK_EQ(most_out, 4);
    c.think_ns = 3000000; /* N / (service + think) */
    run(&c, 100 * second, 1000000);
    CHECK_WITHIN((double)made, 100000 * 0.97, 100000 * 1.03);
    CHECK_LE(most_out, 4);

    memset(&c, 0, sizeof c); /* constant: exactly one each interval, from the start */
    c.arrivals = WORLD_CONSTANT;
    c.interval_ns = 1000;
    c.start_ns = 500;
    run(&c, 1000500, 10);
    CHECK_EQ(made, 1000);
    c.away_ns = 100500;
    c.back_ns = 600500;
    run(&c, 1000500, 10);
    CHECK_EQ(made, 500);
    c.backlog_max = 5; /* what does not end is not joined by more */
    run(&c, 1000500, 10000000);
    CHECK_EQ(made, 5);
    CHECK_EQ(client.dropped, 495);

    memset(&c, 0, sizeof c); /* Poisson: n +- 5 sqrt n */
    c.arrivals = WORLD_POISSON;
    c.interval_ns = 20000;
    c.sizes = WORLD_TWO_COSTS;
    c.cost_min = 3;
    c.cost_max = 300;
    run(&c, 2 * second, 10);
    CHECK_WITHIN((double)made, 100000 - 5 * 317, 100000 + 5 * 317);
    CHECK_WITHIN((double)costs[1] / (double)made, 0.095, 0.105);
    CHECK_EQ(costs[2], 0);
    c.sizes = WORLD_ANY_SIZE;
    run(&c, 2 * second, 10);
    CHECK_WITHIN((double)costs[0] / (double)made, 0.02, 0.05); /* ln(3.5 / 3) / ln 100 */

    c.arrivals = WORLD_ON_OFF; /* a fifth of the time */
    c.on_ns = 2000000;
    c.off_ns = 8000000;
    run(&c, 10 * second, 10);
    CHECK_WITHIN((double)made, 100000 - 5 * 317, 100000 + 5 * 317);

    memset(&c, 0, sizeof c); /* a closed loop that is there for 50 of each 250 ms: its request of 10 us is late once */
    c.away_ns = 50000000;
    c.back_ns = c.away_every_ns = 250000000;
    c.outstanding = 4;
    run(&c, second, 10000);
    CHECK_WITHIN((double)made, 4 * 4 * 5000, 4 * 4 * 5001);

    memset(&c, 0, sizeof c); /* bursts */
    c.arrivals = WORLD_BURSTS;
    c.outstanding = 1000;
    c.interval_ns = 100000000;
    run(&c, second, 10);
    CHECK_EQ(made, 10000);
    CHECK_EQ(most_out, 1000);

    c.estimate = 250; /* claims a quarter, and at least 1 */
    c.cost_min = 1000;
    c.writes = 1000;
    world_client_init(&client, &c, 1, 1);
    CHECK(world_client_next(&client, 0, &q));
    CHECK_EQ(q.claim, 250);
    CHECK(q.write);
    c.cost_min = 1;
    world_client_init(&client, &c, 1, 1);
    CHECK(world_client_next(&client, 0, &q));
    CHECK_EQ(q.claim, 1);
    return check_end();
}
