#include "lemon_flow.h"
#include <lemon/preflow.h>
#include <lemon/smart_graph.h>
#include <vector>

__extension__ typedef __int128 wide;

wide lemon_flow(uint32_t servers, uint32_t buckets, const uint64_t *capacity, const uint64_t *reservation,
                const uint32_t *row, const uint32_t *server, const uint64_t *demand)
{
    lemon::SmartDigraph g;
    lemon::SmartDigraph::ArcMap<wide> cap(g);
    lemon::SmartDigraph::Node source = g.addNode(), sink = g.addNode();
    std::vector<lemon::SmartDigraph::Node> of(servers);
    for (uint32_t j = 0; j < servers; j++) {
        of[j] = g.addNode();
        cap[g.addArc(of[j], sink)] = static_cast<wide>(capacity[j]);
    }
    for (uint32_t i = 0; i < buckets; i++) {
        lemon::SmartDigraph::Node bucket = g.addNode();
        cap[g.addArc(source, bucket)] = static_cast<wide>(reservation[i]);
        for (uint32_t e = row[i]; e < row[i + 1]; e++)
            cap[g.addArc(bucket, of[server[e]])] = static_cast<wide>(demand[e]);
    }
    lemon::Preflow<lemon::SmartDigraph, lemon::SmartDigraph::ArcMap<wide>> flow(g, cap, source, sink);
    flow.runMinCut();
    return flow.flowValue();
}
