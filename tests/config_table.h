/* config_table.h - the table test of a configuration. For each field it tries zero (the default), both ends of the
 * range, and one past each end. There the error must name the field and the object must not change. It tries NULL, too.
 * Used by tests/unit/HEADER_config.c. */
#ifndef QOS_TESTS_CONFIG_TABLE_H
#define QOS_TESTS_CONFIG_TABLE_H

#include "check.h"
#include "qos.h"
#include <stddef.h>

/* One field. zero_means: the default that zero stands for; 0: zero is an ordinary value. */
struct config_field {
    const char *name; /* the error's text begins with this */
    size_t at, width;
    uint64_t zero_means;
    struct {
        uint64_t value[4];
        uint32_t count;
    } good, bad;
};
/* {CONFIG_FIELD(htb_config, depth_max), 8, CONFIG_VALUES(1, 4096), CONFIG_VALUES(4097)}. A field has 1 (bool), 4 or 8
 * bytes. CONFIG_PART is for a part of a field whose error names the whole. */
#define CONFIG_FIELD(type, field) CONFIG_PART(type, field, #field)
#define CONFIG_PART(type, part, name) name, offsetof(struct type, part), sizeof(((struct type *)NULL)->part)
#define CONFIG_COUNT(a, b, c, d, n, ...) n
#define CONFIG_VALUES(...)                                                                                             \
    {                                                                                                                  \
        {__VA_ARGS__}, CONFIG_COUNT(__VA_ARGS__, 4, 3, 2, 1, 0)                                                        \
    }
#define CONFIG_NO_VALUES                                                                                               \
    {                                                                                                                  \
        {0}, 0                                                                                                         \
    }

/* What the test needs for one configuration struct. The calls take the configuration as bytes. */
struct config_table {
    const char *name;
    const void *good; /* a valid configuration of a small object */
    size_t config_bytes, handle_bytes;
    const char *(*error)(const void *config);
    size_t (*memsize)(const void *config);
    enum qos_status (*init)(void *handle, void *mem, size_t size_bytes, const void *config);
    const struct config_field *field;
    uint32_t fields;
};
/* The calls of an object that has the usual ones: struct htb, htb_config_error, htb_memsize, htb_init. */
#define CONFIG_ERROR(object)                                                                                           \
    static const char *object##_error_of(const void *any)                                                              \
    {                                                                                                                  \
        return object##_config_error((const struct object##_config *)any);                                             \
    }
#define CONFIG_MEMSIZE(object)                                                                                         \
    static size_t object##_memsize_of(const void *any)                                                                 \
    {                                                                                                                  \
        return object##_memsize((const struct object##_config *)any);                                                  \
    }
#define CONFIG_INIT(object)                                                                                            \
    static enum qos_status object##_init_of(void *handle, void *mem, size_t size_bytes, const void *any)               \
    {                                                                                                                  \
        return object##_init((struct object *)handle, mem, size_bytes, (const struct object##_config *)any);           \
    }
#define CONFIG_CALLS(object) CONFIG_ERROR(object) CONFIG_MEMSIZE(object) CONFIG_INIT(object)
#define CONFIG_TABLE(object, good, fields) CONFIG_TABLE_OF(object, struct object, good, fields)
#define CONFIG_TABLE_OF(object, handle, good, fields)                                                                  \
    {                                                                                                                  \
#object "_config", &(good), sizeof(good), sizeof(handle), object##_error_of, object##_memsize_of,              \
            object##_init_of, fields, (uint32_t)(sizeof(fields) / sizeof *(fields))                                    \
    }

#define CONFIG_MEM_BYTES (1u << 20) /* larger objects are only sized, not made */
#define CONFIG_MAX_BYTES 512

static unsigned char config_mem[2][CONFIG_MEM_BYTES] __attribute__((aligned(64)));
static unsigned char config_handle[2][4096] __attribute__((aligned(64)));

static void config_set(unsigned char *config, const struct config_field *f, uint64_t value)
{
    uint32_t narrow = (uint32_t)value;
    uint8_t byte = (uint8_t)value;
    if (f->width == 8)
        memcpy(config + f->at, &value, 8);
    else if (f->width == 4)
        memcpy(config + f->at, &narrow, 4);
    else
        memcpy(config + f->at, &byte, 1);
}

/* Makes the object in memory that has the same contents each time. */
static enum qos_status config_make(const struct config_table *t, const void *config)
{
    memset(config_mem[0], 0x3c, sizeof config_mem[0]);
    memset(config_handle[0], 0x3c, sizeof config_handle[0]);
    return t->init(config_handle[0], config_mem[0], t->memsize(config), config);
}

/* Saves handle and memory, to compare with later. */
static void config_keep(void)
{
    memcpy(config_mem[1], config_mem[0], sizeof config_mem[0]);
    memcpy(config_handle[1], config_handle[0], sizeof config_handle[0]);
}

/* Handle and memory equal what was saved, byte for byte. */
static bool config_same(void)
{
    return memcmp(config_mem[1], config_mem[0], sizeof config_mem[0]) == 0 &&
           memcmp(config_handle[1], config_handle[0], sizeof config_handle[0]) == 0;
}

static void config_good(const struct config_table *t, const unsigned char *config)
{
    size_t need = t->memsize(config);
    CHECK(t->error(config) == NULL);
    CHECK(need != 0);
    if (need <= CONFIG_MEM_BYTES)
        CHECK_EQ(config_make(t, config), QOS_OK);
}

/* A failed init leaves an existing object unchanged. */
static void config_bad(const struct config_table *t, const char *name, const void *config)
{
    const char *said = t->error(config);
    enum qos_status status;
    CHECK(said != NULL && strncmp(said, name, strlen(name)) == 0 && said[strlen(name)] == ':');
    CHECK(said != NULL && strlen(said) > strlen(name) + 10);
    CHECK_EQ(t->memsize(config), 0);
    CHECK_EQ(config_make(t, t->good), QOS_OK);
    config_keep();
    status = t->init(config_handle[0], config_mem[0], sizeof config_mem[0], config);
    CHECK(status == QOS_ERANGE || status == QOS_EINVAL);
    CHECK(config_same());
}

/* Without a configuration: QOS_EINVAL, and a sentence that begins with "config:". An existing object stays unchanged.
   */
static void config_null(const struct config_table *t)
{
    const char *said = t->error(NULL);
    CHECK(said != NULL && strncmp(said, "config: ", 8) == 0);
    CHECK_EQ(t->memsize(NULL), 0);
    CHECK_EQ(config_make(t, t->good), QOS_OK);
    config_keep();
    CHECK_EQ(t->init(config_handle[0], config_mem[0], sizeof config_mem[0], NULL), QOS_EINVAL);
    CHECK(config_same());
}

/* A field of zero makes the same object as its default. */
static void config_zero(const struct config_table *t, const struct config_field *f)
{
    unsigned char zero[CONFIG_MAX_BYTES], full[CONFIG_MAX_BYTES];
    memcpy(zero, t->good, t->config_bytes);
    memcpy(full, t->good, t->config_bytes);
    config_set(zero, f, 0);
    config_set(full, f, f->zero_means);
    CHECK_EQ(t->memsize(zero), t->memsize(full));
    if (t->memsize(full) > CONFIG_MEM_BYTES)
        return;
    CHECK_EQ(config_make(t, zero), QOS_OK);
    config_keep();
    CHECK_EQ(config_make(t, full), QOS_OK);
    CHECK(config_same());
}

static void config_check_table(const struct config_table *t)
{
    unsigned char config[CONFIG_MAX_BYTES];
    uint32_t i, v;
    CHECK_CONTEXT("%s", t->name);
    CHECK(t->config_bytes <= sizeof config && t->handle_bytes <= sizeof config_handle[0]);
    memcpy(config, t->good, t->config_bytes);
    config_good(t, config);
    config_null(t);
    for (i = 0; i < t->fields; i++) {
        const struct config_field *f = &t->field[i];
        for (v = 0; v < f->good.count; v++) {
            CHECK_CONTEXT("%s.%s = %" PRIu64, t->name, f->name, f->good.value[v]);
            memcpy(config, t->good, t->config_bytes);
            config_set(config, f, f->good.value[v]);
            config_good(t, config);
        }
        for (v = 0; v < f->bad.count; v++) {
            CHECK_CONTEXT("%s.%s = %" PRIu64 " is out of range", t->name, f->name, f->bad.value[v]);
            memcpy(config, t->good, t->config_bytes);
            config_set(config, f, f->bad.value[v]);
            config_bad(t, f->name, config);
        }
        CHECK_CONTEXT("%s.%s = 0", t->name, f->name);
        if (f->zero_means)
            config_zero(t, f);
    }
    CHECK_CONTEXT("%s", "");
}

#endif
