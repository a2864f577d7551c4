/* simulate.h - the subcommands of `simulate`, one file for each header.
 *
 * Each gets argv from its own name on, parses its own options, prints its tables, and returns the exit status. */
#ifndef EXAMPLES_SIMULATE_H
#define EXAMPLES_SIMULATE_H

int simulate_htb(int argc, char **argv);
int simulate_haechi(int argc, char **argv);
int simulate_pshift(int argc, char **argv);
int simulate_reward(int argc, char **argv);
int simulate_twochoice(int argc, char **argv);

#endif
