/* tokens.h - tokens of a node's tenants in a file in shared memory. cluster_agent writes them; processes of a server on the same
 * host spend them. Nothing waits; needs libc only.
 *
 * A tenant has a place while the cluster has a contract of it. Its tokens are one word, which the agent exchanges at each grant. The
 * word has the place's generation, so who found a tenant here spends no tokens of the next one.
 *
 * Limited tokens end at ends_ns (CLOCK_MONOTONIC), whether or not an agent lives. Tokens without a limit do not end.
 */
#ifndef CLUSTER_AGENT_TOKENS_H
#define CLUSTER_AGENT_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#define TOKENS_MAGIC UINT64_C(0x31306e656b6f7451)
#define TOKENS_TENANTS 4096u
#define TOKENS_COUNT (UINT64_C(1) << 47) /* bits below: how many are left; the bit itself: there is no limit */
#define TOKENS_UNLIMITED (UINT64_C(1) << 46)
#define TOKENS_GENERATION 48

struct tokens_tenant {
    uint64_t id;          /* a hash of its name; 0: nobody's place */
    uint64_t word;        /* generation, no limit?, tokens left */
    uint64_t token_bytes; /* 0: a token is a request */
    uint64_t reserved;    /* of the tokens left at the last grant */
    uint64_t wanted_ns;   /* when a request last found too few; written by the server */
    uint64_t unused[3];
};

struct tokens_file {
    uint64_t magic;
    uint64_t changed; /* grows when a place gets or loses its tenant */
    uint64_t granted; /* grows with each grant */
    uint64_t period;
    uint64_t ends_ns;
    uint64_t served_ns; /* when a process of the server was last there; written by the server */
    uint64_t unused[2];
    struct tokens_tenant tenant[TOKENS_TENANTS];
};

static inline uint64_t tokens_read(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void tokens_write(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint64_t tokens_id(const char *name, uint64_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; bytes != 0; name++, bytes--)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

/* Spends up to n tokens of the tenant in this place. Returns how many; 0 also if it is another tenant's by now. */
static inline uint64_t tokens_spend(struct tokens_file *file, uint32_t place, uint64_t id, uint64_t n, uint64_t now_ns)
{
    struct tokens_tenant *t = &file->tenant[place];
    uint64_t word = tokens_read(&t->word), left, spent;
    do {
        left = word & (TOKENS_COUNT - 1);
        spent = n < left ? n : left;
        if (spent == 0 || tokens_read(&t->id) != id ||
            (!(word & TOKENS_COUNT) && now_ns >= tokens_read(&file->ends_ns)))
            return 0;
    } while (!__atomic_compare_exchange_n(&t->word, &word, word - spent, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return spent;
}

#endif
