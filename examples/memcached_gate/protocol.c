// The text protocol of memcached 1.6: one line, or one key of a get, at a time.
//
// All clients of a worker share one connection to memcached. So memcached must see exactly the requests that were
// counted here, and reply to each of them once. A request is forwarded only if it is valid as a whole: numbers are
// numbers, and keys have no control characters. noreply and q are cut out. A request that memcached would reject for
// its form is rejected here, in memcached's words.
#include "gate.h"
#include <string.h>

#define TOKENS_MAX 24
/* With more flags, memcached refuses an ms before it knows the length, and runs its data as commands. */
#define META_TOKENS_MAX 19
#define BAD_LINE "CLIENT_ERROR bad command line format"

struct token {
    const char *at;
    uint32_t bytes;
};
struct line {
    const char *data;
    struct token token[TOKENS_MAX];
    uint32_t tokens;
};

static bool is(const struct token *t, const char *word)
{
    return strlen(word) == t->bytes && memcmp(t->at, word, t->bytes) == 0;
}

bool protocol_number(const char *at, size_t bytes, uint64_t most, uint64_t *value)
{
    uint64_t n = 0;
    size_t k;
    if (bytes == 0 || bytes > 20)
        return false;
    for (k = 0; k < bytes; k++) {
        uint64_t digit;
        if (at[k] < '0' || at[k] > '9')
            return false;
        digit = (uint64_t)(at[k] - '0');
        if (n > (UINT64_MAX - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *value = n;
    return n <= most;
}

static bool number(const struct token *t, uint64_t most, uint64_t *value)
{
    return protocol_number(t->at, t->bytes, most, value);
}

/* Seconds; negative: expired already. */
static bool is_exptime(const char *at, size_t bytes)
{
    uint64_t value;
    size_t sign = bytes > 0 && at[0] == '-';
    return protocol_number(at + sign, bytes - sign, INT32_MAX, &value);
}

uint32_t protocol_hash(const char *key, size_t bytes)
{
    uint32_t h = 2166136261u;
    size_t k;
    for (k = 0; k < bytes; k++)
        h = (uint32_t)qos_wrap_mul(h ^ (unsigned char)key[k], 16777619u);
    return h;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

size_t protocol_key_text(const char *data, const struct head *h, char text[KEY_BYTES_MAX])
{
    const char *key = data + h->key_at;
    uint32_t k, bits = 0, held = 0;
    size_t bytes = 0;
    if (!h->base64) {
        memcpy(text, key, h->key_bytes);
        return h->key_bytes;
    }
    for (k = 0; k < h->key_bytes && key[k] != '='; k++) {
        int digit = base64_digit(key[k]);
        if (digit < 0)
            return 0;
        held = (held << 6 | (uint32_t)digit) & 0xffffff;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            text[bytes++] = (char)(held >> bits & 0xff);
        }
    }
    return bytes;
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

static void answer(struct head *h, const char *text)
{
    h->kind = HEAD_ANSWER;
    h->answer = text;
}

/* The key is token 1. False: refused. */
static bool key(struct head *h, const struct line *l)
{
    const struct token *t = &l->token[1];
    if (l->tokens < 2) {
        answer(h, "ERROR");
        return false;
    }
    if (t->bytes > KEY_BYTES_MAX) {
        answer(h, BAD_LINE);
        return false;
    }
    h->key_at = (uint32_t)(t->at - l->data);
    h->key_bytes = t->bytes;
    return true;
}

static void cut(struct head *h, const struct line *l, const struct token *t)
{
    h->cut_at = (uint32_t)(t->at - l->data) - 1; /* with the space before it */
    h->cut_bytes = t->bytes + 1;
}

/* Checks for noreply as the last token, from token `from` on, and removes it from the count of tokens. */
static void noreply(struct head *h, struct line *l, uint32_t from)
{
    if (l->tokens <= from || !is(&l->token[l->tokens - 1], "noreply"))
        return;
    h->quiet = true;
    cut(h, l, &l->token[--l->tokens]);
}

/* The value's length; a value that is too large is refused and its bytes are skipped. */
static bool length(struct head *h, const struct token *t)
{
    uint64_t value;
    if (!number(t, INT32_MAX - 2, &value)) {
        answer(h, BAD_LINE);
        return false;
    }
    h->data_bytes = value + 2;
    if (value > gate_settings.value_bytes_max)
        answer(h, "SERVER_ERROR object too large for cache");
    return true;
}

static void store(struct head *h, struct line *l)
{
    bool cas = is(&l->token[0], "cas");
    uint64_t value;
    uint32_t terms = cas ? 6 : 5;
    if (l->tokens < terms || l->tokens > terms + 1) {
        answer(h, "ERROR");
        return;
    }
    noreply(h, l, terms);
    if (!key(h, l))
        return;
    h->refuse_unlinks = is(&l->token[0], "set");
    if (!number(&l->token[2], UINT32_MAX, &value) || !is_exptime(l->token[3].at, l->token[3].bytes) ||
        (cas && !number(&l->token[5], UINT64_MAX, &value)))
        answer(h, BAD_LINE);
    else
        length(h, &l->token[4]);
}

static void keys(struct head *h, struct line *l)
{
    (void)l;
    answer(h, "ERROR"); /* with a key: see starts_keys */
}

static void delete (struct head *h, struct line *l)
{
    if (l->tokens > 4) {
        answer(h, "ERROR");
        return;
    }
    noreply(h, l, 2);
    if (key(h, l) && l->tokens > 2 && (l->tokens > 3 || !is(&l->token[2], "0")))
        answer(h, BAD_LINE ".  Usage: delete <key> [noreply]");
}

static void arithmetic(struct head *h, struct line *l)
{
    uint64_t value;
    if (l->tokens < 3 || l->tokens > 4) {
        answer(h, "ERROR");
        return;
    }
    noreply(h, l, 2);
    if (key(h, l) && (l->tokens != 3 || !number(&l->token[2], UINT64_MAX, &value)))
        answer(h, "CLIENT_ERROR invalid numeric delta argument");
}

static void touch(struct head *h, struct line *l)
{
    if (l->tokens < 3 || l->tokens > 4) {
        answer(h, "ERROR");
        return;
    }
    noreply(h, l, 2);
    if (key(h, l) && (l->tokens != 3 || !is_exptime(l->token[2].at, l->token[2].bytes)))
        answer(h, "CLIENT_ERROR invalid exptime argument");
}

/* Flags of a meta command from token `from` on: letters, some with an argument, each once. */
static void flags(struct head *h, const struct line *l, uint32_t from)
{
    bool seen[128] = {false};
    uint32_t k;
    if (l->tokens > META_TOKENS_MAX) {
        answer(h, "CLIENT_ERROR options flags too long");
        h->hide = NULL;
        return;
    }
    for (k = from; k < l->tokens; k++) {
        const struct token *t = &l->token[k];
        unsigned char letter = (unsigned char)t->at[0];
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) {
            answer(h, "CLIENT_ERROR invalid flag");
            return;
        }
        if (seen[letter]) {
            answer(h, "CLIENT_ERROR duplicate flag");
            return;
        }
        seen[letter] = true;
        if (letter == 'q')
            cut(h, l, t);
        h->base64 |= letter == 'b';
    }
    if (!seen['q'])
        h->hide = NULL;
}

static void meta(struct head *h, struct line *l)
{
    bool set = is(&l->token[0], "ms");
    h->reply = REPLY_META;
    h->hide = is(&l->token[0], "mg") ? "EN" : "HD";
    if (!key(h, l)) {
        h->hide = NULL;
        return;
    }
    if (set && l->tokens < 3) {
        answer(h, BAD_LINE);
        return;
    }
    if (!set || length(h, &l->token[2]))
        flags(h, l, set ? 3 : 2);
    else
        h->refuse_unlinks = h->data_bytes != 0 && l->tokens == 3; /* flags: maybe another mode, or a base64 key */
}

static void meta_debug(struct head *h, struct line *l)
{
    if (l->tokens < 2)
        answer(h, BAD_LINE);
    else if (key(h, l))
        flags(h, l, 2);
}

static void meta_noop(struct head *h, struct line *l)
{
    (void)l;
    answer(h, "MN");
}

static void version(struct head *h, struct line *l)
{
    h->text_bytes = (uint32_t)(l->token[0].at - l->data) + l->token[0].bytes;
}

static void verbosity(struct head *h, struct line *l)
{
    bool wrong = l->tokens < 2 || l->tokens > 3;
    h->server_wide = true;
    noreply(h, l, 1);
    if (wrong || l->tokens < 2 || is(&l->token[l->tokens - 1], "noreply"))
        answer(h, "ERROR");
}

static void stats(struct head *h, struct line *l)
{
    static const char *const harmless[] = {"settings", "items", "slabs", "sizes", "conns", "threads", "extstore"};
    size_t k;
    h->reply = REPLY_STATS;
    h->server_wide = l->tokens > 1;
    for (k = 0; l->tokens == 2 && k < sizeof harmless / sizeof *harmless; k++)
        h->server_wide &= !is(&l->token[1], harmless[k]);
    if (l->tokens == 2 && is(&l->token[1], "qos")) {
        h->kind = HEAD_STATS_QOS;
        h->server_wide = false;
    }
}

static void quit(struct head *h, struct line *l)
{
    (void)l;
    h->kind = HEAD_CLOSE;
}

static void server_wide(struct head *h, struct line *l)
{
    uint64_t value;
    h->server_wide = true;
    noreply(h, l, 1);
    if (is(&l->token[l->tokens - 1], "noreply") || l->tokens > 8)
        answer(h, "ERROR");
    else if (is(&l->token[0], "flush_all") &&
             (l->tokens > 2 || (l->tokens == 2 && !number(&l->token[1], INT32_MAX, &value))))
        answer(h, l->tokens > 2 ? "ERROR" : "CLIENT_ERROR invalid exptime argument");
    else if (is(&l->token[0], "lru_crawler") && l->tokens > 1 && l->token[1].bytes > 4 &&
             memcmp(l->token[1].at + l->token[1].bytes - 4, "dump", 4) == 0)
        answer(h, "CLIENT_ERROR not passed on by this gate: ask memcached itself");
}

static void never(struct head *h, struct line *l)
{
    (void)l;
    answer(h, "CLIENT_ERROR not passed on by this gate: ask memcached itself");
}

static const struct {
    const char *name;
    void (*parse)(struct head *h, struct line *l);
} command[] = {
    {"set", store},
    {"get", keys},
    {"mg", meta},
    {"ms", meta},
    {"add", store},
    {"replace", store},
    {"append", store},
    {"prepend", store},
    {"cas", store},
    {"gets", keys},
    {"gat", keys},
    {"gats", keys},
    {"delete", delete},
    {"incr", arithmetic},
    {"decr", arithmetic},
    {"touch", touch},
    {"md", meta},
    {"ma", meta},
    {"me", meta_debug},
    {"mn", meta_noop},
    {"version", version},
    {"verbosity", verbosity},
    {"stats", stats},
    {"quit", quit},
    {"flush_all", server_wide},
    {"cache_memlimit", server_wide},
    {"slabs", server_wide},
    {"lru", server_wide},
    {"lru_crawler", server_wide},
    {"watch", never},
    {"shutdown", never},
    {"debugtime", never},
    {"extstore", never},
    {"refresh_certs", never},
    {"misbehave", never},
};

/* ---- a line ------------------------------------------------------------------------------------------------------ */

/* Get with at least one space: its keys are read one by one, so it may have any length. gat has a time before them. */
static bool starts_keys(const char *data, size_t bytes, struct head *h)
{
    size_t name, at, end;
    for (name = 3; name <= 4; name++)
        if (bytes > name && data[name] == ' ' && (memcmp(data, "get", 3) == 0 || memcmp(data, "gat", 3) == 0) &&
            (name == 3 || data[3] == 's'))
            break;
    if (name > 4)
        return false;
    at = name + 1;
    if (data[1] == 'a') {
        for (end = at; end < bytes && end < at + 12 && data[end] != ' ' && data[end] != '\r' && data[end] != '\n';)
            end++;
        if (end == bytes && end < at + 12)
            return true; /* more */
        if (!is_exptime(data + at, end - at)) {
            answer(h, "CLIENT_ERROR invalid exptime argument");
            h->swallow_line = true;
            return true;
        }
        at = end;
    }
    h->kind = HEAD_KEYS;
    h->bytes = (uint32_t)at;
    return true;
}

/* False: control characters, or too many tokens. */
static bool split(struct line *l, const char *data, size_t bytes)
{
    size_t k = 0, from;
    l->data = data;
    l->tokens = 0;
    while (k < bytes) {
        if (data[k] == ' ') {
            k++;
            continue;
        }
        for (from = k; k < bytes && data[k] != ' '; k++)
            if ((unsigned char)data[k] < ' ' || data[k] == 127)
                return false;
        if (l->tokens == TOKENS_MAX)
            return false;
        l->token[l->tokens].at = data + from;
        l->token[l->tokens++].bytes = (uint32_t)(k - from);
    }
    return true;
}

static void close_with(struct head *h, const char *text)
{
    h->kind = HEAD_CLOSE;
    h->answer = text;
}

void protocol_line(const char *data, size_t bytes, struct head *h)
{
    const char *end = bytes ? memchr(data, '\n', qos_min(bytes, LINE_BYTES_MAX)) : NULL;
    struct line l;
    size_t k;
    memset(h, 0, sizeof *h);
    if (bytes && (unsigned char)data[0] == 0x80) {
        close_with(h, "CLIENT_ERROR this gate speaks the text protocol, not the binary one");
        return;
    }
    if (starts_keys(data, bytes, h))
        return;
    if (!end) {
        if (bytes >= LINE_BYTES_MAX)
            close_with(h, "CLIENT_ERROR line too long");
        return;
    }
    h->bytes = (uint32_t)(end - data) + 1;
    h->text_bytes = h->bytes - 1 - (h->bytes > 1 && end[-1] == '\r');
    if (!split(&l, data, h->text_bytes)) {
        answer(h, BAD_LINE);
        return;
    }
    for (k = 0; l.tokens && k < sizeof command / sizeof *command; k++)
        if (is(&l.token[0], command[k].name)) {
            h->kind = HEAD_REQUEST;
            command[k].parse(h, &l);
            return;
        }
    answer(h, "ERROR");
}

/* ---- a key ------------------------------------------------------------------------------------------------------- */

static void end_keys(struct head *h, const char *text)
{
    answer(h, text);
    h->swallow_line = true;
}

void protocol_key(const char *data, size_t bytes, bool first, struct head *h)
{
    size_t at = 0, end, next;
    memset(h, 0, sizeof *h);
    h->reply = REPLY_VALUES;
    while (at < bytes && data[at] == ' ')
        at++;
    h->bytes = (uint32_t)at;
    for (end = at; end < bytes && (unsigned char)data[end] > ' ' && data[end] != 127;)
        end++;
    if (end - at > KEY_BYTES_MAX) {
        end_keys(h, BAD_LINE);
        return;
    }
    for (next = end; next < bytes && data[next] == ' ' && next - end < KEY_BYTES_MAX;)
        next++;
    if (next == bytes)
        return; /* more */
    if (data[next] == '\r' && next + 1 == bytes)
        return; /* more */
    h->last = data[next] == '\n' || (data[next] == '\r' && data[next + 1] == '\n');
    if (end == at) { /* no key at all */
        end_keys(h, first ? "ERROR" : BAD_LINE);
        return;
    }
    if (!h->last && ((unsigned char)data[next] <= ' ' || data[next] == 127)) {
        end_keys(h, BAD_LINE);
        return;
    }
    h->kind = HEAD_REQUEST;
    h->key_at = (uint32_t)at;
    h->key_bytes = (uint32_t)(end - at);
    h->bytes = (uint32_t)(h->last ? next + 1 + (data[next] == '\r') : end);
}
