/* lemon_flow.h - LEMON's maximum flow from buckets to servers: an oracle for pshift.h that includes nothing of it. It
 * is compiled once; tests name it in `links: tests/lemon_flow.cc`. */
#include <stdint.h>

__extension__ __int128 lemon_flow(uint32_t servers, uint32_t buckets, const uint64_t *capacity,
                                  const uint64_t *reservation, const uint32_t *row, const uint32_t *server,
                                  const uint64_t *demand);
