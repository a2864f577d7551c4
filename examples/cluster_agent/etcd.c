// etcd's JSON gateway by libcurl. A request that fails is not sent again by itself: its caller decides. The next request goes
// to the next endpoint. With a login, requests wait for etcd's token, which is asked for again when etcd knows it no more.
#include "etcd.h"
#include "common.h"
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CALLS_MAX 16
#define ENDPOINTS_MAX 8

enum call_kind { CALL_REQUEST, CALL_WATCH, CALL_LOGIN };
struct call {
    CURL *easy; /* NULL: free */
    enum call_kind kind;
    etcd_done done;
    void (*changed)(void);
    char *request, *body;
    struct curl_slist *headers;
    size_t bytes;
    bool sent;
    char why[CURL_ERROR_SIZE]; /* it failed, in libcurl's words */
};

static struct {
    struct etcd_config config;
    CURLM *multi;
    struct call call[CALLS_MAX];
    char endpoint[ENDPOINTS_MAX][256];
    uint32_t endpoints, at;
    char *token; /* NULL: none yet */
    bool known;  /* there was one: a login that is wrong now is no reason to end */
    char no_login[500];
} e;

/* ---- texts ------------------------------------------------------------------------------------------------------ */

/* The base64 of prefix and text, between quotation marks. end: of the first key after all that begin so. */
static char *quoted(const char *prefix, const char *text, bool end)
{
    const size_t n = strlen(prefix) + strlen(text);
    char *whole = tool_alloc(n + 1), *out = tool_alloc(BASE64_ROOM(n) + 2);
    memcpy(whole, prefix, strlen(prefix));
    memcpy(whole + strlen(prefix), text, strlen(text));
    if (end && n)
        whole[n - 1]++; /* the last character of a prefix is a slash or a letter */
    out[0] = '"';
    base64_encode(whole, n, out + 1);
    out[strlen(out)] = '"';
    free(whole);
    return out;
}

static char *key_text(const char *key)
{
    return quoted(e.config.prefix, key, false);
}

/* A name or a password as JSON has it. */
static void append_escaped(char *to, const char *text)
{
    for (to += strlen(to); *text; text++) {
        if (*text == '"' || *text == '\\')
            *to++ = '\\';
        *to++ = *text;
    }
    *to = 0;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* Returns fewer bytes to end the transfer. A watch ends with the first line that tells more than that it began. */
static size_t received(char *data, size_t one, size_t bytes, void *arg)
{
    struct call *c = arg;
    (void)one;
    if (c->bytes + bytes > ETCD_BODY_BYTES_MAX)
        return 0;
    c->body = tool_grow(c->body, c->bytes + bytes + 1);
    memcpy(c->body + c->bytes, data, bytes);
    c->bytes += bytes;
    c->body[c->bytes] = 0;
    if (c->kind == CALL_WATCH) {
        const char *line = strchr(c->body, '\n');
        if ((line && line[1]) || strstr(c->body, "\"events\"") || strstr(c->body, "\"canceled\"") ||
            strstr(c->body, "\"error\""))
            return 0;
    }
    return bytes;
}

static void send_now(struct call *c)
{
    c->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (e.token && c->kind != CALL_LOGIN) { /* a JSON Web Token may be of any length */
        char *line = tool_alloc(strlen(e.token) + 20);
        sprintf(line, "Authorization: %s", e.token);
        c->headers = curl_slist_append(c->headers, line);
        free(line);
    }
    c->sent = true;
    (void)curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    if (curl_multi_add_handle(e.multi, c->easy) != CURLM_OK)
        tool_die(TOOL_FAILED, "etcd: a request cannot be made");
}

static void log_in(void);

/* Takes the request's text. */
static void request(enum call_kind kind, const char *path, char *text, etcd_done done, void (*changed)(void))
{
    struct call *c = e.call;
    char url[400];
    while (c < e.call + CALLS_MAX && c->easy)
        c++;
    if (c == e.call + CALLS_MAX)
        tool_die(TOOL_FAILED, "etcd: more than %d requests at a time", CALLS_MAX);
    *c = (struct call){.easy = curl_easy_init(), .kind = kind, .done = done, .changed = changed, .request = text};
    snprintf(url, sizeof url, "%s/v3/%s", e.endpoint[e.at], path);
    (void)curl_easy_setopt(c->easy, CURLOPT_URL, url);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, text);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, received);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    (void)curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    (void)curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->why);
    (void)curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c->easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ETCD_REQUEST_MS / 4);
    if (kind != CALL_WATCH)
        (void)curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, (long)ETCD_REQUEST_MS);
    (void)curl_easy_setopt(c->easy, CURLOPT_CAINFO, e.config.ca);
    (void)curl_easy_setopt(c->easy, CURLOPT_SSLCERT, e.config.cert);
    (void)curl_easy_setopt(c->easy, CURLOPT_SSLKEY, e.config.key);
    if (!e.config.login || e.token || kind == CALL_LOGIN)
        send_now(c);
    else
        log_in();
}

/* The file is read again each time: passwords change. */
static void log_in(void)
{
    char line[400] = "", *colon, *text;
    struct stat st;
    FILE *f;
    uint32_t k;
    int fd;
    for (k = 0; k < CALLS_MAX; k++)
        if (e.call[k].easy && e.call[k].kind == CALL_LOGIN)
            return;
    fd = open(e.config.login, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would hold up all else */
    f = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    colon = f && fgets(line, sizeof line, f) ? strchr(line, ':') : NULL;
    snprintf(e.no_login, sizeof e.no_login, "%.300s: %.100s", e.config.login,
             fd < 0 ? strerror(errno)
             : f    ? "write one line, NAME:PASSWORD"
                    : "this is no file");
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    if (!colon && !e.known)
        tool_die(TOOL_FAILED, "%s", e.no_login);
    if (!colon)
        return; /* what waits for the token fails in the next step */
    *e.no_login = 0;
    line[strcspn(line, "\r\n")] = 0;
    *colon = 0;
    text = tool_alloc(2 * sizeof line + 40);
    strcpy(text, "{\"name\":\"");
    append_escaped(text, line);
    strcat(text, "\",\"password\":\"");
    append_escaped(text, colon + 1);
    strcat(text, "\"}");
    request(CALL_LOGIN, "auth/authenticate", text, NULL, NULL);
}

static void answer(struct call *c, const char *error)
{
    struct etcd_reply reply = {.error = error};
    if (c->kind == CALL_WATCH) {
        c->changed();
    } else {
        if (!error)
            (void)etcd_parse(c->body, strlen(e.config.prefix), &reply);
        c->done(&reply);
        etcd_forget(&reply);
    }
}

static void release(struct call *c)
{
    if (c->sent)
        (void)curl_multi_remove_handle(e.multi, c->easy);
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->headers);
    free(c->body);
    free(c->request);
}

/* Requests that waited for the token are sent; without one they have failed. */
static void logged_in(struct call *login, const char *error)
{
    uint32_t k;
    free(e.token);
    e.token = error ? NULL : etcd_token(login->body);
    e.known = e.known || e.token;
    for (k = 0; k < CALLS_MAX; k++) {
        struct call *c = &e.call[k], ended = *c;
        if (!c->easy || c->sent)
            continue;
        if (e.token) {
            send_now(c);
            continue;
        }
        *c = (struct call){0};
        answer(&ended, error ? error : "etcd refuses the name or the password");
        release(&ended);
    }
}

static void end(struct call *c, CURLcode code)
{
    struct call ended = *c;
    const char *error = NULL;
    long status = 0;
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_multi_remove_handle(e.multi, c->easy);
    (void)curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, NULL); /* another call may get this place */
    ended.sent = false;
    *c = (struct call){0};
    if (code != CURLE_OK)
        error = *ended.why ? ended.why : curl_easy_strerror(code);
    else if (status != 200 || !ended.body)
        error = ended.body ? ended.body : "an empty answer";
    if (error && !(ended.kind == CALL_WATCH && status == 200)) {
        e.at = (e.at + 1) % e.endpoints;
        if (ended.kind !=
            CALL_LOGIN) { /* after a restore etcd does not refuse an old token: it lets the request wait */
            free(e.token);
            e.token = NULL;
        }
    }
    if (ended.kind == CALL_LOGIN)
        logged_in(&ended, error);
    else
        answer(&ended, error);
    release(&ended);
}

void etcd_read(const char *key, etcd_done done)
{
    char *k = key_text(key), *text = tool_alloc(strlen(k) + 40);
    sprintf(text, "{\"key\":%s}", k);
    free(k);
    request(CALL_REQUEST, "kv/range", text, done, NULL);
}

void etcd_read_all(const char *begin, etcd_done done)
{
    char *k = key_text(begin), *to = quoted(e.config.prefix, begin, true), *text = tool_alloc(2 * strlen(k) + 80);
    sprintf(text, "{\"key\":%s,\"range_end\":%s}", k, to);
    free(k);
    free(to);
    request(CALL_REQUEST, "kv/range", text, done, NULL);
}

void etcd_put(const char *key, const char *value, etcd_done done)
{
    char *k = key_text(key), *v = quoted("", value, false), *text = tool_alloc(strlen(k) + strlen(v) + 40);
    sprintf(text, "{\"key\":%s,\"value\":%s}", k, v);
    free(k);
    free(v);
    request(CALL_REQUEST, "kv/put", text, done, NULL);
}

void etcd_swap(const char *key, uint64_t revision, const char *value, etcd_done done)
{
    char *k = key_text(key), *v = quoted("", value, false), *text = tool_alloc(3 * strlen(k) + strlen(v) + 300);
    sprintf(text,
            "{\"compare\":[{\"key\":%s,\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"%" PRIu64 "\"}],"
            "\"success\":[{\"request_put\":{\"key\":%s,\"value\":%s}}],"
            "\"failure\":[{\"request_range\":{\"key\":%s}}]}",
            k, revision, k, v, k);
    free(k);
    free(v);
    request(CALL_REQUEST, "kv/txn", text, done, NULL);
}

void etcd_watch(const char *begin, uint64_t after, void (*changed)(void))
{
    char *k = key_text(begin), *to = quoted(e.config.prefix, begin, true), *text = tool_alloc(2 * strlen(k) + 160);
    sprintf(text, "{\"create_request\":{\"key\":%s,\"range_end\":%s,\"start_revision\":\"%" PRIu64 "\"}}", k, to,
            after + 1);
    free(k);
    free(to);
    request(CALL_WATCH, "watch", text, NULL, changed);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

void etcd_step(void)
{
    CURLMsg *m;
    int running = 0, left = 0;
    if (*e.no_login) {
        char why[sizeof e.no_login];
        memcpy(why, e.no_login, sizeof why);
        *e.no_login = 0;
        logged_in(NULL, why);
    }
    (void)curl_multi_perform(e.multi, &running);
    while ((m = curl_multi_info_read(e.multi, &left)) != NULL)
        if (m->msg == CURLMSG_DONE) {
            struct call *c = NULL;
            const CURLcode code = m->data.result;
            (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c);
            end(c, code);
        }
}

void etcd_open(const struct etcd_config *config)
{
    const char *at = config->endpoints;
    e.config = *config;
    for (; *at && e.endpoints < ENDPOINTS_MAX; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        snprintf(e.endpoint[e.endpoints++], sizeof e.endpoint[0], "%.*s", (int)strcspn(at, ","), at);
    if (e.endpoints == 0 || *at)
        tool_die(TOOL_USAGE, "etcd: from 1 to %d addresses, such as http://127.0.0.1:2379", ENDPOINTS_MAX);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(e.multi = curl_multi_init()))
        tool_die(TOOL_FAILED, "libcurl does not start");
}
