// links: examples/world/devices.c examples/world/clients.c
// flags: -ffp-contract=off
/* playground - the numbers that the page shows, without a browser: a header, three tenants, a simulated world */
#include "scene.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: playground [HEADER] [NAME=VALUE]...\n"
                           "  prints what each tenant gets in each tenth of a second: the numbers of the page that\n"
                           "  make playground builds. HEADER is htb (if none is named), tags, pshift, twochoice or\n"
                           "  tokenpool. NAME=VALUE are the settings in the page's link.\n"
                           "  --settings   prints each setting, its least and greatest value, and its preset\n"
                           "  --help       prints this\n"
                           "examples:\n"
                           "  playground qos=0\n"
                           "  playground htb database_rate=70 flood=1\n";

static int wrong(const char *what)
{
    fprintf(stderr, "playground: %s: no such setting or value (see playground --settings)\n", what);
    return 2;
}

static bool apply(const struct scene *scene, const char *argument, int32_t *setting)
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
    for (i = 0; i < scene->settings; i++) {
        const struct scene_setting *s = &scene->setting[i];
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
                   s->work, s->requests, s->late, s->p99_us, s->missed);
        }
        printf("%" PRIu32 " all %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
               " %" PRIu64 " %" PRId64 "\n",
               i, t->work, t->requests, t->late, t->p50_us, t->p99_us, t->missed_tenths, t->promised_per_s,
               t->fits_per_s, t->refused);
    }
}

static const struct scene *find(const char *name)
{
    size_t i;
    for (i = 0; i < SCENES; i++)
        if (strcmp(scenes[i]->name, name) == 0)
            return scenes[i];
    return NULL;
}

int main(int argc, char **argv)
{
    static struct scene_result result;
    const struct scene *scene = argc > 1 ? find(argv[1]) : NULL;
    int32_t setting[SCENE_SETTINGS_MAX];
    int i = scene ? 2 : 1;
    uint32_t k;
    scene = scene ? scene : &scene_htb;
    for (k = 0; k < scene->settings; k++)
        setting[k] = scene->setting[k].preset;
    for (; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--settings") == 0) {
            for (k = 0; k < scene->settings; k++)
                printf("%s %d %d %d\n", scene->setting[k].name, (int)scene->setting[k].least,
                       (int)scene->setting[k].most, (int)scene->setting[k].preset);
            return 0;
        }
        if (!apply(scene, argv[i], setting))
            return wrong(argv[i]);
    }
    scene_run(scene, setting, &result);
    print(&result);
    return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
