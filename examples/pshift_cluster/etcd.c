// The controller's way to etcd is that of examples/cluster_agent.
// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "../cluster_agent/etcd.c"
