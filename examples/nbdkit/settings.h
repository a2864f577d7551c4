/* settings.h - the parameters and the control file of the nbdkit filter.
 *
 * Both use the same words, so a line of the control file is a parameter. The lines of the file override the parameters;
 * a key that the file does not name keeps its parameter. So the settings in force do not depend on earlier contents of
 * the file. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "htb.h"

#define CLASSES_MAX 1024u /* classes that were ever named, and the one of all other exports */
#define REQUEST_COST_MAX (UINT64_C(64) << 20)
#define WHY_MAX 512

/* Cost of a request that moves no data through the socket. */
struct charge {
    bool given;
    uint32_t percent;    /* of its bytes */
    uint64_t most_bytes; /* and at most these */
};

struct class_settings {
    char *export_name; /* "": the default export */
    struct htb_class terms;
};

struct settings {
    uint64_t rate_per_s; /* 0: not given */
    struct charge zero, trim;
    uint64_t request_cost, no_data_cost; /* QOS_NEVER: not given */
    struct htb_class others;             /* all exports without a class, together */
    bool others_given;
    uint32_t classes;
    struct class_settings class_of[CLASSES_MAX];
};

struct settings *settings_new(void); /* NULL: no memory */
void settings_free(struct settings *s);

/* 1: one of these keys; its value was taken. 0: another key. -1: wrong; `why` says what to give. */
int settings_set(struct settings *s, const char *key, const char *value, char why[WHY_MAX]);
/* Adds the lines of a file. -1: wrong; errno is ENOENT if there is no file. */
int settings_read(struct settings *s, const char *path, char why[WHY_MAX]);
/* New settings: `over` overrides `under`; defaults filled in; checked as a whole. NULL: wrong. */
struct settings *settings_merged(const struct settings *under, const struct settings *over, char why[WHY_MAX]);

uint64_t charge_of(const struct charge *c, uint64_t bytes);
/* A name as one word: "" if empty, blanks and the like as %20. Returns buf: at least 3 * NBD's 4096 bytes. */
#define WORD_MAX 12300
const char *export_word(const char *name, char buf[WORD_MAX]);

#endif
