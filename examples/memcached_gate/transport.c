// A gate uses the ZeroMQ transport and the nonces of pshift_cluster: this includes their sources and the
// definitions that they need.
#include "../pshift_cluster/cluster.h"

struct settings settings;
const struct transport *transport;

// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "../pshift_cluster/zmq.c"
// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "../pshift_cluster/nonce.c"
