// One of several processes that swap a key of etcd at one time, by examples/cluster_agent. It reads the key, writes "ready", waits for
// a line, swaps the key from the revision that it has read to its name, and writes "swapped" or "refused".
// usage: etcd_swap ENDPOINTS CA KEY NAME
#include "examples/cluster_agent/etcd.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t revision;
static bool answered;
static const char *said;

static void found(const struct etcd_reply *reply)
{
    answered = !reply->error;
    revision = reply->pairs ? reply->pair[0].revision : 0;
}

static void swapped(const struct etcd_reply *reply)
{
    answered = true;
    said = reply->error ? reply->error : reply->succeeded ? "swapped" : "refused";
}

static void wait_for_answer(void)
{
    int tries;
    for (tries = 0; tries < 5000 && !answered; tries++) {
        etcd_step();
        usleep(1000);
    }
}

int main(int argc, char **argv)
{
    struct etcd_config config = {.prefix = "test/"};
    if (argc != 5)
        return 2;
    config.endpoints = argv[1];
    config.ca = argv[2];
    etcd_open(&config);
    etcd_read(argv[3], found);
    wait_for_answer();
    puts(answered ? "ready" : "no answer");
    fflush(stdout);
    if (!answered || getchar() == EOF)
        return 1;
    answered = false;
    etcd_swap(argv[3], revision, argv[4], swapped);
    wait_for_answer();
    puts(said ? said : "no answer");
    return 0;
}
