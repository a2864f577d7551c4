#!/usr/bin/env bash
# Haechi's Figures 7, 9, 11, 12, 16 and 18 from the simulation.
# usage: bench/figures/tokenpool.sh OUTDIR      (run from the repository root)
set -eu
mkdir -p "$1"
build/examples/simulate tokenpool --figures "$1" >/dev/null
