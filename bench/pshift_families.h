/* pshift_families.h - problems of many shapes for bench/pshift.cc, and their peer, a plain Dinic. Uses nothing of
 * pshift.h. C++17. */
#ifndef QOS_BENCH_PSHIFT_FAMILIES_H
#define QOS_BENCH_PSHIFT_FAMILIES_H

#include "pshift_cases.h"
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

struct family {
    std::vector<uint64_t> capacity, reservation, demand;
    std::vector<uint32_t> row{0}, server;
    uint64_t seed = 1;
    uint64_t draw(uint64_t low, uint64_t high)
    {
        return low + case_rand(&seed) % (high - low + 1);
    }
    void bucket(uint64_t r, const std::vector<std::pair<uint32_t, uint64_t>> &entries)
    {
        for (const auto &e : entries) {
            server.push_back(e.first);
            demand.push_back(e.second);
        }
        row.push_back(static_cast<uint32_t>(server.size()));
        reservation.push_back(r);
    }
    /* Two balanced servers that can shift w tokens to each other. */
    void edge(uint32_t u, uint32_t v, uint64_t w)
    {
        bucket(2 * w, {{u, 2 * w}, {v, 2 * w}});
        capacity[u] += w;
        capacity[v] += w;
    }
    enum placement { ANYWHERE, RING, RACKS, REPLICAS };
    enum spread { EVEN, POWER, MIXED };
    /* The k-th server of a row: any server; the next one; 7 of 8 in one rack of 16; one in each part of the servers. */
    uint32_t place(uint32_t servers, uint32_t length, placement how, uint64_t first, uint32_t k)
    {
        const uint64_t part = servers / length, rack = first / 16 * 16 + draw(0, 15), any = draw(0, servers - 1);
        uint64_t at = any;
        if (how == RING)
            at = first + k;
        else if (how == RACKS && draw(0, 7) != 0)
            at = rack;
        else if (how == REPLICAS)
            at = k * part + any % part;
        return static_cast<uint32_t>(at % servers);
    }
    /* The k-th demand of a row: all equal; by a power law; each is 1/32 of the one before it. */
    static uint64_t share(uint64_t want, uint32_t length, spread how, uint32_t k)
    {
        const uint64_t all = want * 11 / 10;
        double sum = 0;
        if (how == EVEN)
            return all / length + 1;
        if (how == MIXED)
            return (all >> (k < 12 ? 5 * k : 60)) + 1;
        for (uint32_t i = 0; i < length; i++)
            sum += pow(i + 1.0, -1.5);
        return static_cast<uint64_t>(static_cast<double>(all) * pow(k + 1.0, -1.5) / sum) + 1;
    }
    /* `each` entries per server, in rows of `length`. bits: size of a reservation. */
    void rows(uint32_t servers, uint32_t each, uint32_t length, double r, unsigned bits, placement where = ANYWHERE,
              spread how = EVEN)
    {
        uint64_t total = 0;
        for (uint32_t i = 0; i < servers * each / length; i++) {
            uint64_t want = draw(length, (UINT64_C(1) << bits) - 1), first = draw(0, servers - 1);
            std::vector<std::pair<uint32_t, uint64_t>> entries;
            while (entries.size() < length) {
                uint32_t k = static_cast<uint32_t>(entries.size());
                uint32_t at = length == servers ? k : place(servers, length, where, first, k);
                bool in = false;
                for (const auto &e : entries)
                    in |= e.first == at;
                if (!in)
                    entries.push_back({at, share(want, length, how, k)});
            }
            bucket(want, entries);
            total += want;
        }
        capacity.assign(servers, static_cast<uint64_t>(static_cast<double>(total) / r / servers) + 1);
    }
};

static family family_make(const std::string &name, uint32_t n)
{
    family f;
    uint32_t k = 1, i, j;
    while (k * k < n)
        k++;
    if (name == "chain") { /* one overloaded end, one underloaded */
        f.capacity.assign(n, 0);
        for (i = 0; i + 1 < n; i++)
            f.edge(i, i + 1, 1000);
        f.capacity[0] -= 500;
        f.capacity[n - 1] += 500;
    } else if (name == "ladder") { /* a chain, then k hubs with k leaves each; every leaf is overloaded by 1 */
        f.capacity.assign(n + k + k * k, 0);
        for (i = 0; i + 1 < n + k; i++)
            f.edge(i, i + 1, UINT64_C(10) * k * k);
        for (i = 0; i < k; i++)
            for (j = 0; j < k; j++)
                f.edge(n + i, n + k + i * k + j, 2);
        f.capacity[0] += static_cast<uint64_t>(k) * k;
        for (i = 0; i < k * k; i++)
            f.capacity[n + k + i]--;
    } else if (name == "broom") { /* a chain, then n leaves */
        f.capacity.assign(2 * n, 0);
        for (i = 0; i + 1 < n; i++)
            f.edge(i, i + 1, UINT64_C(10) * n);
        for (i = 0; i < n; i++)
            f.edge(n - 1, n + i, 2);
        f.capacity[0] += n;
        for (i = 0; i < n; i++)
            f.capacity[n + i]--;
    } else if (name == "grid") {
        f.capacity.assign(k * k, 0);
        for (i = 0; i < k; i++)
            for (j = 0; j < k; j++) {
                if (j + 1 < k)
                    f.edge(i * k + j, i * k + j + 1, f.draw(1, 1000));
                if (i + 1 < k)
                    f.edge(i * k + j, i * k + k + j, f.draw(1, 1000));
            }
        for (uint64_t &c : f.capacity)
            c = c - c / 3 + f.draw(0, 2 * (c / 3) + 1);
    } else if (name == "cuckoo") { /* three choices, near the threshold */
        f.rows(n, 3, 3, 1, 3);
        f.capacity.assign(n, 1);
        f.reservation.assign(f.reservation.size(), 1);
        f.demand.assign(f.demand.size(), 1);
        for (i = n * 905ull / 1000; i < n; i++)
            f.reservation[i] = 0;
    } else if (name == "one bucket") { /* on all servers; the first half is overloaded */
        std::vector<std::pair<uint32_t, uint64_t>> entries;
        for (i = 0; i < n; i++)
            entries.push_back({i, 1000});
        f.bucket(UINT64_C(500) * n, entries);
        for (i = 0; i < n; i++)
            f.capacity.push_back(i < n / 2 ? 400 : 600);
    } else { /* "singles": one bucket on each server */
        for (i = 0; i < n; i++)
            f.bucket(f.draw(0, 100), {{i, f.draw(0, 100)}});
        f.capacity.assign(n, 50);
    }
    return f;
}

/* Families for which a search over some hundred found the worst ratio to LEMON and Dinic, and two that users named: rows
 * of consecutive servers whose demands halve, and rows of 2. r: the part of the capacity that is reserved. */
static const char *const family_worst[] = {"12 consecutive, demands halve",
                                           "2 consecutive, halves uneven",
                                           "3 consecutive",
                                           "5 consecutive, tight",
                                           "20 consecutive",
                                           "8 with a stride",
                                           "5 near in a plane",
                                           "12 near in a plane",
                                           "12 of one token",
                                           "two levels of 20",
                                           "a bridge of 8",
                                           "random pairs, far apart"};

static family family_found(const std::string &name, uint32_t n, double r)
{
    family f;
    uint32_t servers = 1000, length = static_cast<uint32_t>(atoi(name.c_str()));
    uint64_t total = 0, low = 50, high = 100;
    double slack = 1.2; /* demand over reservation */
    const bool plane = name.find("plane") != std::string::npos, two = name[0] == 't', bridge = name[0] == 'a';
    const bool one = name == "12 of one token", pairs = name[0] == 'r', stride = name == "8 with a stride";
    const bool halve = name == "12 consecutive, demands halve", uneven = name == "2 consecutive, halves uneven";
    uint32_t side = static_cast<uint32_t>(sqrt(n / (20.0 * (length ? length : 1)))) + 3;
    length = two ? 20 : bridge ? 8 : pairs ? 2 : length;
    servers = plane ? side * side : stride ? 4096 : halve ? 2000 : uneven || pairs ? 5000 : bridge ? 400 : servers;
    servers = one ? n / 12 : servers;
    if (plane || two || bridge || stride) {
        low = 1;
        high = stride ? 400 : two ? 500 : 200;
        slack = 1.1;
    }
    slack = halve ? 1.3 : name == "5 consecutive, tight" ? 1.02 : slack;
    for (uint32_t i = 0; i < n / length; i++) {
        std::vector<std::pair<uint32_t, uint64_t>> row;
        const uint32_t first = halve ? i % (servers - 11) : static_cast<uint32_t>(f.draw(0, servers - 1));
        uint64_t all = 0;
        for (uint32_t k = 0; row.size() < length; k++) {
            uint32_t at = first + k;
            bool in = false;
            if (plane)
                at = (first / side + side + k / 4 - 1) % side * side + (first + side + k % 4 - 1) % side;
            else if (stride)
                at = i * 7 + k * 512;
            else if (two)
                at = static_cast<uint32_t>(f.draw(0, 9) ? first / 20 * 20 + f.draw(0, 19) : f.draw(0, servers - 1));
            else if (bridge)
                at = static_cast<uint32_t>(f.draw(0, 199) + 200 * ((i + (i % 100 == 0 && k == 0)) % 2));
            else if (one || pairs)
                at = static_cast<uint32_t>(f.draw(0, servers - 1));
            for (const auto &e : row)
                in |= e.first == at % servers;
            if (in)
                continue;
            row.push_back({at % servers, one ? 1 : pairs ? 6 : halve ? 2048 >> k : f.draw(low, high)});
            all += row.back().second;
        }
        const uint64_t want = one ? 1 : pairs ? 6 : static_cast<uint64_t>(static_cast<double>(all) / slack);
        f.bucket(want, row);
        total += want;
    }
    f.capacity.assign(servers, static_cast<uint64_t>(static_cast<double>(total) / r / servers) + 1);
    for (uint32_t j = 0; j < servers; j++) {
        uint64_t permille = stride ? 950 + 10 * (j % 11) : 1000;
        if (uneven || pairs || bridge)
            permille = j < servers / 2 ? 975 : 1025;
        f.capacity[j] = one ? 1 : f.capacity[j] * permille / 1000;
    }
    return f;
}

/* Textbook blocking flows on level graphs. After a path is filled, its first part is reused. */
class plain_dinic
{
    struct arc {
        uint32_t to, back;
        uint64_t left;
    };
    std::vector<std::vector<arc>> node;
    std::vector<uint32_t> level, at;
    void add(uint32_t a, uint32_t b, uint64_t capacity)
    {
        node[a].push_back({b, static_cast<uint32_t>(node[b].size()), capacity});
        node[b].push_back({a, static_cast<uint32_t>(node[a].size() - 1), 0});
    }
    bool levels(uint32_t source, uint32_t sink)
    {
        std::vector<uint32_t> queue{source};
        std::fill(level.begin(), level.end(), UINT32_MAX);
        level[source] = 0;
        for (size_t h = 0; h < queue.size(); h++)
            for (const arc &x : node[queue[h]])
                if (x.left && level[x.to] == UINT32_MAX) {
                    level[x.to] = level[queue[h]] + 1;
                    queue.push_back(x.to);
                }
        return level[sink] != UINT32_MAX;
    }

  public:
    uint64_t flow = 0;
    explicit plain_dinic(const case_data &c) : node(c.servers + c.buckets + 2), level(node.size()), at(node.size())
    {
        uint32_t source = c.servers + c.buckets, sink = source + 1;
        for (uint32_t j = 0; j < c.servers; j++)
            add(j, sink, c.capacity[j]);
        for (uint32_t i = 0; i < c.buckets; i++) {
            add(source, c.servers + i, c.reservation[i]);
            for (uint32_t e = c.row[i]; e < c.row[i + 1]; e++)
                add(c.servers + i, c.server[e], c.demand[e]);
        }
        while (levels(source, sink)) {
            std::vector<arc *> path;
            std::fill(at.begin(), at.end(), 0);
            for (uint32_t v = source;;) {
                if (v == sink) {
                    size_t cut = 0;
                    uint64_t m = UINT64_MAX;
                    for (const arc *x : path)
                        m = std::min(m, x->left);
                    for (size_t k = path.size(); k-- > 0;) {
                        path[k]->left -= m;
                        node[path[k]->to][path[k]->back].left += m;
                        cut = path[k]->left ? cut : k;
                    }
                    flow += m;
                    v = node[path[cut]->to][path[cut]->back].to;
                    path.resize(cut);
                    continue;
                }
                for (; at[v] < node[v].size(); at[v]++)
                    if (node[v][at[v]].left && level[node[v][at[v]].to] == level[v] + 1)
                        break;
                if (at[v] < node[v].size()) {
                    path.push_back(&node[v][at[v]]);
                    v = path.back()->to;
                } else if (v == source) {
                    break;
                } else {
                    v = node[path.back()->to][path.back()->back].to;
                    path.pop_back();
                    at[v]++;
                }
            }
        }
    }
};

#endif
