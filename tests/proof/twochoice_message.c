// proves: twochoice_message_decode reads and writes nothing outside its arguments, whatever the bytes are (value
// analysis: Eva). Every length up to that of a message and one byte more, each at the end of its array.
// eva: -eva-precision 1 -eva-split-return auto
// slow plants
// plant: twochoice.h|buf + QOS_FRAME_HEADER_BYTES, f.payload_bytes);|buf + QOS_FRAME_HEADER_BYTES, f.payload_bytes + 1);
#include "__fc_builtin.h"
#include "plain.h"
#define qos_frame_open qos_frame_open_itself
#include "qos.h"
#undef qos_frame_open
#include "any_frame.h"
#include "twochoice.h"

#define LONGEST (TWOCHOICE_MESSAGE_BYTES + 1)
#include "any_message.h"

static void decode_any(const uint8_t *at, size_t size_bytes)
{
    struct twochoice_message message;
    (void)twochoice_message_decode(at, size_bytes, &message);
}
