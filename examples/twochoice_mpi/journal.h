/* journal.h - a journal of acknowledged writes, without the headers that are tested. */
#ifndef TWOCHOICE_MPI_JOURNAL_H
#define TWOCHOICE_MPI_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

struct journal;
/* Opens or creates the file and reads it; writes that were open then stay open. NULL: an error was printed.
 * Several nodes may write to one file, once all have opened it. */
struct journal *journal_open(const char *path, uint32_t node);
void journal_close(struct journal *j);
/* Before a write is sent. Returns its number, from which its bytes follow. */
uint64_t journal_intent(struct journal *j, uint64_t offset, uint64_t len);
void journal_fill(uint64_t number, uint64_t offset, uint8_t *data, uint64_t len);
/* After the write was acknowledged, or has failed. */
void journal_over(struct journal *j, uint64_t number, bool acknowledged);
/* Returns how many of the bytes read at offset are wrong. A right byte is of an acknowledged write that no later
 * acknowledged one hides, of a write that was under way at the same time, or of one that was never acknowledged. It is
 * zero if nothing was written. *first: the place of the first wrong byte. */
uint64_t journal_wrong(const struct journal *j, uint64_t offset, const uint8_t *data, uint64_t len, uint64_t *first);
void journal_totals(const struct journal *j, uint64_t *writes, uint64_t *acknowledged, uint64_t *bytes);

#endif
