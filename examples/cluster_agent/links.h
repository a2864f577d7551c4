/* links.h - messages between nodes and controllers, by ZeroMQ with CURVE keys. They may be lost, late and repeated. One thread
 * uses it. A process is either a controller (links_serve) or a node (links_join).
 */
#ifndef CLUSTER_AGENT_LINKS_H
#define CLUSTER_AGENT_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINKS_KEY 41 /* Z85, with its end */
#define LINKS_ADDRESS 128
#define LINKS_CONTROLLERS_MAX 8

enum links_tag {
    LINKS_GRANT = 9,
    LINKS_GRANT_ASK, /* a grant; the node reports again at once */
    LINKS_REPORT = 64
};
struct links_mail {
    uint32_t from; /* a node's number, or a controller's, from 0 */
    int tag;
    size_t bytes;
    const void *data; /* until the next links_take */
};

/* A controller: it listens at address:port. key "": this number is nobody's any more. */
void links_serve(const char *address, const char *secret_key, uint32_t nodes);
void links_admit(uint32_t number, const char *key);
/* A node. address "": not this controller any more. false: this is no address. */
void links_join(const char *public_key, const char *secret_key);
bool links_reach(uint32_t controller, const char *address, const char *key);
/* Copies; does not wait. Each direction of a link holds at most 8 messages; then the oldest is dropped. */
void links_send(uint32_t to, int tag, const void *data, size_t bytes);
bool links_take(struct links_mail *m); /* false: nothing has arrived */
void links_push(void);
/* Keys in files: DIR/NAME.public, DIR/NAME.secret. make: false: a half is there already, and nothing changes. */
bool links_is_key(const char *key);
void links_read_key(char key[LINKS_KEY], const char *dir, const char *name, const char *half);
bool links_make_keys(const char *dir, const char *name);

#endif
