// Replies of etcd's JSON gateway: keys and values are base64, 64-bit numbers are texts, and what is false, 0 or empty is
// absent. json-c has a type json_object, and examples/common a function of that name, so this part includes nothing of
// common.h.
#include "etcd.h"
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

size_t base64_decode(const char *text, size_t bytes, void *data);
void *tool_alloc(size_t bytes);
char *tool_copy(const char *text);

static struct json_object *field(struct json_object *of, const char *name)
{
    struct json_object *found = NULL;
    return of && json_object_is_type(of, json_type_object) && json_object_object_get_ex(of, name, &found) ? found
                                                                                                          : NULL;
}

static uint64_t number(struct json_object *of)
{
    return of ? strtoull(json_object_get_string(of), NULL, 10) : 0;
}

/* A text that has a byte 0 in it ends there. */
static char *plain(struct json_object *of)
{
    const char *text = of ? json_object_get_string(of) : "";
    const size_t bytes = strlen(text);
    char *out = tool_alloc(bytes + 1); /* zeroed */
    (void)base64_decode(text, bytes, out);
    return out;
}

static void take_pairs(struct json_object *kvs, size_t prefix_bytes, struct etcd_reply *reply)
{
    size_t k;
    if (!kvs || !json_object_is_type(kvs, json_type_array))
        return;
    reply->pairs = json_object_array_length(kvs);
    reply->pair = tool_alloc((reply->pairs + 1) * sizeof *reply->pair);
    for (k = 0; k < reply->pairs; k++) {
        struct json_object *kv = json_object_array_get_idx(kvs, k);
        char *key = plain(field(kv, "key"));
        const size_t cut = strlen(key) < prefix_bytes ? strlen(key) : prefix_bytes;
        memmove(key, key + cut, strlen(key) - cut + 1);
        reply->pair[k].key = key;
        reply->pair[k].value = plain(field(kv, "value"));
        reply->pair[k].revision = number(field(kv, "mod_revision"));
    }
}

bool etcd_parse(const char *text, size_t prefix_bytes, struct etcd_reply *reply)
{
    struct json_object *all = json_tokener_parse(text), *first, *range, *header = field(all, "header");
    struct json_object *responses = field(all, "responses");
    if (!header)
        reply->error = field(all, "error") ? text : "no answer of etcd's JSON gateway";
    reply->store = number(field(header, "revision"));
    reply->succeeded = field(all, "succeeded") && json_object_get_boolean(field(all, "succeeded"));
    first =
        responses && json_object_is_type(responses, json_type_array) ? json_object_array_get_idx(responses, 0) : NULL;
    range = field(first, "response_range");
    take_pairs(field(range ? range : all, "kvs"), prefix_bytes, reply);
    json_object_put(all);
    return reply->error == NULL;
}

void etcd_forget(struct etcd_reply *reply)
{
    size_t k;
    for (k = 0; k < reply->pairs; k++) {
        free(reply->pair[k].key);
        free(reply->pair[k].value);
    }
    free(reply->pair);
    reply->pair = NULL;
    reply->pairs = 0;
}

char *etcd_token(const char *text)
{
    struct json_object *all = json_tokener_parse(text), *token = field(all, "token");
    char *copy = token ? tool_copy(json_object_get_string(token)) : NULL;
    json_object_put(all);
    return copy;
}
