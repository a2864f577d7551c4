// A nonce of a process start: 128 random bits.
#include "table.h"
#include "common.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>

struct qos_u128 cluster_nonce(void)
{
    struct qos_u128 nonce;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        tool_die(TOOL_FAILED, "no random numbers: %s", strerror(errno));
    nonce.lo |= 1; /* not 0 */
    return nonce;
}
