// etcd's JSON gateway by libcurl. Replies are JSON in which keys and values are base64, 64-bit numbers are texts, and what is
// false, 0 or empty is absent.
//
// A request that fails is not sent again by itself: its caller decides. The next request goes to the next endpoint.
#include "etcd.h"
#include "common.h"
#include "qos.h"
#include <ctype.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MAX 4
#define ENDPOINTS_MAX 8
#define BODY_BYTES_MAX 65536 /* a longer reply is an error */
#define PATH_BYTES 96

struct call {
    CURL *easy; /* NULL: free */
    etcd_done done;
    char *request, *body;
    size_t bytes;
};

static struct {
    struct etcd_config config;
    CURLM *multi;
    struct call call[CALLS_MAX];
    char endpoint[ENDPOINTS_MAX][256];
    uint32_t endpoints, at;
    struct curl_slist *headers;
} e;

/* ---- base64 ----------------------------------------------------------------------------------------------------- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *encode(const char *prefix, const char *text)
{
    const size_t n = strlen(prefix) + strlen(text);
    char *whole = tool_alloc(n + 3), *out = tool_alloc(n / 3 * 4 + 5), *at = out;
    size_t k;
    snprintf(whole, n + 1, "%s%s", prefix, text);
    for (k = 0; k < n; k += 3) {
        const unsigned char *c = (unsigned char *)whole + k;
        const uint32_t bits = (uint32_t)c[0] << 16 | (uint32_t)c[1] << 8 | c[2];
        *at++ = letters[bits >> 18];
        *at++ = letters[bits >> 12 & 63];
        *at++ = k + 1 < n ? letters[bits >> 6 & 63] : '=';
        *at++ = k + 2 < n ? letters[bits & 63] : '=';
    }
    free(whole);
    return out;
}

static char *decode(const char *text)
{
    char *out = tool_alloc(strlen(text) + 1), *at = out;
    uint32_t bits = 0, have = 0;
    for (; *text && *text != '='; text++) {
        const char *letter = strchr(letters, *text);
        bits = bits << 6 | (uint32_t)(letter ? letter - letters : 0);
        have += 6;
        if (have >= 8) {
            have -= 8;
            *at++ = (char)(bits >> have);
        }
    }
    return out;
}

/* ---- replies ---------------------------------------------------------------------------------------------------- */

/* Reads JSON and tells each simple value with its path ("kvs.key"); arrays are no part of the path. */
struct reader {
    const char *at;
    char path[PATH_BYTES], *value;
    struct etcd_reply *reply;
    uint32_t depth;
    bool wrong, error;
};

static void blanks(struct reader *r)
{
    while (isspace((unsigned char)*r->at))
        r->at++;
}

/* A text or a bare word into value. Escapes do not occur in base64 and numbers; in messages they are left out. */
static void word(struct reader *r)
{
    const bool quoted = *r->at == '"';
    char *to = r->value;
    r->at += quoted;
    while (*r->at && (quoted ? *r->at != '"' : strchr(",]} \t\r\n", *r->at) == NULL)) {
        if (quoted && *r->at == '\\' && r->at[1])
            r->at++;
        *to++ = *r->at++;
    }
    *to = 0;
    r->wrong |= quoted ? *r->at != '"' : to == r->value;
    r->at += quoted && *r->at == '"';
}

static void tell(struct reader *r)
{
    static const char in_swap[] = "responses.response_range.";
    const char *at = strncmp(r->path, in_swap, sizeof in_swap - 1) == 0 ? r->path + sizeof in_swap - 1 : r->path;
    struct etcd_reply *reply = r->reply;
    if (strcmp(at, "header.revision") == 0)
        reply->store = strtoull(r->value, NULL, 10);
    else if (strcmp(at, "succeeded") == 0)
        reply->succeeded = strcmp(r->value, "true") == 0;
    else if (strcmp(at, "kvs.mod_revision") == 0)
        reply->revision = strtoull(r->value, NULL, 10);
    else if (strcmp(at, "kvs.value") == 0 && !reply->value)
        reply->value = decode(r->value);
    else
        r->error |= strncmp(at, "error", 5) == 0;
}

static void value(struct reader *r) /* NOLINT(misc-no-recursion): as deep as JSON_DEPTH_MAX */
{
    const size_t length = strlen(r->path);
    char close = 0;
    blanks(r);
    if (*r->at != '{' && *r->at != '[') {
        word(r);
        if (!r->wrong)
            tell(r);
        return;
    }
    close = *r->at++ == '{' ? '}' : ']';
    r->wrong |= ++r->depth > JSON_DEPTH_MAX;
    for (blanks(r); !r->wrong && *r->at != close; blanks(r)) {
        if (close == '}') {
            word(r);
            if (length + strlen(r->value) + 2 > sizeof r->path)
                r->wrong = true;
            else
                snprintf(r->path + length, sizeof r->path - length, "%s%s", length ? "." : "", r->value);
            blanks(r);
            r->wrong |= *r->at != ':';
            r->at += *r->at == ':';
        }
        if (!r->wrong)
            value(r);
        r->path[length] = 0;
        blanks(r);
        if (*r->at == ',')
            r->at++;
        else
            r->wrong |= *r->at != close;
    }
    r->at += *r->at == close;
    r->depth--;
}

static void answer(struct call *c, const char *text, const char *error)
{
    struct etcd_reply reply = {.error = error};
    struct reader r = {.at = text, .reply = &reply};
    if (!error) {
        r.value = tool_alloc(strlen(text) + 1);
        value(&r);
        if (r.wrong || r.error)
            reply.error = r.error ? text : "no answer of etcd's JSON gateway";
        if (reply.revision && !reply.value) /* an empty value is absent */
            reply.value = tool_copy("");
    }
    c->done(&reply);
    free(reply.value);
    free(r.value);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* Returns fewer bytes to end the transfer. */
static size_t received(char *data, size_t one, size_t bytes, void *arg)
{
    struct call *c = arg;
    (void)one;
    if (c->bytes + bytes > BODY_BYTES_MAX)
        return 0;
    c->body = tool_grow(c->body, c->bytes + bytes + 1);
    memcpy(c->body + c->bytes, data, bytes);
    c->bytes += bytes;
    c->body[c->bytes] = 0;
    return bytes;
}

/* Takes the request's text. */
static void request(const char *path, char *text, etcd_done done)
{
    struct call *c = e.call;
    char url[400];
    while (c < e.call + CALLS_MAX && c->easy)
        c++;
    if (c == e.call + CALLS_MAX)
        tool_die(TOOL_FAILED, "etcd: more than %d requests at a time", CALLS_MAX);
    *c = (struct call){.easy = curl_easy_init(), .done = done, .request = text};
    snprintf(url, sizeof url, "%s/v3/%s", e.endpoint[e.at], path);
    (void)curl_easy_setopt(c->easy, CURLOPT_URL, url);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, text);
    (void)curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, e.headers);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, received);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    (void)curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    (void)curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c->easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ETCD_REQUEST_MS / 4);
    (void)curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, (long)ETCD_REQUEST_MS);
    if (curl_multi_add_handle(e.multi, c->easy) != CURLM_OK)
        tool_die(TOOL_FAILED, "etcd: a request cannot be made");
}

static void end(struct call *c, CURLcode code)
{
    struct call ended = *c;
    long status = 0;
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_multi_remove_handle(e.multi, c->easy);
    curl_easy_cleanup(c->easy);
    *c = (struct call){0};
    if (code != CURLE_OK || status != 200)
        e.at = (e.at + 1) % e.endpoints;
    if (code != CURLE_OK)
        answer(&ended, "", curl_easy_strerror(code));
    else if (status != 200 || !ended.body)
        answer(&ended, "", ended.body ? ended.body : "an empty answer");
    else
        answer(&ended, ended.body, NULL);
    free(ended.body);
    free(ended.request);
}

/* FORMAT has the base64 of up to two texts. */
static char *fill(const char *format, char *one, char *two, uint64_t number)
{
    const size_t bytes = strlen(format) + 2 * strlen(one) + strlen(two) + 32;
    char *text = tool_alloc(bytes), *to = text;
    for (; *format; format++)
        if (*format == '1' || *format == '2')
            to += snprintf(to, bytes - (size_t)(to - text), "%s", *format == '1' ? one : two);
        else if (*format == '#')
            to += snprintf(to, bytes - (size_t)(to - text), "%" PRIu64, number);
        else
            *to++ = *format;
    free(one);
    free(two);
    return text;
}

/* Apostrophes of the form are quotation marks. */
static void send_form(const char *path, char *text, etcd_done done)
{
    char *at;
    for (at = text; (at = strchr(at, '\'')) != NULL;)
        *at = '"';
    request(path, text, done);
}

void etcd_read(const char *key, etcd_done done)
{
    send_form("kv/range", fill("{'key':'1'}", encode(e.config.prefix, key), tool_copy(""), 0), done);
}

void etcd_swap(const char *key, uint64_t revision, const char *value, etcd_done done)
{
    static const char form[] = "{'compare':[{'key':'1','target':'MOD','result':'EQUAL','mod_revision':'#'}],"
                               "'success':[{'request_put':{'key':'1','value':'2'}}],"
                               "'failure':[{'request_range':{'key':'1'}}]}";
    send_form("kv/txn", fill(form, encode(e.config.prefix, key), encode("", value), revision), done);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

void etcd_step(void)
{
    CURLMsg *m;
    int running = 0, left = 0;
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
        tool_die(TOOL_USAGE, "--owner etcd: from 1 to %d addresses, such as http://127.0.0.1:2379", ENDPOINTS_MAX);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(e.multi = curl_multi_init()))
        tool_die(TOOL_FAILED, "libcurl does not start");
    e.headers = curl_slist_append(NULL, "Content-Type: application/json");
}
