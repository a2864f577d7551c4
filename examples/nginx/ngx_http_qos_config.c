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
 * qos_tenant (http)    zone=, key=; reserve= guaranteed bytes per second (0); limit= never more (none); weight= its
 *                      share of the surplus (1). key=* is all tenants without a line, together.
 * qos (http, server, location)   zone=, key= any text with variables; over=429: a request whose tenant would have to wait
 *                      is refused with Retry-After, instead of over=wait. `qos off` undoes an outer one.
 * qos_status (location)   text, or prometheus.
 *
 * A reload changes rates, limits, weights and tenants at once and keeps buckets, if name, size, burst, chunk and tenants
 * of the zone are unchanged; else it makes a new zone. */
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

static struct qos_zone *zone_of(ngx_conf_t *cf, ngx_str_t *name)
{
    struct qos_main_conf *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_qos_module);
    struct qos_zone **zone = main->zones.elts;
    ngx_str_t *word = cf->args->elts;
    ngx_uint_t i;
    for (i = 0; i < main->zones.nelts && name->data; i++)
        if (zone[i]->shm_zone->shm.name.len == name->len &&
            ngx_strncmp(zone[i]->shm_zone->shm.name.data, name->data, name->len) == 0)
            return zone[i];
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V: zone=%V: write its qos_zone before this line", &word[0], name);
    return NULL;
}

/* ---- directives */

static char *set_zone(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct qos_main_conf *main = conf;
    ngx_str_t name = ngx_null_string;
    uint64_t size = 0, rate = 0, burst_ms = 20, chunk = 65536, request = 0, tenants = 63;
    const struct setting settings[] = {{"name", TEXT, &name, "a name"},
                                       {"size", BYTES, &size, "bytes, such as 10m"},
                                       {"rate", BYTES, &rate, "bytes per second, such as 400m"},
                                       {"burst", MILLISECONDS, &burst_ms, "a time, such as 20ms"},
                                       {"chunk", BYTES, &chunk, "bytes, such as 64k"},
                                       {"request", BYTES, &request, "bytes, such as 4k"},
                                       {"tenants", NUMBER, &tenants, "a number"},
                                       {NULL, TEXT, NULL, NULL}};
    struct qos_zone *zone = ngx_pcalloc(cf->pool, sizeof *zone), **place;
    const char *error;
    void *memory;
    (void)command;
    if (!zone || read_line(cf, settings) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    if (name.len == 0)
        return refuse(cf, "name: give it a name");
    if (chunk < 4096 || chunk > 16777216)
        return refuse(cf, "chunk: give 4k to 16m");
    if (request > 16777216)
        return refuse(cf, "request: give at most 16m");
    if (tenants < 1 || tenants > 65535)
        return refuse(cf, "tenants: give 1 to 65535");
    if (burst_ms < 1 || burst_ms > 10000)
        return refuse(cf, "burst: give 1ms to 10s");
    zone->chunk = (size_t)chunk;
    zone->request_cost = (size_t)request;
    zone->config.classes = (uint32_t)tenants + 1;
    zone->config.rate_per_s[0] = rate;
    zone->config.burst_ns = burst_ms * 1000000;
    zone->config.request_max_tokens = chunk;
    zone->config.order = HTB_FIFO;
    error = htb_config_error(&zone->config);
    if (error)
        return refuse(cf, error);
    if (size < qos_zone_least_size(&zone->config)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "qos_zone: size: give at least %uzk",
                           qos_zone_least_size(&zone->config) / 1024);
        return NGX_CONF_ERROR;
    }
    zone->shm_zone = ngx_shared_memory_add(cf, &name, (size_t)size, &ngx_http_qos_module);
    if (!zone->shm_zone)
        return NGX_CONF_ERROR;
    if (zone->shm_zone->data)
        return refuse(cf, "name: this zone has a line already");
    zone->shm_zone->data = zone;
    zone->shm_zone->init = qos_zone_init;
    memory = ngx_pmemalign(cf->pool, htb_memsize(&zone->config), QOS_CACHE_LINE);
    zone->ahead = ngx_pcalloc(cf->pool, zone->config.classes * sizeof *zone->ahead);
    place = ngx_array_push(&main->zones);
    if (!memory || !zone->ahead || !place ||
        ngx_array_init(&zone->lines, cf->pool, 8, sizeof(struct qos_line)) != NGX_OK ||
        htb_init(&zone->probe, memory, htb_memsize(&zone->config), &zone->config) != QOS_OK)
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
    struct qos_line *line;
    enum qos_status status;
    const char *error;
    ngx_uint_t i;
    (void)command;
    (void)conf;
    if (read_line(cf, settings) != NGX_CONF_OK || !(zone = zone_of(cf, &name)))
        return NGX_CONF_ERROR;
    if (key.len < 1 || key.len > QOS_KEY_MAX)
        return refuse(cf, "key: give 1 to 63 characters");
    for (i = 0; i < key.len; i++)
        if (key.data[i] < 0x21 || key.data[i] == 0x7f || key.data[i] == '"' || key.data[i] == '\\')
            return refuse(cf, "key: no blanks, quotes or backslashes");
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
        line = zone->lines.elts;
        for (i = 0; i < zone->lines.nelts; i++)
            if (line[i].node.str.len == key.len && ngx_memcmp(line[i].node.str.data, key.data, key.len) == 0)
                return refuse(cf, "key: it has a line already");
        if (zone->lines.nelts + 1 >= zone->config.classes)
            return refuse(cf, "the zone has room for no more: give its qos_zone a larger tenants=");
        status = htb_reserve(&zone->probe, 0, (uint32_t)zone->lines.nelts + 1, &terms, &fits);
        line = ngx_array_push(&zone->lines);
        if (!line)
            return NGX_CONF_ERROR;
        ngx_memzero(line, sizeof *line);
        line->node.str = key;
        line->terms = terms;
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

static const struct {
    const char *name, *type;
} metrics[] = {{"requests_total", "counter"},
               {"rejected_total", "counter"},
               {"response_bytes_total", "counter"},
               {"request_bytes_total", "counter"},
               {"borrowed_bytes_total", "counter"},
               {"waits_total", "counter"},
               {"waiting", "gauge"},
               {"reserve_bytes_per_second", "gauge"},
               {"limit_bytes_per_second", "gauge"}};

static uint64_t metric(const struct qos_report *t, size_t i)
{
    const struct htb_class *terms = &t->tenant.terms;
    const uint64_t values[] = {t->count.requests,         t->tenant.rejected,   t->count.bytes[QOS_READ],
                               t->count.bytes[QOS_WRITE], t->stats.borrowed,    t->stats.waited,
                               t->tenant.waiting,         terms->rate_per_s[0], terms->limit_per_s[0]};
    return values[i];
}

static ngx_str_t tenant_name(const struct qos_report *t)
{
    ngx_str_t others = ngx_string("*"), name = {t->tenant.key_len, (u_char *)t->tenant.key};
    return t->tenant.key_len == 0 ? others : name;
}

static u_char *print_text(u_char *p, u_char *end, struct qos_zone *zone)
{
    struct qos_report t;
    struct qos_totals totals;
    uint32_t id, i;
    ngx_str_t name;
    qos_zone_totals(zone, &totals);
    p = ngx_slprintf(p, end, "zone %V: at_ns %uL, rate %uL, reserved %uL, waiting %uL, rebuilt %uL, abandoned %uL\n",
                     &zone->shm_zone->shm.name, totals.at_ns, totals.state.rate_per_s[0],
                     totals.state.reserved_per_s[0], totals.state.queued, totals.rebuilt, totals.abandoned);
    p = ngx_slprintf(p, end,
                     "tenant reserve limit weight requests rejected response_bytes request_bytes borrowed waits "
                     "waiting waited_ms wait_log2_us\n");
    for (id = 0; id < zone->config.classes; id++) {
        if (!qos_zone_report(zone, id, &t))
            continue;
        name = tenant_name(&t);
        p = ngx_slprintf(p, end, "%V %uL %uL %uD %uL %uL %uL %uL %uL %uL %uD %uL ", &name, metric(&t, 7), metric(&t, 8),
                         t.tenant.terms.weight, metric(&t, 0), metric(&t, 1), metric(&t, 2), metric(&t, 3),
                         metric(&t, 4), metric(&t, 5), t.tenant.waiting, t.tenant.waited_ns / 1000000);
        for (i = 0; i < QOS_WAIT_STEPS; i++)
            p = ngx_slprintf(p, end, i + 1 < QOS_WAIT_STEPS ? "%uL," : "%uL\n", t.tenant.wait[i]);
    }
    return p;
}

static u_char *print_prometheus(u_char *p, u_char *end, struct qos_main_conf *main)
{
    struct qos_zone **zone = main->zones.elts;
    struct qos_report t;
    ngx_str_t name;
    ngx_uint_t z;
    uint32_t id;
    size_t i;
    for (i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        p = ngx_slprintf(p, end, "# TYPE qos_%s %s\n", metrics[i].name, metrics[i].type);
        for (z = 0; z < main->zones.nelts; z++)
            for (id = 0; id < zone[z]->config.classes; id++)
                if (qos_zone_report(zone[z], id, &t)) {
                    name = tenant_name(&t);
                    p = ngx_slprintf(p, end, "qos_%s{zone=\"%V\",tenant=\"%V\"} %uL\n", metrics[i].name,
                                     &zone[z]->shm_zone->shm.name, &name, metric(&t, i));
                }
    }
    return p;
}

static ngx_int_t print_status(ngx_http_request_t *r, bool prometheus)
{
    struct qos_main_conf *main = ngx_http_get_module_main_conf(r, ngx_http_qos_module);
    struct qos_zone **zone = main->zones.elts;
    const ngx_str_t text = ngx_string("text/plain"), for_prometheus = ngx_string("text/plain; version=0.0.4");
    size_t room = 1024;
    ngx_chain_t out;
    ngx_uint_t z;
    ngx_int_t rc;
    ngx_buf_t *b;
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    if (ngx_http_discard_request_body(r) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    for (z = 0; z < main->zones.nelts; z++)
        room += 512 + (zone[z]->shm_zone->shm.name.len + QOS_KEY_MAX + 320 + 21 * QOS_WAIT_STEPS) *
                          (zone[z]->lines.nelts + 1) * (prometheus ? sizeof metrics / sizeof *metrics : 1);
    b = ngx_create_temp_buf(r->pool, room);
    if (!b)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (prometheus)
        b->last = print_prometheus(b->last, b->end, main);
    for (z = 0; z < main->zones.nelts && !prometheus; z++)
        b->last = print_text(b->last, b->end, zone[z]);
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

/* The running zone of the same name stays in use if the new one has its shape; otherwise the new one gets its own
 * memory. */
static void look_at_old_zone(ngx_conf_t *cf, struct qos_zone *zone)
{
    ngx_list_part_t *part = &cf->cycle->old_cycle->shared_memory.part;
    ngx_uint_t i;
    for (; part; part = part->next) {
        ngx_shm_zone_t *old = part->elts;
        for (i = 0; i < part->nelts; i++)
            if (old[i].tag == &ngx_http_qos_module && old[i].shm.name.len == zone->shm_zone->shm.name.len &&
                ngx_strncmp(old[i].shm.name.data, zone->shm_zone->shm.name.data, old[i].shm.name.len) == 0 &&
                old[i].data && !qos_zone_same_structure(old[i].data, zone))
                zone->shm_zone->noreuse = 1;
    }
}

static ngx_int_t install(ngx_conf_t *cf)
{
    struct qos_main_conf *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_qos_module);
    struct qos_zone **zone = main->zones.elts;
    ngx_uint_t i;
    for (i = 0; i < main->zones.nelts; i++)
        look_at_old_zone(cf, zone[i]);
    return main->zones.nelts == 0 ? NGX_OK : qos_filter_install(cf);
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
    struct qos_main_conf *main =
        cycle->conf_ctx[ngx_http_module.index] ? ngx_http_cycle_get_module_main_conf(cycle, ngx_http_qos_module) : NULL;
    struct qos_zone **zone = main ? main->zones.elts : NULL;
    ngx_uint_t i;
    for (i = 0; main && i < main->zones.nelts; i++)
        qos_zone_attach(zone[i], cycle->log);
    return NGX_OK;
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

ngx_module_t ngx_http_qos_module = {NGX_MODULE_V1, &context, commands,     NGX_HTTP_MODULE,
                                    NULL,          NULL,     init_process, NULL,
                                    NULL,          NULL,     NULL,         NGX_MODULE_V1_PADDING};
