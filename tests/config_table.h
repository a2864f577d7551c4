/* config_table.h - the table test of a configuration: for each field what zero means, both ends of its range, and one past
 * each end with a sentence that names the field and an object that is as it was. Used by tests/unit/HEADER_config.c. */
#ifndef QOS_TESTS_CONFIG_TABLE_H
#define QOS_TESTS_CONFIG_TABLE_H

#include "check.h"
#include "qos.h"
#include <stddef.h>

#define CONFIG_VALUES 4

/* One field of a configuration. zero_means: the value that 0 stands for; 0: it stands for itself. */
struct config_field {
    const char *name;
    size_t at, width;
    uint64_t zero_means;
    uint64_t good[CONFIG_VALUES], bad[CONFIG_VALUES]; /* the first `goods` and `bads` */
    uint32_t goods, bads;
};
/* A field of 1 (bool), 4 or 8 bytes. */
#define CONFIG_FIELD(type, field) #field, offsetof(struct type, field), sizeof(((struct type *)NULL)->field)

/* What a test says of one configuration struct. All take the configuration as it lies in memory. */
struct config_table {
    const char *name;
    const void *good; /* a configuration that is in order, and small */
    size_t config_bytes, handle_bytes;
    const char *(*error)(const void *config);
    size_t (*memsize)(const void *config); /* NULL: the object needs no memory besides its handle */
    enum qos_status (*init)(void *handle, void *mem, size_t size_bytes, const void *config);
    const struct config_field *field;
    uint32_t fields;
};

#define CONFIG_MEM_BYTES (1u << 20) /* larger objects are measured, not made */
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

static void config_fill(int which)
{
    memset(config_mem[which], 0x3c, sizeof config_mem[which]);
    memset(config_handle[which], 0x3c, sizeof config_handle[which]);
}

/* Makes the object in the first memory, which always begins the same. */
static enum qos_status config_make(const struct config_table *t, const void *config)
{
    size_t need = t->memsize ? t->memsize(config) : 0;
    config_fill(0);
    return t->init(config_handle[0], config_mem[0], need, config);
}

static void config_good(const struct config_table *t, const unsigned char *config)
{
    size_t need = t->memsize ? t->memsize(config) : 1;
    CHECK(t->error(config) == NULL);
    CHECK(need != 0);
    if (need <= CONFIG_MEM_BYTES)
        CHECK_EQ(config_make(t, config), QOS_OK);
}

static void config_bad(const struct config_table *t, const struct config_field *f, const unsigned char *config)
{
    const char *said = t->error(config);
    CHECK(said != NULL && strstr(said, f->name) != NULL && strlen(said) > strlen(f->name) + 10);
    if (t->memsize)
        CHECK_EQ(t->memsize(config), 0);
    /* An object that is in use stays as it is, bit for bit. */
    CHECK_EQ(config_make(t, t->good), QOS_OK);
    memcpy(config_mem[1], config_mem[0], sizeof config_mem[0]);
    memcpy(config_handle[1], config_handle[0], sizeof config_handle[0]);
    CHECK(t->init(config_handle[0], config_mem[0], sizeof config_mem[0], config) != QOS_OK);
    CHECK(memcmp(config_mem[1], config_mem[0], sizeof config_mem[0]) == 0);
    CHECK(memcmp(config_handle[1], config_handle[0], sizeof config_handle[0]) == 0);
}

/* The field's zero makes the same object as the value that it stands for. */
static void config_zero(const struct config_table *t, const struct config_field *f)
{
    unsigned char zero[CONFIG_MAX_BYTES], full[CONFIG_MAX_BYTES];
    memcpy(zero, t->good, t->config_bytes);
    memcpy(full, t->good, t->config_bytes);
    config_set(zero, f, 0);
    config_set(full, f, f->zero_means);
    if (t->memsize)
        CHECK_EQ(t->memsize(zero), t->memsize(full));
    CHECK_EQ(config_make(t, zero), QOS_OK);
    memcpy(config_mem[1], config_mem[0], sizeof config_mem[0]);
    memcpy(config_handle[1], config_handle[0], sizeof config_handle[0]);
    CHECK_EQ(config_make(t, full), QOS_OK);
    CHECK(memcmp(config_mem[1], config_mem[0], sizeof config_mem[0]) == 0);
    CHECK(memcmp(config_handle[1], config_handle[0], sizeof config_handle[0]) == 0);
}

static void config_check_table(const struct config_table *t)
{
    unsigned char config[CONFIG_MAX_BYTES];
    uint32_t i, v;
    CHECK_CONTEXT("%s", t->name);
    CHECK(t->config_bytes <= sizeof config && t->handle_bytes <= sizeof config_handle[0]);
    memcpy(config, t->good, t->config_bytes);
    config_good(t, config);
    for (i = 0; i < t->fields; i++) {
        const struct config_field *f = &t->field[i];
        for (v = 0; v < f->goods; v++) {
            CHECK_CONTEXT("%s.%s = %" PRIu64, t->name, f->name, f->good[v]);
            memcpy(config, t->good, t->config_bytes);
            config_set(config, f, f->good[v]);
            config_good(t, config);
        }
        for (v = 0; v < f->bads; v++) {
            CHECK_CONTEXT("%s.%s = %" PRIu64 " is out of range", t->name, f->name, f->bad[v]);
            memcpy(config, t->good, t->config_bytes);
            config_set(config, f, f->bad[v]);
            config_bad(t, f, config);
        }
        CHECK_CONTEXT("%s.%s = 0", t->name, f->name);
        if (f->zero_means)
            config_zero(t, f);
    }
    CHECK_CONTEXT("%s", "");
}

#endif
