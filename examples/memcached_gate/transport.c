// The cluster's messages use the ZeroMQ transport of pshift_cluster: its source file, and what that expects.
#include "../pshift_cluster/cluster.h"

struct settings settings;
const struct transport *transport;

// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "../pshift_cluster/zmq.c"
