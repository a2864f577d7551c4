/* journal.h - what was acknowledged, kept without a line of the headers that are on trial. */
#ifndef TWOCHOICE_MPI_JOURNAL_H
#define TWOCHOICE_MPI_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

struct journal;
/* Opens or makes the file and reads it; what was not over by then never is. NULL: said why. Several nodes may write to one
 * file, once all have opened it. */
struct journal *journal_open(const char *path, uint32_t node);
void journal_close(struct journal *j);
/* Before a write is sent. Returns its number, from which its bytes follow. */
uint64_t journal_intent(struct journal *j, uint64_t offset, uint64_t len);
void journal_fill(uint64_t number, uint64_t offset, uint8_t *data, uint64_t len);
/* It was acknowledged, or has failed. */
void journal_over(struct journal *j, uint64_t number, bool acknowledged);
/* How many of the bytes read at offset are none that may stand there: a byte must be of an acknowledged write that no
 * later acknowledged one hides, or of one that was under way beside that, or was never acknowledged (zero where nothing
 * was). *first: where the first wrong one is. */
uint64_t journal_wrong(const struct journal *j, uint64_t offset, const uint8_t *data, uint64_t len, uint64_t *first);
void journal_totals(const struct journal *j, uint64_t *writes, uint64_t *acknowledged, uint64_t *bytes);

#endif
