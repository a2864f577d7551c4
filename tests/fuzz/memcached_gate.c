// proves: memcached_gate's parser never reads past its input and waits for the remainder of a cut line; each request
// proves: that it forwards gets exactly one reply: no noreply, no q, and as many bytes of data as its line announces; a key in
// proves: base64 that would break a line is never asked back; a reply is accepted only as one line with what its request has
// flags: -D_GNU_SOURCE -Iexamples/common
// coverage: no
#include "fuzz/fuzz.h"
// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "examples/memcached_gate/protocol.c"
// NOLINTNEXTLINE(bugprone-suspicious-include)
#include "examples/common/base64.c"

struct gate_settings gate_settings = {.value_bytes_max = 1000};

static const char *const word[] = {
    "get ",
    "gets ",
    "gat ",
    "set ",
    "ms ",
    "mg ",
    "md ",
    "ma ",
    "me ",
    "mn",
    "cas ",
    "append ",
    "delete ",
    "incr ",
    "touch ",
    "add ",
    "noreply",
    "q",
    " ",
    " ",
    " ",
    " ",
    "\r\n",
    "\n",
    "0",
    "1",
    "-1",
    "5 ",
    "key ",
    "k ",
    "b ",
    "T0 ",
    "99999999999 ",
    "4294967301 ",
    "+",
    "flush_all",
    "verbosity ",
    "stats ",
    "noreply ",
    "noreply\r\n",
    "q ",
    "O1 ",
    "qq ",
    "lru ",
    "\r",
    "lru_crawler ",
    "HD",
    "EN",
    "VA ",
    "VALUE ",
    "END",
    "STORED",
    "NOT_",
    "FOUND",
    "DELETED",
    "O1",
    " k",
    "a2V5 ",
    "Cg== ",
    "CLIENT_ERROR ",
    "STAT ",
    "ME key ",
};

/* The rule in memcached's source: the last token of these commands. */
static bool silent(char *token[], uint32_t n)
{
    static const char *const of[] = {
        "set",    "add",   "replace",   "append",    "prepend",        "cas",   "incr", "decr",
        "delete", "touch", "flush_all", "verbosity", "cache_memlimit", "slabs", "lru",  "lru_crawler"};
    uint32_t k;
    for (k = 0; k < sizeof of / sizeof *of; k++)
        if (strcmp(token[0], of[k]) == 0 && n > (strcmp(token[0], "delete") == 0 ? 2 : 1))
            return strcmp(token[n - 1], "noreply") == 0;
    for (k = token[0][0] == 'm' && token[0][1] == 's' ? 3 : 2; token[0][0] == 'm' && k < n; k++)
        if (token[k][0] == 'q')
            return true;
    return false;
}

/* With b, memcached takes the key's digits, whatever is between them; it prints the key on k, and for me. */
static void never_asked_back(char *token[], uint32_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bool binary = false, printed = token[0][1] == 'e';
    uint32_t k, bits = 0, held = 0;
    const char *at;
    for (k = token[0][1] == 's' ? 3 : 2; k < n; k++) {
        binary |= printed ? k == 2 && strcmp(token[k], "b") == 0 : token[k][0] == 'b';
        printed |= token[k][0] == 'k' && token[0][1] != 'e';
    }
    for (at = token[1]; binary && printed && *at; at++) {
        const char *digit = strchr(digits, *at);
        if (!digit)
            continue;
        held = (held << 6 | (uint32_t)(digit - digits)) & 0xffff;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            FUZZ_CHECK((held >> bits & 0xff) > ' ');
        }
    }
}

static bool starts(const char *line, size_t bytes, const char *text)
{
    return bytes >= strlen(text) && memcmp(line, text, strlen(text)) == 0;
}

/* Any line as the reply to any request. */
static void reply(const char *data, size_t size)
{
    const char *second = size > 1 ? memchr(data, '\n', size - 1) : NULL, *at;
    size_t bytes = second ? (size_t)(second - data) + 1 : 0, line;
    struct head h;
    struct tie tie = {.key = "key", .key_bytes = 3, .opaque = "O1", .opaque_bytes = 2, .own_opaque = true};
    struct reply r;
    protocol_line(data, bytes, &h);
    if (h.kind != HEAD_REQUEST && h.kind != HEAD_KEYS)
        return;
    tie.shape = h.shape;
    tie.letters = h.letters | protocol_letter('O');
    data += bytes;
    for (line = 0; line < size - bytes && data[line] != '\n';)
        line++;
    line += line < size - bytes;
    if (!protocol_reply(&tie, data, line, &r))
        return;
    FUZZ_CHECK(line >= 3 && memcmp(data + line - 2, "\r\n", 2) == 0 && memchr(data, '\n', line) == data + line - 1);
    FUZZ_CHECK((size_t)r.strip_at + r.strip_bytes <= line - 2 &&
               (r.strip_bytes == 0 || memcmp(data + r.strip_at, " O1", 3) == 0));
    FUZZ_CHECK(!r.error || r.body_bytes == 0);
    FUZZ_CHECK(h.kind == HEAD_KEYS ? r.error || r.more || starts(data, line, "END\r\n")
                                   : r.more <= (starts(data, line, "STAT")));
    FUZZ_CHECK(r.body_bytes == 0 || starts(data, line, "VA"));
    if (h.shape->kind == REPLY_META && !r.error) {
        for (at = data; at < data + line - 3 && memcmp(at, " O1", 3) != 0;)
            at++;
        FUZZ_CHECK(at < data + line - 3 && r.strip_bytes == 3);
    }
    if (starts(data, line, "VALUE"))
        FUZZ_CHECK((starts(data, line, "VALUE key ") || starts(data, line, "VALUE a2V5 ")) && r.body_bytes >= 2);
}

/* memcached cuts the number to 32 bits; what is not plain digits is sent anew. */
static bool announces(const struct head *h, const char *length)
{
    return h->data_bytes == (uint64_t)(int32_t)strtoll(length, NULL, 10) + 2 &&
           (h->length_bytes ? h->length_bytes == strlen(length) : strspn(length, "0123456789") == strlen(length));
}

static void goes_on(const char *data, const struct head *h)
{
    char line[LINE_BYTES_MAX + 1], *token[TOKENS_MAX] = {line}, *at = line, *one;
    size_t bytes = h->text_bytes;
    uint32_t n = 0;
    memcpy(line, data, bytes);
    memmove(line + h->cut_at, line + h->cut_at + h->cut_bytes, bytes - h->cut_at - h->cut_bytes);
    line[bytes - h->cut_bytes] = 0;
    FUZZ_CHECK(strlen(line) == bytes - h->cut_bytes && !strpbrk(line, "\r\n\t\x7f"));
    while ((one = strsep(&at, " ")) != NULL)
        if (*one) {
            FUZZ_CHECK(n < TOKENS_MAX);
            token[n++] = one;
        }
    FUZZ_CHECK(n > 0 && *token[0] && !silent(token, n));
    FUZZ_CHECK(h->cut_bytes || (!h->quiet && !h->hide));
    if (strcmp(token[0], "ms") == 0)
        FUZZ_CHECK(n > 2 && token[2] && announces(h, token[2]));
    else if (strchr("sarpc", token[0][0]) && n >= 5 && strcmp(token[0], "slabs") != 0 &&
             strcmp(token[0], "stats") != 0 && strcmp(token[0], "cache_memlimit") != 0)
        FUZZ_CHECK(announces(h, token[4]));
    else
        FUZZ_CHECK(h->data_bytes == 0);
    FUZZ_CHECK(h->data_bytes <= gate_settings.value_bytes_max + 2);
    if (token[0][0] == 'm' && strchr("gsae", token[0][1]))
        never_asked_back(token, n);
}

static void sound(const char *data, size_t size, const struct head *h)
{
    char text[KEY_BYTES_MAX];
    FUZZ_CHECK(h->bytes <= size && h->text_bytes <= LINE_BYTES_MAX && h->key_bytes <= KEY_BYTES_MAX);
    FUZZ_CHECK(h->key_at + h->key_bytes <= size && h->cut_at + h->cut_bytes <= size);
    FUZZ_CHECK((h->kind == HEAD_ANSWER) <= (h->answer != NULL));
    if (h->key_bytes)
        FUZZ_CHECK(protocol_key_text(data, h, text) <= KEY_BYTES_MAX);
}

static void keys_of(const char *data, size_t size)
{
    bool first = true;
    struct head h;
    do {
        protocol_key(data, size, first, &h);
        sound(data, size, &h);
        FUZZ_CHECK(h.kind == HEAD_MORE || h.kind == HEAD_ANSWER || (h.kind == HEAD_REQUEST && h.bytes > 0));
        data += h.bytes;
        size -= h.bytes;
        first = false;
    } while (h.kind == HEAD_REQUEST && !h.last);
}

static void parse(const char *data, size_t size)
{
    struct head h, part;
    size_t cut;
    protocol_line(data, size, &h);
    sound(data, size, &h);
    if (h.kind == HEAD_KEYS) {
        keys_of(data + h.bytes, size - h.bytes);
        return;
    }
    if (h.kind == HEAD_REQUEST)
        goes_on(data, &h);
    for (cut = 0; h.kind == HEAD_REQUEST && cut < h.bytes; cut++) {
        protocol_line(data, cut, &part);
        FUZZ_CHECK(part.kind == HEAD_MORE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t room = size * 16 + 1, bytes = 0, k;
    char *text = malloc(room), *exact;
    for (k = 1; k < size; k++)
        if (data[0] & 1 || data[k] >= 2 * (sizeof word / sizeof *word)) {
            text[bytes++] = (char)data[k];
        } else {
            const char *w = word[data[k] % (sizeof word / sizeof *word)];
            while (*w)
                text[bytes++] = *w++;
        }
    exact = malloc(bytes ? bytes : 1); /* of the exact size: the address sanitizer sees a read past the end */
    if (bytes)
        memcpy(exact, text, bytes);
    parse(exact, bytes);
    reply(exact, bytes);
    free(exact);
    free(text);
    return 0;
}
