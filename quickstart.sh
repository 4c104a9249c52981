#!/usr/bin/env bash
# From a fresh clone to a model trained through topocoll: packages, build, then the main job on two ranks.
# Usage: ./quickstart.sh      (a second run skips what is up to date)
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/scripts/setup.sh"

if (($# > 0)); then
  echo 'usage: ./quickstart.sh   (it takes no arguments; PYTHON=... names the Python to use)' >&2
  [[ $1 == -h || $1 == --help ]] && exit 0
  exit 2
fi

ensure_all

step 'training on handwritten digits with 2 ranks, and the same through gloo to compare'
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$VENV/bin/torchrun" --standalone --nproc-per-node 2 "$ROOT/examples/train_digits.py" \
  --backend topocoll --compare gloo

step 'this machine, as topocoll sees it'
"$VENV/bin/topocoll" topo show

step 'all_reduce on 2 ranks'
"$VENV/bin/coll_perf" all_reduce -b 8 -e 16M -f 8 --ranks 2

step "done; $VENV/bin holds topocoll, coll_perf and a Python with backend=\"topocoll\""
