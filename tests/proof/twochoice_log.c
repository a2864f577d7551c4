// proves: the scan of a log in twochoice.h (read, checksum, decode, torn or damaged, check) does nothing undefined,
// proves: whatever the storage returns (value analysis: Eva)
// eva: -eva-precision 1 -eva-use-spec twochoice_priv_growth,twochoice_priv_apply,twochoice_priv_read -eva-split-return auto -no-warn-unsigned-overflow
// slow plants
// plant: twochoice.h|at + TWOCHOICE_RECORD_BYTES > got|at > got
//
// The tree is left out: contracts replace its two functions. (fuzz/twochoice_recover goes through both.) So is the loop that
// reads on after a short read, as its bounds relate two variables; unit/twochoice_commits runs it under the sanitizers. The
// log has no end here, so the count of its bytes may wrap.
#include "__fc_builtin.h"
#include "plain.h"
#include "twochoice.h"

/*@ assigns \result \from *table, *f;
    ensures 0 <= \result <= 2; */
QOS_PRIV uint32_t twochoice_priv_growth(const struct twochoice_table *table, const struct twochoice_priv_range *f);

/*@ requires \valid(table);
    assigns table->fragments, table->at \from *table, *f;
    ensures table->fragments <= table->max_fragments; */
QOS_PRIV void twochoice_priv_apply(struct twochoice_table *table, const struct twochoice_priv_range *f);

/*@ requires \valid(buf + (0 .. len - 1)) && \valid(got);
    assigns buf[0 .. len - 1], *got, \result \from pos, log;
    ensures 0 <= *got <= len && \initialized(buf + (0 .. len - 1)); */
QOS_PRIV enum qos_status twochoice_priv_read(const struct twochoice_table *table, uint32_t log, uint64_t pos,
                                             uint8_t *buf, size_t len, size_t *got);

int main(void)
{
    static struct twochoice_table table;
    static struct twochoice_recovery recovery;
    static struct twochoice_priv_ended ended[4];
    uint64_t end = 0;
    table.has_storage = true;
    table.ended = ended;
    table.groups = 4;
    table.max_fragments = TWOCHOICE_FRAGMENTS_MAX;
    table.home = Frama_C_unsigned_int_interval(0, TWOCHOICE_SERVERS_MAX - 1);
    (void)twochoice_priv_replay(&table, &recovery, &end);
    return 0;
}
