// A gate uses the ZeroMQ transport and the state file of pshift_cluster: their sources, and what they expect.
#include "../pshift_cluster/cluster.h"

struct settings settings;
const struct transport *transport;

// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "../pshift_cluster/zmq.c"
// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "../pshift_cluster/state.c"
