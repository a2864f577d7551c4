// links: examples/world/devices.c examples/world/clients.c
// flags: -ffp-contract=off
/* playground - the numbers that the page shows, without a browser: htb.h, three tenants, a simulated device */
#include "scene.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: playground [NAME=VALUE]...\n"
                           "  prints what each tenant gets in each tenth of a second: the numbers of the page that\n"
                           "  make playground builds. NAME=VALUE are the settings in the page's link.\n"
                           "  --settings   prints each setting, its least and greatest value, and its preset\n"
                           "  --help       prints this\n"
                           "examples:\n"
                           "  playground qos=0\n"
                           "  playground database_rate=70 flood=1\n";

static int wrong(const char *what)
{
    fprintf(stderr, "playground: %s: no such setting or value (see playground --settings)\n", what);
    return 2;
}

static bool apply(const char *argument, int32_t *setting)
{
    const char *equals = strchr(argument, '=');
    char *end;
    long value;
    size_t i;
    if (!equals)
        return false;
    errno = 0;
    value = strtol(equals + 1, &end, 10);
    if (errno || *end || end == equals + 1)
        return false;
    for (i = 0; i < SCENE_SETTINGS_COUNT; i++) {
        const struct scene_setting_info *s = &scene_settings[i];
        if (strlen(s->name) != (size_t)(equals - argument) || strncmp(s->name, argument, strlen(s->name)) != 0)
            continue;
        setting[i] = (int32_t)value;
        return value >= s->least && value <= s->most;
    }
    return false;
}

/* Every number, in the order of the struct: the page prints the same. */
static void print(const struct scene_result *r)
{
    uint32_t i, k;
    for (i = 0; i < SCENE_TENANTS; i++) {
        const struct scene_total *t = &r->total[i];
        for (k = 0; k < SCENE_TENTHS; k++) {
            const struct scene_tenth *s = &r->tenth[i][k];
            printf("%" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i, k,
                   s->bytes, s->requests, s->late, s->p99_us, s->missed);
        }
        printf("%" PRIu32 " all %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
               " %" PRIu64 " %" PRId64 "\n",
               i, t->bytes, t->requests, t->late, t->p50_us, t->p99_us, t->missed_tenths, t->promised_bytes_per_s,
               t->fits_bytes_per_s, t->refused);
    }
}

int main(int argc, char **argv)
{
    static struct scene_result result;
    int32_t setting[SCENE_SETTINGS_COUNT];
    int i;
    for (i = 0; i < SCENE_SETTINGS_COUNT; i++)
        setting[i] = scene_settings[i].preset;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--settings") == 0) {
            for (i = 0; i < SCENE_SETTINGS_COUNT; i++)
                printf("%s %d %d %d\n", scene_settings[i].name, (int)scene_settings[i].least,
                       (int)scene_settings[i].most, (int)scene_settings[i].preset);
            return 0;
        }
        if (!apply(argv[i], setting))
            return wrong(argv[i]);
    }
    scene_run(setting, &result);
    print(&result);
    return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
