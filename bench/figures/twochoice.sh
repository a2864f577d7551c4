#!/usr/bin/env bash
# Figures 3 and 4 of the two-choice paper from the simulation.
# usage: bench/figures/twochoice.sh OUTDIR      (run from the repository root)
set -eu
mkdir -p "$1"
build/examples/simulate twochoice --seeds 3 --figures "$1" >/dev/null
