// proves: the decoders of pshift.h read and write nothing outside their arguments, whatever the bytes are (value
// analysis: Eva). Every length up to that of 2 entries, each at the end of its array, with room for one entry; in make
// test every 42nd of those that end before the entries, and of the others those that end with a field or a byte before.
// eva: -eva-precision 1 -eva-split-return auto
// without: pshift.h solver
// slow plants
// plant: pshift.h|return m->count > entries_max ? QOS_EFULL : QOS_OK;|return m->count > entries_max + 1 ? QOS_EFULL : QOS_OK;
#include "__fc_builtin.h"
#include "plain.h"
#define qos_frame_open qos_frame_open_itself
#include "qos.h"
#undef qos_frame_open
#include "any_frame.h"
#include "pshift.h"

#define LONGEST (QOS_FRAME_HEADER_BYTES + PSHIFT_WIRE_HEAD_BYTES + 2 * PSHIFT_REPORT_ENTRY_BYTES + 1)
#define SPARSE 168 /* 8 bytes before the head ends */
#include "any_message.h"

static void decode_any(const uint8_t *at, size_t size_bytes)
{
    struct pshift_report_entry report; /* room for one */
    struct pshift_grant_entry grant;
    struct pshift_message message;
    (void)pshift_report_decode(at, size_bytes, &message, &report, 1);
    (void)pshift_grant_decode(at, size_bytes, &message, &grant, 1);
}
