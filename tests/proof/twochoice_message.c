// proves: twochoice_message_decode reads and writes nothing outside its arguments, whatever the bytes are (value
// analysis: Eva). Every length up to that of 2 peers, each at the end of its array, with room for one peer.
// eva: -eva-precision 1 -eva-split-return auto
// slow plants
// plant: twochoice.h|if (got.peer_count > peers_max)|if (got.peer_count > peers_max + 1)
#include "__fc_builtin.h"
#include "plain.h"
#define qos_frame_open qos_frame_open_itself
#include "qos.h"
#undef qos_frame_open
#include "any_frame.h"
#include "twochoice.h"

#define LONGEST (TWOCHOICE_MESSAGE_BYTES(2) + 1)
#include "any_message.h"

static void decode_any(const uint8_t *at, size_t size_bytes)
{
    struct twochoice_peer peer; /* room for one */
    struct twochoice_message message;
    (void)twochoice_message_decode(at, size_bytes, &message, &peer, 1);
}
