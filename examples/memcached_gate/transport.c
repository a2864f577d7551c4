// The cluster's messages go by the ZeroMQ transport of pshift_cluster: that file, with what it expects beside it.
#include "../pshift_cluster/cluster.h"

struct settings settings;
const struct transport *transport;

// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "../pshift_cluster/zmq.c"
