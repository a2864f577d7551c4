// The text protocol of memcached 1.6: one line, or one key of a get, at a time; and what memcached may reply to it.
//
// All clients of a worker whose requests are of one bucket share a connection to memcached. So memcached must see exactly
// the requests that were counted here, and reply to each of them once. A request is forwarded only if it is valid as a
// whole: numbers are numbers, and keys have no control characters. noreply and q are cut out. A request that memcached
// would reject for its form is rejected here, in memcached's words.
//
// No byte of a value is ever read as a command, unless memcached does so too. So numbers are read as memcached 1.6 reads
// them, and the block behind a refused storage command is skipped if its length can be read. memcached 1.6.18 runs such
// a block as commands where it refuses the line, later ones skip it, too.
//
// A key in base64 may have any bytes. memcached 1.6.18 prints such a key as it is if the item was not made by ms, so a
// key with the end of a line in it makes one reply look like several. Such a key is never printed: k and me are refused.
//
// A reply fits if it is one that its command can have, has the key where memcached repeats it, and has the opaque. Each
// meta command has one: the client's or, if it has none, the gate's, which the client does not see.
#include "gate.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 24
/* With more flags, memcached refuses an ms before it knows the length, and runs its data as commands. */
#define META_TOKENS_MAX 19
#define TIME_BYTES_MAX 24 /* of gat; it fits into client.lead */
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

uint64_t protocol_letter(char c)
{
    if (c >= 'a' && c <= 'z')
        return UINT64_C(1) << (c - 'a');
    return c >= 'A' && c <= 'Z' ? UINT64_C(1) << (c - 'A' + 26) : 0;
}

static bool number(const struct token *t, uint64_t most, uint64_t *value)
{
    return protocol_number(t->at, t->bytes, most, value);
}

/* As memcached reads numbers: with a sign, and up to white space. */
static bool is_unsigned(const struct token *t)
{
    char text[LINE_BYTES_MAX + 1], *end;
    uint64_t value;
    if (number(t, UINT64_MAX, &value))
        return true;
    memcpy(text, t->at, t->bytes);
    text[t->bytes] = 0;
    errno = 0;
    value = strtoull(text, &end, 10);
    return errno == 0 && end != text && (!*end || isspace((unsigned char)*end)) &&
           (value <= INT64_MAX || !strchr(text, '-'));
}

/* Cut to 32 bits, as memcached does: 4294967301 is 5. */
static bool read_signed(const struct token *t, int32_t *value)
{
    char text[LINE_BYTES_MAX + 1], *end;
    uint64_t plain;
    if (number(t, INT32_MAX, &plain)) {
        *value = (int32_t)plain;
        return true;
    }
    memcpy(text, t->at, t->bytes);
    text[t->bytes] = 0;
    errno = 0;
    *value = (int32_t)strtoll(text, &end, 10);
    return errno == 0 && end != text && (!*end || isspace((unsigned char)*end));
}

/* Seconds; negative: expired already. */
static bool is_exptime(const struct token *t)
{
    int32_t seconds;
    return read_signed(t, &seconds);
}

/* memcached also takes, and skips, characters that are no letters of base64: with them it would know another key than the
 * gate. 0: refused. */
static size_t key_of_base64(const char *text, size_t bytes, char out[KEY_BYTES_MAX])
{
    return bytes > KEY_BYTES_MAX ? 0 : base64_decode(text, bytes, out);
}

size_t protocol_key_text(const char *data, const struct head *h, char text[KEY_BYTES_MAX])
{
    if (h->base64)
        return key_of_base64(data + h->key_at, h->key_bytes, text);
    memcpy(text, data + h->key_at, h->key_bytes);
    return h->key_bytes;
}

static bool printable(const char *key, size_t bytes)
{
    size_t k;
    for (k = 0; k < bytes; k++)
        if ((unsigned char)key[k] <= ' ' || key[k] == 127)
            return false;
    return true;
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

/* The block after the line, if token `at` is a length: it belongs to the command, whatever else is wrong. */
static bool block(struct head *h, const struct line *l, uint32_t at)
{
    const struct token *t = &l->token[at];
    uint64_t plain;
    int32_t bytes;
    if (l->tokens <= at || !read_signed(t, &bytes) || bytes < 0 || bytes > INT32_MAX - 2)
        return false;
    h->data_bytes = (uint64_t)bytes + 2;
    if (!number(t, INT32_MAX, &plain)) {
        h->length_at = (uint32_t)(t->at - l->data);
        h->length_bytes = t->bytes;
    }
    return true;
}

static bool too_large(struct head *h)
{
    if (h->data_bytes - 2 <= gate_settings.value_bytes_max)
        return false;
    answer(h, "SERVER_ERROR object too large for cache");
    return true;
}

static void store(struct head *h, struct line *l)
{
    bool cas = is(&l->token[0], "cas"), whole = block(h, l, 4);
    uint32_t terms = cas ? 6 : 5;
    if (l->tokens < terms || l->tokens > terms + 1) {
        answer(h, "ERROR");
        return;
    }
    noreply(h, l, terms);
    if (!key(h, l))
        return;
    if (!whole || !is_unsigned(&l->token[2]) || !is_exptime(&l->token[3]) || (cas && !is_unsigned(&l->token[5]))) {
        answer(h, BAD_LINE);
        return;
    }
    h->refuse_unlinks = is(&l->token[0], "set");
    too_large(h);
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
    if (l->tokens < 3 || l->tokens > 4) {
        answer(h, "ERROR");
        return;
    }
    noreply(h, l, 2);
    if (key(h, l) && (l->tokens < 3 || !is_unsigned(&l->token[2])))
        answer(h, "CLIENT_ERROR invalid numeric delta argument");
}

static void touch(struct head *h, struct line *l)
{
    if (l->tokens < 3 || l->tokens > 4) {
        answer(h, "ERROR");
        return;
    }
    noreply(h, l, 2);
    if (key(h, l) && (l->tokens < 3 || !is_exptime(&l->token[2])))
        answer(h, "CLIENT_ERROR invalid exptime argument");
}

/* A key in base64 must be one. One that cannot be printed is not asked back. wrong: memcached's words. */
static void check_base64(struct head *h, const struct line *l, bool printed, const char *wrong)
{
    char text[KEY_BYTES_MAX];
    size_t bytes = protocol_key_text(l->data, h, text);
    if (bytes == 0)
        answer(h, wrong);
    else if (printed && !printable(text, bytes))
        answer(h, "CLIENT_ERROR this key has control characters or spaces: the gate does not ask for it by k or me");
}

/* Flags of a meta command from token `from` on: letters, some with an argument, each once. */
static void flags(struct head *h, const struct line *l, uint32_t from)
{
    uint32_t k;
    for (k = from; k < l->tokens; k++) {
        const struct token *t = &l->token[k];
        uint64_t letter = protocol_letter(t->at[0]);
        if (!letter) {
            answer(h, "CLIENT_ERROR invalid flag");
            return;
        }
        if (h->letters & letter) {
            answer(h, "CLIENT_ERROR duplicate flag");
            return;
        }
        h->letters |= letter;
        if (t->at[0] == 'q')
            cut(h, l, t);
        if (t->at[0] == 'O') {
            h->opaque_at = (uint32_t)(t->at - l->data);
            h->opaque_bytes = t->bytes;
        }
    }
    h->base64 = h->letters & protocol_letter('b');
    if (!h->cut_bytes)
        h->hide = NULL;
    if (l->tokens - (h->cut_bytes != 0) + (h->opaque_bytes == 0) > META_TOKENS_MAX) {
        answer(h, "CLIENT_ERROR options flags too long");
        h->hide = NULL;
    } else if (h->opaque_bytes > OPAQUE_BYTES_MAX) {
        answer(h, "CLIENT_ERROR opaque token too long");
    } else if (h->base64) {
        bool other = is(&l->token[0], "md") || is(&l->token[0], "ma");
        check_base64(h, l, h->letters & protocol_letter('k'),
                     other ? "CLIENT_ERROR invalid or duplicate flag" : "CLIENT_ERROR error decoding key");
    }
}

static void meta(struct head *h, struct line *l)
{
    bool set = is(&l->token[0], "ms"), whole = !set || block(h, l, 2);
    h->hide = is(&l->token[0], "mg") ? "EN" : is(&l->token[0], "ma") ? "HD VA" : "HD";
    if (!key(h, l))
        h->hide = NULL;
    else if (!whole)
        answer(h, BAD_LINE);
    else if (set && too_large(h))
        h->refuse_unlinks = l->tokens == 3; /* flags: maybe another mode, or a base64 key */
    else
        flags(h, l, set ? 3 : 2);
}

/* Its only flag is b, in the first place; memcached ignores all else. */
static void meta_debug(struct head *h, struct line *l)
{
    if (l->tokens < 2) {
        answer(h, BAD_LINE);
    } else if (key(h, l)) {
        h->base64 = l->tokens > 2 && is(&l->token[2], "b");
        h->text_bytes = (uint32_t)(l->token[h->base64 ? 2 : 1].at - l->data) + l->token[h->base64 ? 2 : 1].bytes;
        if (h->base64)
            check_base64(h, l, true, BAD_LINE);
    }
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

static void never(struct head *h, struct line *l)
{
    (void)l;
    answer(h, "CLIENT_ERROR not passed on by this gate: ask memcached itself");
}

static void stats(struct head *h, struct line *l)
{
    static const char *const harmless[] = {"settings", "items", "slabs", "sizes", "conns", "threads", "extstore"};
    size_t k;
    h->server_wide = l->tokens > 1;
    for (k = 0; l->tokens == 2 && k < sizeof harmless / sizeof *harmless; k++)
        h->server_wide &= !is(&l->token[1], harmless[k]);
    if (l->tokens > 1 && (is(&l->token[1], "cachedump") || is(&l->token[1], "detail"))) {
        never(h, l); /* they print keys as they are */
    } else if (l->tokens == 2 && is(&l->token[1], "qos")) {
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
    h->server_wide = true;
    noreply(h, l, 1);
    if (is(&l->token[l->tokens - 1], "noreply") || l->tokens > 8)
        answer(h, "ERROR");
    else if (is(&l->token[0], "flush_all") && (l->tokens > 2 || (l->tokens == 2 && !is_exptime(&l->token[1]))))
        answer(h, l->tokens > 2 ? "ERROR" : "CLIENT_ERROR invalid exptime argument");
    else if (is(&l->token[0], "lru_crawler") && l->tokens > 1 && l->token[1].bytes > 4 &&
             memcmp(l->token[1].at + l->token[1].bytes - 4, "dump", 4) == 0)
        answer(h, "CLIENT_ERROR not passed on by this gate: ask memcached itself");
}

/* Errors that memcached gives to requests which are valid in form. To any other error the connection ends. */
#define NO_ROOM "SERVER_ERROR out of memory storing object|SERVER_ERROR object too large for cache"
#define META_ERRORS                                                                                                    \
    NO_ROOM "|SERVER_ERROR out of memory|SERVER_ERROR Out of memory allocating new item"                               \
            "|SERVER_ERROR refcount overflow during fetch|CLIENT_ERROR bad token in command line format"               \
            "|CLIENT_ERROR bad command line format|CLIENT_ERROR incorrect length for M token"                          \
            "|CLIENT_ERROR invalid numeric initial value|CLIENT_ERROR invalid numeric delta value"                     \
            "|CLIENT_ERROR invalid flag|CLIENT_ERROR invalid or duplicate flag"                                        \
            "|CLIENT_ERROR invalid mode for ms M token|CLIENT_ERROR invalid mode for ma M token"                       \
            "|CLIENT_ERROR cannot increment or decrement non-numeric value"
#define COUNT_ERRORS                                                                                                   \
    "CLIENT_ERROR cannot increment or decrement non-numeric value|SERVER_ERROR out of memory|"                         \
    "SERVER_ERROR out of memory in incr"
#define GET_ERRORS "SERVER_ERROR out of memory writing get response"
#define ADMIN_WORDS                                                                                                    \
    "OK BUSY BADCLASS NOSPARE SAME NOTSTARTED MEMLIMIT_TOO_SMALL MEMLIMIT_ADJUST_FAILED ERROR CLIENT_ERROR"

static const struct command {
    struct shape shape; /* first: a shape is found from its command, and the other way round */
    void (*parse)(struct head *h, struct line *l);
} command[] = {
    {{"set", REPLY_WORD, "STORED", NO_ROOM}, store},
    {{"get", REPLY_VALUES, "END", GET_ERRORS}, keys},
    {{"mg", REPLY_META, "HD EN VA", META_ERRORS}, meta},
    {{"ms", REPLY_META, "HD NS EX NF", META_ERRORS}, meta},
    {{"add", REPLY_WORD, "STORED NOT_STORED", NO_ROOM}, store},
    {{"replace", REPLY_WORD, "STORED NOT_STORED", NO_ROOM}, store},
    {{"append", REPLY_WORD, "STORED NOT_STORED", NO_ROOM}, store},
    {{"prepend", REPLY_WORD, "STORED NOT_STORED", NO_ROOM}, store},
    {{"cas", REPLY_WORD, "STORED EXISTS NOT_FOUND", NO_ROOM}, store},
    {{"gets", REPLY_VALUES_CAS, "END", GET_ERRORS}, keys},
    {{"gat", REPLY_VALUES, "END", GET_ERRORS}, keys},
    {{"gats", REPLY_VALUES_CAS, "END", GET_ERRORS}, keys},
    {{"delete", REPLY_WORD, "DELETED NOT_FOUND", ""}, delete},
    {{"incr", REPLY_NUMBER, "NOT_FOUND", COUNT_ERRORS}, arithmetic},
    {{"decr", REPLY_NUMBER, "NOT_FOUND", COUNT_ERRORS}, arithmetic},
    {{"touch", REPLY_WORD, "TOUCHED NOT_FOUND", ""}, touch},
    {{"md", REPLY_META, "HD EX NF", META_ERRORS}, meta},
    {{"ma", REPLY_META, "HD VA NS EX NF", META_ERRORS}, meta},
    {{"me", REPLY_DEBUG, "ME EN", ""}, meta_debug},
    {{"mn", REPLY_WORD, "MN", ""}, meta_noop},
    {{"version", REPLY_LINE, "VERSION", ""}, version},
    {{"verbosity", REPLY_LINE, "OK CLIENT_ERROR ERROR", ""}, verbosity},
    {{"stats", REPLY_STATS, "END RESET ERROR", "SERVER_ERROR out of memory writing stats"}, stats},
    {{"quit", REPLY_WORD, "", ""}, quit},
    {{"flush_all", REPLY_LINE, "OK CLIENT_ERROR", ""}, server_wide},
    {{"cache_memlimit", REPLY_LINE, ADMIN_WORDS, ""}, server_wide},
    {{"slabs", REPLY_LINE, ADMIN_WORDS, ""}, server_wide},
    {{"lru", REPLY_LINE, ADMIN_WORDS, ""}, server_wide},
    {{"lru_crawler", REPLY_LINE, ADMIN_WORDS, ""}, server_wide},
    {{"watch", REPLY_WORD, "", ""}, never},
    {{"shutdown", REPLY_WORD, "", ""}, never},
    {{"debugtime", REPLY_WORD, "", ""}, never},
    {{"extstore", REPLY_WORD, "", ""}, never},
    {{"refresh_certs", REPLY_WORD, "", ""}, never},
    {{"misbehave", REPLY_WORD, "", ""}, never},
};

/* The value's removal, in place of a set that is refused. */
const struct shape protocol_unlink = {"delete", REPLY_WORD, "DELETED NOT_FOUND", ""};

static const struct command *find(const char *at, size_t bytes)
{
    const struct token t = {at, (uint32_t)bytes};
    size_t k;
    for (k = 0; k < sizeof command / sizeof *command; k++)
        if (is(&t, command[k].shape.name))
            return &command[k];
    return NULL;
}

/* ---- a line ------------------------------------------------------------------------------------------------------ */

/* Get with at least one space: its keys are read one by one, so it may have any length. gat has a time before them. */
static bool starts_keys(const char *data, size_t bytes, struct head *h)
{
    size_t name, at, end;
    struct token time;
    for (name = 3; name <= 4; name++)
        if (bytes > name && data[name] == ' ' && (memcmp(data, "get", 3) == 0 || memcmp(data, "gat", 3) == 0) &&
            (name == 3 || data[3] == 's'))
            break;
    if (name > 4)
        return false;
    at = name + 1;
    if (data[1] == 'a') {
        for (end = at; end < bytes && end < at + TIME_BYTES_MAX && (unsigned char)data[end] > ' ';)
            end++;
        if (end == bytes && end < at + TIME_BYTES_MAX)
            return true; /* more */
        time = (struct token){data + at, (uint32_t)(end - at)};
        if (time.bytes == TIME_BYTES_MAX || !is_exptime(&time)) {
            answer(h, "CLIENT_ERROR invalid exptime argument");
            h->swallow_line = true;
            return true;
        }
        at = end;
    }
    h->kind = HEAD_KEYS;
    h->shape = &find(data, name)->shape;
    h->bytes = (uint32_t)at;
    return true;
}

/* False: control characters, or too many tokens; only a space divides two tokens, as in memcached. */
static bool split(struct line *l, const char *data, size_t bytes)
{
    bool good = true;
    size_t k = 0, from;
    l->data = data;
    l->tokens = 0;
    while (k < bytes) {
        if (data[k] == ' ') {
            k++;
            continue;
        }
        for (from = k; k < bytes && data[k] != ' '; k++)
            good &= (unsigned char)data[k] >= ' ' && data[k] != 127;
        if (l->tokens == TOKENS_MAX)
            return false;
        l->token[l->tokens].at = data + from;
        l->token[l->tokens++].bytes = (uint32_t)(k - from);
    }
    return good;
}

static void close_with(struct head *h, const char *text)
{
    h->kind = HEAD_CLOSE;
    h->answer = text;
}

void protocol_line(const char *data, size_t bytes, struct head *h)
{
    const char *end = bytes ? memchr(data, '\n', qos_min(bytes, LINE_BYTES_MAX)) : NULL;
    const struct command *found;
    struct line l;
    bool good;
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
    good = split(&l, data, h->text_bytes);
    found = l.tokens ? find(l.token[0].at, l.token[0].bytes) : NULL;
    if (!good) {
        bool meta_set = l.tokens && is(&l.token[0], "ms");
        answer(h, BAD_LINE);
        if (meta_set || (found && found->parse == store)) {
            block(h, &l, meta_set ? 2 : 4);
            if (memchr(data, 0, h->text_bytes)) /* where some memcacheds end the line: nobody knows the length */
                close_with(h, BAD_LINE);
        }
        return;
    }
    if (!found) {
        answer(h, "ERROR");
        if (l.tokens && l.token[l.tokens - 1].bytes >= 5 && memcmp(l.token[l.tokens - 1].at, "HTTP/", 5) == 0)
            close_with(h, NULL); /* as memcached does: a page may let a browser send commands */
        return;
    }
    h->kind = HEAD_REQUEST;
    h->shape = &found->shape;
    found->parse(h, &l);
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
    h->of_get = true;
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

/* ---- a reply ----------------------------------------------------------------------------------------------------- */

/* Is text one of a list? */
static bool among(const char *list, char between, const char *text, size_t bytes)
{
    while (*list) {
        const char *end = strchr(list, between);
        size_t n = end ? (size_t)(end - list) : strlen(list);
        if (n == bytes && memcmp(list, text, n) == 0)
            return true;
        list += n + (end != NULL);
    }
    return false;
}

/* The next token of a line; false: none. Exactly one space is between two. */
static bool next(const char **at, const char *end, struct token *t)
{
    const char *space;
    if (*at >= end)
        return false;
    space = memchr(*at, ' ', (size_t)(end - *at));
    t->at = *at;
    t->bytes = (uint32_t)((space ? space : end) - *at);
    *at = space ? space + 1 : end;
    return true;
}

static bool same(const struct token *t, const char *text, size_t bytes)
{
    return t->bytes == bytes && memcmp(t->at, text, bytes) == 0;
}

/* As memcached writes it: plain, or in base64 if ms has stored it in base64, whatever the request had. */
static bool is_key(const struct tie *tie, const char *at, size_t bytes)
{
    char text[KEY_BYTES_MAX];
    if (bytes == tie->key_bytes && memcmp(at, tie->key, bytes) == 0)
        return true;
    bytes = key_of_base64(at, bytes, text);
    return bytes && bytes == tie->key_bytes && memcmp(text, tie->key, bytes) == 0;
}

static bool value_fits(const struct tie *tie, const char *line, const char *end, struct reply *r)
{
    struct token key, flags, bytes, cas;
    uint64_t value;
    line += 6; /* VALUE */
    if (!next(&line, end, &key) || !next(&line, end, &flags) || !next(&line, end, &bytes) ||
        !is_key(tie, key.at, key.bytes) || !number(&flags, UINT32_MAX, &value) ||
        !number(&bytes, INT32_MAX - 2, &r->body_bytes))
        return false;
    if (tie->shape->kind == REPLY_VALUES_CAS && (!next(&line, end, &cas) || !number(&cas, UINT64_MAX, &value)))
        return false;
    r->body_bytes += 2;
    r->more = true;
    return line == end;
}

/* The flags of a reply are of those of the request; W, X and Z come unasked, and b after a key in base64. */
static bool meta_fits(const struct tie *tie, const char *line, const char *start, const char *end, struct reply *r)
{
    const uint64_t unasked = protocol_letter('W') | protocol_letter('X') | protocol_letter('Z') | protocol_letter('b');
    bool opaque = false, key = false;
    struct token t;
    if (memcmp(start, "VA", 2) == 0) {
        if (!next(&line, end, &t) || !number(&t, INT32_MAX - 2, &r->body_bytes))
            return false;
        r->body_bytes += 2;
    }
    while (next(&line, end, &t)) {
        const char *before = t.at - 1;
        if (t.bytes == 0 || !((tie->letters | unasked) & protocol_letter(*t.at)))
            return false;
        if (*t.at == 'O') {
            if (opaque || !same(&t, tie->opaque, tie->opaque_bytes))
                return false;
            opaque = true;
            r->strip_at = (uint32_t)(before - start);
            r->strip_bytes = tie->own_opaque ? t.bytes + 1 : 0;
        } else if (*t.at == 'k') {
            if (key || !is_key(tie, t.at + 1, t.bytes - 1))
                return false;
            key = true;
        }
    }
    return opaque && key == ((tie->letters & protocol_letter('k')) != 0);
}

bool protocol_reply(const struct tie *tie, const char *line, size_t bytes, struct reply *r)
{
    const struct shape *s = tie->shape;
    const char *at = line, *end;
    struct token word;
    uint64_t value;
    memset(r, 0, sizeof *r);
    if (bytes < 3 || line[bytes - 1] != '\n' || line[bytes - 2] != '\r')
        return false;
    end = line + bytes - 2;
    if (among(s->errors, '|', line, (size_t)(end - line))) {
        r->error = true;
        return true;
    }
    if (!next(&at, end, &word))
        return false;
    if (s->kind == REPLY_STATS && same(&word, "STAT", 4)) {
        r->more = true;
        return true;
    }
    if ((s->kind == REPLY_VALUES || s->kind == REPLY_VALUES_CAS) && same(&word, "VALUE", 5) && at < end)
        return value_fits(tie, line, end, r);
    if (s->kind == REPLY_NUMBER && number(&word, UINT64_MAX, &value))
        return at == end;
    if (!among(s->words, ' ', word.at, word.bytes))
        return false;
    switch (s->kind) {
    case REPLY_META: return meta_fits(tie, at, line, end, r);
    case REPLY_DEBUG:
        return same(&word, "EN", 2) ? at == end : next(&at, end, &word) && is_key(tie, word.at, word.bytes);
    case REPLY_LINE: return true;
    default: return at == end && end - line == (ptrdiff_t)word.bytes;
    }
}
