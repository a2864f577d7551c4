/* ngx_http_qos_config.c - a dynamic module for stock nginx: tenants of a file or object server, scheduled by htb.h.
 *
 *     load_module ngx_http_qos_module.so;
 *     http {
 *         qos_zone name=disks size=10m rate=400m;
 *         qos_tenant zone=disks key=gold reserve=200m limit=300m weight=2;
 *         qos_tenant zone=disks key=* limit=50m;
 *         server {
 *             location /store/ { qos zone=disks key=$http_x_tenant; }
 *             location = /qos  { qos_status; allow 127.0.0.1; deny all; }
 *         }
 *     }
 *
 * qos_zone (http)      name=; size= of the shared memory; rate= bytes per second that the disks sustain. burst= of each
 *                      tenant as time (20ms); chunk= most bytes that move at once (64k); request= bytes that a request
 *                      costs besides its own (0); tenants= most qos_tenant lines, also after reloads (63).
 *                      cluster= the file of a cluster_agent: contracts are the cluster's, qos_tenant has weight= only.
 * qos_tenant (http)    zone=, key=; reserve= guaranteed bytes per second (0); limit= never more (none); weight= its
 *                      share of the surplus (1). key=* is all tenants without a line, together.
 * qos (http, server, location)   zone=, key= any text with variables; over=429: a request whose tenant would have to wait
 *                      is refused with Retry-After, instead of over=wait. `qos off` undoes an outer one.
 * qos_status (location)   text, or prometheus.
 *
 * A reload that nginx commits changes all of this at once, and buckets begin empty; one that fails changes nothing. */
#include "ngx_http_qos.h"

static char *set_zone(ngx_conf_t *cf, ngx_command_t *command, void *conf);
static char *set_tenant(ngx_conf_t *cf, ngx_command_t *command, void *conf);
static char *set_qos(ngx_conf_t *cf, ngx_command_t *command, void *conf);
static char *set_status(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* ---- settings in a line: name=value, name=value, ... */

struct setting {
    const char *name;
    enum { TEXT, BYTES, MILLISECONDS, NUMBER } kind;
    void *to; /* ngx_str_t, or uint64_t */
    const char *give;
};

static bool parse(const struct setting *setting, ngx_str_t *value)
{
    uint64_t *number = setting->to;
    off_t n;
    if (setting->kind == TEXT) {
        *(ngx_str_t *)setting->to = *value;
        return value->len != 0;
    }
    if (setting->kind == MILLISECONDS)
        n = ngx_parse_time(value, 0);
    else if (setting->kind == NUMBER)
        n = ngx_atoi(value->data, value->len);
    else
        n = ngx_parse_offset(value);
    *number = (uint64_t)n;
    return n >= 0;
}

static char *read_line(ngx_conf_t *cf, const struct setting *settings)
{
    ngx_str_t *word = cf->args->elts;
    ngx_uint_t i;
    for (i = 1; i < cf->args->nelts; i++) {
        const struct setting *s;
        size_t len = 0;
        for (s = settings; s->name; s++) {
            len = ngx_strlen(s->name);
            if (word[i].len > len && word[i].data[len] == '=' && ngx_strncmp(word[i].data, s->name, len) == 0)
                break;
        }
        if (s->name) {
            ngx_str_t value = {word[i].len - len - 1, word[i].data + len + 1};
            if (parse(s, &value))
                continue;
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V: \"%V\": give %s", &word[0], &word[i], s->give);
        } else {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V: \"%V\" is no setting of it", &word[0], &word[i]);
        }
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

static char *refuse(ngx_conf_t *cf, const char *why)
{
    ngx_str_t *word = cf->args->elts;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V: %s", &word[0], why);
    return NGX_CONF_ERROR;
}

/* Names go into logs and metrics: no blanks, quotes, backslashes. */
static bool is_name(const ngx_str_t *name)
{
    size_t i;
    for (i = 0; i < name->len; i++)
        if (name->data[i] < 0x21 || name->data[i] == 0x7f || name->data[i] == '"' || name->data[i] == '\\')
            return false;
    return name->len >= 1 && name->len <= QOS_KEY_MAX;
}

static struct qos_zone *find_zone(const struct qos_main_conf *main, const ngx_str_t *name)
{
    struct qos_zone **zone = main->zones.elts;
    ngx_uint_t i;
    for (i = 0; i < main->zones.nelts; i++)
        if (zone[i]->name.len == name->len && ngx_memcmp(zone[i]->name.data, name->data, name->len) == 0)
            return zone[i];
    return NULL;
}

static struct qos_zone *zone_of(ngx_conf_t *cf, ngx_str_t *name)
{
    struct qos_zone *zone =
        name->data ? find_zone(ngx_http_conf_get_module_main_conf(cf, ngx_http_qos_module), name) : NULL;
    ngx_str_t *word = cf->args->elts;
    if (!zone)
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V: zone=%V: write its qos_zone before this line", &word[0], name);
    return zone;
}

/* ---- directives */

static char *set_zone(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct qos_main_conf *main = conf;
    ngx_str_t name = ngx_null_string, cluster = ngx_null_string;
    uint64_t size = 0, rate = 0, burst_ms = 20, chunk = 65536, request = 0, tenants = 63;
    const struct setting settings[] = {{"name", TEXT, &name, "a name"},
                                       {"size", BYTES, &size, "bytes, such as 10m"},
                                       {"rate", BYTES, &rate, "bytes per second, such as 400m"},
                                       {"burst", MILLISECONDS, &burst_ms, "a time, such as 20ms"},
                                       {"chunk", BYTES, &chunk, "bytes, such as 64k"},
                                       {"request", BYTES, &request, "bytes, such as 4k"},
                                       {"tenants", NUMBER, &tenants, "a number"},
                                       {"cluster", TEXT, &cluster, "a file, such as /run/qoskit/tokens"},
                                       {NULL, TEXT, NULL, NULL}};
    struct qos_zone *zone = ngx_pcalloc(cf->pool, sizeof *zone), **place;
    const char *error;
    void *memory;
    (void)command;
    if (!zone || read_line(cf, settings) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    if (!is_name(&name))
        return refuse(cf, "name: give 1 to 63 characters, no blanks, quotes or backslashes");
    if (find_zone(main, &name))
        return refuse(cf, "name: this zone has a line already");
    if (chunk < 4096 || chunk > 16777216)
        return refuse(cf, "chunk: give 4k to 16m");
    if (request > 16777216)
        return refuse(cf, "request: give at most 16m");
    if (tenants < 1 || tenants > QOS_TENANTS_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "qos_zone: tenants: give 1 to %uD", (uint32_t)QOS_TENANTS_MAX);
        return NGX_CONF_ERROR;
    }
    if (cluster.len != 0 && cluster.data[0] != '/')
        return refuse(cf, "cluster: give the file's whole path");
    if (burst_ms < 1 || burst_ms > 10000)
        return refuse(cf, "burst: give 1ms to 10s");
    zone->chunk = (size_t)chunk;
    zone->request_cost = (size_t)request;
    zone->config.classes = (uint32_t)tenants + 1;
    zone->config.rate_per_s[0] = rate;
    zone->config.burst_ns = burst_ms * 1000000;
    zone->config.request_max_tokens = chunk;
    zone->config.order = HTB_FIFO;
    zone->config.bound = HTB_BY_RATE; /* rate= is a bound, not only a promise */
    error = htb_config_error(&zone->config);
    if (error)
        return refuse(cf, error);
    if (size < qos_zone_least_size(&zone->config)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "qos_zone: size: give at least %uzk",
                           qos_zone_least_size(&zone->config) / 1024);
        return NGX_CONF_ERROR;
    }
    zone->name = name;
    zone->cluster_path = cluster; /* ends with a 0, as words of a configuration do */
    ngx_rbtree_init(&zone->ids, &zone->sentinel, ngx_str_rbtree_insert_value);
    memory = ngx_pmemalign(cf->pool, htb_memsize(&zone->config), QOS_CACHE_LINE);
    place = ngx_array_push(&main->zones);
    if (!memory || !place || ngx_array_init(&zone->lines, cf->pool, 8, sizeof(struct qos_line *)) != NGX_OK ||
        htb_init(&zone->probe, memory, htb_memsize(&zone->config), &zone->config) != QOS_OK ||
        qos_zone_open(cf, zone, (size_t)size) != NGX_OK)
        return NGX_CONF_ERROR;
    *place = zone;
    return NGX_CONF_OK;
}

static char *set_tenant(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    ngx_str_t name = ngx_null_string, key = ngx_null_string;
    uint64_t reserve = 0, limit = 0, weight = 1, fits = 0;
    const struct setting settings[] = {{"zone", TEXT, &name, "the name of a zone"},
                                       {"key", TEXT, &key, "the tenant's key"},
                                       {"reserve", BYTES, &reserve, "bytes per second, such as 200m"},
                                       {"limit", BYTES, &limit, "bytes per second, such as 300m"},
                                       {"weight", NUMBER, &weight, "a number"},
                                       {NULL, TEXT, NULL, NULL}};
    struct htb_class terms = {.parent = 0};
    struct qos_zone *zone;
    struct qos_line *line, **place;
    enum qos_status status;
    const char *error;
    (void)command;
    (void)conf;
    if (read_line(cf, settings) != NGX_CONF_OK || !(zone = zone_of(cf, &name)))
        return NGX_CONF_ERROR;
    if (!is_name(&key))
        return refuse(cf, "key: give 1 to 63 characters, no blanks, quotes or backslashes");
    if (weight < 1 || weight > HTB_WEIGHT_MAX)
        return refuse(cf, "weight: give 1 to 1000000");
    terms.rate_per_s[0] = reserve;
    terms.limit_per_s[0] = limit;
    terms.weight = (uint32_t)weight;
    error = htb_class_error(&terms);
    if (error)
        return refuse(cf, error);
    if (key.len == 1 && key.data[0] == '*') {
        if (zone->others_set)
            return refuse(cf, "key=*: this zone has such a line already");
        status = htb_change(&zone->probe, 0, HTB_BEST_EFFORT, &terms, &fits);
        zone->others = terms;
        zone->others_set = true;
    } else {
        if (zone->cluster_path.len != 0 && (reserve != 0 || limit != 0))
            return refuse(cf, "reserve and limit of this zone's tenants are the cluster's: put them into etcd");
        if (qos_zone_line(zone, &key))
            return refuse(cf, "key: it has a line already");
        if (zone->lines.nelts + 1 >= zone->config.classes)
            return refuse(cf, "the zone has room for no more: give its qos_zone a larger tenants=");
        status = htb_reserve(&zone->probe, 0, (uint32_t)zone->lines.nelts + 1, &terms, &fits);
        line = ngx_pcalloc(cf->pool, sizeof *line);
        place = ngx_array_push(&zone->lines);
        if (!line || !place)
            return NGX_CONF_ERROR;
        *place = line;
        line->node.str = key;
        line->node.node.key = ngx_crc32_long(key.data, key.len);
        line->terms = terms;
        ngx_rbtree_insert(&zone->ids, &line->node.node);
    }
    if (status == QOS_OK)
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "qos_tenant: key=%V: %s; %uL bytes per second are left to reserve", &key,
                       qos_strerror(status), fits);
    return NGX_CONF_ERROR;
}

static bool is_variable(const ngx_str_t *text)
{
    size_t i;
    if (text->len < 2 || text->data[0] != '$')
        return false;
    for (i = 1; i < text->len; i++) {
        const u_char c = text->data[i], small = c | 0x20;
        if (!(small >= 'a' && small <= 'z') && c != '_' && !(c >= '0' && c <= '9' && i > 1))
            return false;
    }
    return true;
}

static char *set_qos(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct qos_loc_conf *loc = conf;
    ngx_str_t *word = cf->args->elts, name = ngx_null_string, key = ngx_null_string, over = ngx_string("wait");
    const struct setting settings[] = {{"zone", TEXT, &name, "the name of a zone"},
                                       {"key", TEXT, &key, "the tenant's key: text and variables"},
                                       {"over", TEXT, &over, "wait or 429"},
                                       {NULL, TEXT, NULL, NULL}};
    ngx_http_compile_complex_value_t compile;
    (void)command;
    if (loc->zone != NGX_CONF_UNSET_PTR)
        return refuse(cf, "there is one already here");
    if (cf->args->nelts == 2 && ngx_strcmp(word[1].data, "off") == 0) {
        loc->zone = NULL;
        return NGX_CONF_OK;
    }
    if (read_line(cf, settings) != NGX_CONF_OK || !(loc->zone = zone_of(cf, &name)))
        return NGX_CONF_ERROR;
    if (key.len == 0)
        return refuse(cf, "key: give the tenant's key, such as key=$http_x_tenant");
    loc->reject = over.len == 3 && ngx_strncmp(over.data, "429", 3) == 0;
    if (!loc->reject && (over.len != 4 || ngx_strncmp(over.data, "wait", 4) != 0))
        return refuse(cf, "over: give wait or 429");
    if (is_variable(&key)) { /* most keys: the value is there without a copy */
        key.data++;
        key.len--;
        loc->variable = ngx_http_get_variable_index(cf, &key);
        return loc->variable == NGX_ERROR ? NGX_CONF_ERROR : NGX_CONF_OK;
    }
    loc->key = ngx_pcalloc(cf->pool, sizeof *loc->key);
    if (!loc->key)
        return NGX_CONF_ERROR;
    ngx_memzero(&compile, sizeof compile);
    compile.cf = cf;
    compile.value = &key;
    compile.complex_value = loc->key;
    return ngx_http_compile_complex_value(&compile) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

/* ---- status page */

static ngx_str_t tenant_name(const struct qos_report *t)
{
    ngx_str_t others = ngx_string("*"), name = {t->account.key_len, (u_char *)t->account.key};
    return t->account.key_len == 0 ? others : name;
}

static uint64_t waits(const struct qos_report *t)
{
    uint64_t n = 0;
    uint32_t i;
    for (i = 1; i < QOS_WAIT_STEPS; i++)
        n += t->account.wait[i];
    return n;
}

static u_char *print_text(u_char *p, u_char *end, struct qos_zone *zone, const struct qos_report *t, ngx_uint_t n)
{
    struct qos_totals totals;
    ngx_str_t name;
    uint32_t i;
    qos_zone_totals(zone, &totals);
    p = ngx_slprintf(p, end, "zone %V: at_ns %uL, rate %uL, reserved %uL, waiting %uL, rebuilt %uL, abandoned %uL\n",
                     &zone->name, totals.at_ns, totals.state.rate_per_s[0], totals.state.reserved_per_s[0],
                     totals.state.queued, totals.rebuilt, totals.abandoned);
    p = ngx_slprintf(p, end,
                     "tenant reserve limit weight requests rejected response_bytes request_bytes borrowed waits "
                     "waiting waited_ms wait_log2_us\n");
    for (; n > 0; n--, t++) {
        const uint64_t *refused = t->account.refused;
        name = tenant_name(t);
        p = ngx_slprintf(p, end, "%V %uL %uL %uD %uL %uL %uL %uL %uL %uL %uD %uL ", &name, t->terms.rate_per_s[0],
                         t->terms.limit_per_s[0], t->terms.weight, t->count.requests,
                         refused[QOS_OVER_LIMIT] + refused[QOS_OVER_CONNECTIONS] + refused[QOS_OVER_PLACES],
                         t->count.bytes[QOS_READ], t->count.bytes[QOS_WRITE], t->account.borrowed, waits(t),
                         t->account.waiting, t->account.waited_ns / 1000000);
        for (i = 0; i < QOS_WAIT_STEPS; i++)
            p = ngx_slprintf(p, end, i + 1 < QOS_WAIT_STEPS ? "%uL," : "%uL\n", t->account.wait[i]);
    }
    return p;
}

/* ---- metrics, in the text format of Prometheus */

#define METRIC_ROOM 160 /* bytes of one line, beside the names */
#define TEXT_ROOM 384   /* of one line of the text, beside the name and the waits */

enum metric {
    REQUESTS,
    OVER_LIMIT,
    OVER_CONNECTIONS,
    OVER_PLACES,
    RESPONSE_BYTES,
    REQUEST_BYTES,
    BORROWED_BYTES,
    WAITING,
    RESERVE,
    LIMIT,
    METRICS
};

static const struct {
    const char *name, *type, *help, *label; /* lines of one name stand together */
} metrics[METRICS] = {
    [REQUESTS] = {"requests_total", "counter", "Requests that began.", ""},
    [OVER_LIMIT] = {"rejected_total", "counter", "Requests that were refused, by the reason.", ",reason=\"limit\""},
    [OVER_CONNECTIONS] = {"rejected_total", NULL, NULL, ",reason=\"connections\""},
    [OVER_PLACES] = {"rejected_total", NULL, NULL, ",reason=\"places\""},
    [RESPONSE_BYTES] = {"response_bytes_total", "counter", "Bytes of responses' bodies that were charged.", ""},
    [REQUEST_BYTES] = {"request_bytes_total", "counter", "Bytes of requests' bodies and fixed costs charged.", ""},
    [BORROWED_BYTES] = {"borrowed_bytes_total", "counter", "Bytes beyond the tenant's own reservation.", ""},
    [WAITING] = {"waiting", "gauge", "Requests that wait for their bytes now.", ""},
    [RESERVE] = {"reserve_bytes_per_second", "gauge", "What is guaranteed; 0: nothing.", ""},
    [LIMIT] = {"limit_bytes_per_second", "gauge", "What is never exceeded; 0: no limit.", ""},
};

/* Bounds of the histogram: steps of qos_account.wait, in us. */
static const struct {
    uint32_t steps;
    const char *seconds;
} bounds[] = {{1, "0"}, {11, "0.001024"}, {14, "0.008192"}, {17, "0.065536"}, {20, "0.524288"}, {23, "4.194304"}};

static uint64_t metric(const struct qos_report *t, enum metric i)
{
    switch (i) {
    case REQUESTS: return t->count.requests;
    case OVER_LIMIT: return t->account.refused[QOS_OVER_LIMIT];
    case OVER_CONNECTIONS: return t->account.refused[QOS_OVER_CONNECTIONS];
    case OVER_PLACES: return t->account.refused[QOS_OVER_PLACES];
    case RESPONSE_BYTES: return t->count.bytes[QOS_READ];
    case REQUEST_BYTES: return t->count.bytes[QOS_WRITE];
    case BORROWED_BYTES: return t->account.borrowed;
    case WAITING: return t->account.waiting;
    case RESERVE: return t->terms.rate_per_s[0];
    case LIMIT: return t->terms.limit_per_s[0];
    default: return 0;
    }
}

/* Length of the UTF-8 character at p; 0: there is none. */
static size_t utf8_len(const u_char *p, const u_char *end)
{
    const size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    size_t i;
    if (len > (size_t)(end - p))
        return 0;
    for (i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if (len < 3) /* too long for its point, a surrogate, or above the last point */
        return len;
    return (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
                   (p[0] == 0xf4 && p[1] > 0x8f)
               ? 0
               : len;
}

/* A label's value must be UTF-8: other bytes are written as \\xHH. Names have no quotes and no backslashes. */
static u_char *label(u_char *p, u_char *end, const ngx_str_t *name)
{
    const u_char *at = name->data, *last = name->data + name->len;
    size_t len;
    for (; at < last; at += ngx_max(len, 1)) {
        len = utf8_len(at, last);
        p = len ? ngx_slprintf(p, end, "%*s", len, at) : ngx_slprintf(p, end, "\\\\x%02xi", (ngx_int_t)*at);
    }
    return p;
}

static size_t label_room(const ngx_str_t *name)
{
    size_t i, room = name->len;
    for (i = 0; i < name->len; i++)
        room += name->data[i] < 0x80 ? 0 : 4;
    return room;
}

/* qos_NAME{zone="...",tenant="..."MORE} */
static u_char *print_name(u_char *p, u_char *end, const char *name, const struct qos_zone *zone,
                          const struct qos_report *t, const char *more)
{
    const ngx_str_t tenant = tenant_name(t);
    p = ngx_slprintf(p, end, "qos_%s{zone=\"", name);
    p = label(p, end, &zone->name);
    p = ngx_slprintf(p, end, "\",tenant=\"");
    p = label(p, end, &tenant);
    return ngx_slprintf(p, end, "\"%s} ", more);
}

static u_char *print_waits(u_char *p, u_char *end, const struct qos_zone *zone, const struct qos_report *t)
{
    u_char more[64];
    uint64_t n = 0;
    uint32_t i, step = 0;
    for (i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        for (; step < bounds[i].steps; step++)
            n += t->account.wait[step];
        *ngx_snprintf(more, sizeof more - 1, ",le=\"%s\"", bounds[i].seconds) = '\0';
        p = print_name(p, end, "wait_seconds_bucket", zone, t, (char *)more);
        p = ngx_slprintf(p, end, "%uL\n", n);
    }
    for (; step < QOS_WAIT_STEPS; step++)
        n += t->account.wait[step];
    p = print_name(p, end, "wait_seconds_bucket", zone, t, ",le=\"+Inf\"");
    p = ngx_slprintf(p, end, "%uL\n", n);
    p = print_name(p, end, "wait_seconds_sum", zone, t, "");
    p = ngx_slprintf(p, end, "%uL.%06uL\n", t->account.wait_ns / QOS_NS_PER_S,
                     t->account.wait_ns % QOS_NS_PER_S / 1000);
    p = print_name(p, end, "wait_seconds_count", zone, t, "");
    return ngx_slprintf(p, end, "%uL\n", n);
}

/* Tenants without a request have no histogram. */
static size_t prometheus_room(const struct qos_zone *zone, const struct qos_report *t, ngx_uint_t n)
{
    const size_t zone_room = METRIC_ROOM + label_room(&zone->name), waits_lines = sizeof bounds / sizeof *bounds + 3;
    size_t room = 0;
    for (; n > 0; n--, t++) {
        const ngx_str_t name = tenant_name(t);
        room += (METRICS + (t->count.takes ? waits_lines : 0)) * (zone_room + label_room(&name));
    }
    return room;
}

static u_char *print_prometheus(u_char *p, u_char *end, const struct qos_main_conf *main,
                                struct qos_report *const *reports, const ngx_uint_t *n)
{
    struct qos_zone **zone = main->zones.elts;
    ngx_uint_t z, k;
    enum metric i;
    for (i = 0; i < METRICS; i++) {
        if (metrics[i].type)
            p = ngx_slprintf(p, end, "# HELP qos_%s %s\n# TYPE qos_%s %s\n", metrics[i].name, metrics[i].help,
                             metrics[i].name, metrics[i].type);
        for (z = 0; z < main->zones.nelts; z++)
            for (k = 0; k < n[z]; k++) {
                p = print_name(p, end, metrics[i].name, zone[z], &reports[z][k], metrics[i].label);
                p = ngx_slprintf(p, end, "%uL\n", metric(&reports[z][k], i));
            }
    }
    p = ngx_slprintf(p, end,
                     "# HELP qos_wait_seconds How long a piece of a body waited.\n"
                     "# TYPE qos_wait_seconds histogram\n");
    for (z = 0; z < main->zones.nelts; z++)
        for (k = 0; k < n[z]; k++)
            if (reports[z][k].count.takes)
                p = print_waits(p, end, zone[z], &reports[z][k]);
    return p;
}

static ngx_int_t print_status(ngx_http_request_t *r, bool prometheus)
{
    struct qos_main_conf *main = ngx_http_get_module_main_conf(r, ngx_http_qos_module);
    struct qos_zone **zone = main->zones.elts;
    const ngx_str_t text = ngx_string("text/plain"), for_prometheus = ngx_string("text/plain; version=0.0.4");
    struct qos_report **reports = ngx_pcalloc(r->pool, (main->zones.nelts + 1) * sizeof(void *));
    ngx_uint_t *n = ngx_pcalloc(r->pool, (main->zones.nelts + 1) * sizeof *n), z;
    size_t room = 4096;
    ngx_chain_t out;
    ngx_int_t rc;
    ngx_buf_t *b;
    uint32_t id, ids;
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    if (!reports || !n || ngx_http_discard_request_body(r) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    for (z = 0; z < main->zones.nelts; z++) {
        ids = qos_zone_accounts(zone[z]);
        reports[z] = ngx_pmemalign(r->pool, ids * sizeof(struct qos_report), QOS_CACHE_LINE);
        if (!reports[z])
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        for (id = 0; id < ids; id++)
            n[z] += qos_zone_report(zone[z], id, &reports[z][n[z]]);
        room += prometheus ? prometheus_room(zone[z], reports[z], n[z])
                           : 512 + n[z] * (TEXT_ROOM + QOS_KEY_MAX + 21 * QOS_WAIT_STEPS);
    }
    b = ngx_create_temp_buf(r->pool, room);
    if (!b)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (prometheus)
        b->last = print_prometheus(b->last, b->end, main, reports, n);
    for (z = 0; z < main->zones.nelts && !prometheus; z++)
        b->last = print_text(b->last, b->end, zone[z], reports[z], n[z]);
    b->last_buf = r == r->main;
    b->last_in_chain = 1;
    r->headers_out.content_type = prometheus ? for_prometheus : text;
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    out.buf = b;
    out.next = NULL;
    return ngx_http_output_filter(r, &out);
}

static ngx_int_t print_as_text(ngx_http_request_t *r)
{
    return print_status(r, false);
}

static ngx_int_t print_for_prometheus(ngx_http_request_t *r)
{
    return print_status(r, true);
}

static char *set_status(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_str_t *word = cf->args->elts;
    (void)command;
    (void)conf;
    core->handler = print_as_text;
    if (cf->args->nelts == 2 && ngx_strcmp(word[1].data, "prometheus") == 0)
        core->handler = print_for_prometheus;
    else if (cf->args->nelts == 2 && ngx_strcmp(word[1].data, "text") != 0)
        return refuse(cf, "give text or prometheus");
    return NGX_CONF_OK;
}

/* ---- the module */

static void *create_main_conf(ngx_conf_t *cf)
{
    struct qos_main_conf *main = ngx_pcalloc(cf->pool, sizeof *main);
    return main && ngx_array_init(&main->zones, cf->pool, 2, sizeof(struct qos_zone *)) == NGX_OK ? main : NULL;
}

static void *create_loc_conf(ngx_conf_t *cf)
{
    struct qos_loc_conf *loc = ngx_pcalloc(cf->pool, sizeof *loc);
    if (loc)
        loc->zone = NGX_CONF_UNSET_PTR;
    return loc;
}

static char *merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    struct qos_loc_conf *outer = parent, *inner = child;
    (void)cf;
    if (inner->zone == NGX_CONF_UNSET_PTR)
        *inner = *outer;
    if (inner->zone == NGX_CONF_UNSET_PTR)
        inner->zone = NULL;
    return NGX_CONF_OK;
}

static ngx_int_t install(ngx_conf_t *cf)
{
    const struct qos_main_conf *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_qos_module);
    return main->zones.nelts == 0 ? NGX_OK : qos_filter_install(cf);
}

/* The zones of a configuration; none without a block http. */
static ngx_uint_t zones_of(ngx_cycle_t *cycle, struct qos_zone ***zone)
{
    struct qos_main_conf *main =
        cycle->conf_ctx[ngx_http_module.index] ? ngx_http_cycle_get_module_main_conf(cycle, ngx_http_qos_module) : NULL;
    *zone = main ? main->zones.elts : NULL;
    return main ? main->zones.nelts : 0;
}

static ngx_int_t init_module(ngx_cycle_t *cycle)
{
    struct qos_zone **zone;
    ngx_uint_t n = zones_of(cycle, &zone), i;
    for (i = 0; i < n; i++)
        qos_zone_commit(zone[i]);
    return NGX_OK;
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
    struct qos_zone **zone;
    ngx_uint_t n = zones_of(cycle, &zone), i;
    ngx_int_t rc = NGX_OK;
    for (i = 0; i < n && rc == NGX_OK; i++)
        rc = qos_zone_attach(zone[i], cycle->log);
    return rc;
}

static void exit_process(ngx_cycle_t *cycle)
{
    struct qos_zone **zone;
    ngx_uint_t n = zones_of(cycle, &zone), i;
    for (i = 0; i < n; i++)
        qos_zone_detach(zone[i]);
}

static ngx_command_t commands[] = {
    {ngx_string("qos_zone"), NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE, set_zone, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    {ngx_string("qos_tenant"), NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE, set_tenant, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    {ngx_string("qos"), NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_1MORE, set_qos,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("qos_status"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1, set_status,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    ngx_null_command};

static ngx_http_module_t context = {.postconfiguration = install,
                                    .create_main_conf = create_main_conf,
                                    .create_loc_conf = create_loc_conf,
                                    .merge_loc_conf = merge_loc_conf};

ngx_module_t ngx_http_qos_module = {NGX_MODULE_V1, &context, commands, NGX_HTTP_MODULE, NULL, init_module,
                                    init_process,  NULL,     NULL,     exit_process,    NULL, NGX_MODULE_V1_PADDING};
