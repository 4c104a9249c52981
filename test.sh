#!/usr/bin/env bash
# Builds what is out of date and runs the tests; the last line counts them all.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/scripts/setup.sh"

usage() {
  cat <<'TEXT'
usage: ./test.sh [options]
  --only RUNNER   one of cpp, asan, tsan, python; may be given several times (default: all four)
  --fast          cpp and python only, without the tests marked slow
  -k PATTERN      only tests with PATTERN in their name
  -h, --help      this text
runners:
  cpp      every C++ test and the checks of the house itself, optimised
  asan     the C++ tests under the address and undefined behaviour sanitizers
  tsan     the same without those of the commands under the thread sanitizer
  python   pytest over tests/python, against topocoll as installed in .venv
TEXT
}

usage_error() {
  echo "test.sh: $1" >&2
  usage >&2
  exit 2
}

RUNNERS=()
FAST=0
PATTERN=''
while (($# > 0)); do
  case $1 in
    --only)
      case ${2-} in
        cpp | asan | tsan | python) RUNNERS+=("$2") ;;
        *) usage_error "--only needs cpp, asan, tsan or python" ;;
      esac
      shift ;;
    --fast) FAST=1 ;;
    -k)
      [[ -n ${2-} ]] || usage_error '-k needs a pattern'
      PATTERN=$2
      shift ;;
    -h | --help)
      usage
      exit 0 ;;
    *) usage_error "unknown option $1" ;;
  esac
  shift
done
if ((${#RUNNERS[@]} == 0)); then
  RUNNERS=(cpp python)
  ((FAST)) || RUNNERS=(cpp asan tsan python)
fi

RESULTS=$ROOT/build/results
# Which of TOPOCOLL_* a developer has exported must not decide what the tests see.
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep '^TOPOCOLL_' || true)
export GTEST_COLOR=no PYTHONDONTWRITEBYTECODE=1
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
# The reader of hwloc files tries each in a child of its own.
export TSAN_OPTIONS="second_deadlock_stack=1 die_after_fork=0"
if ((FAST)); then export GTEST_FILTER="-*Slow*"; fi
if [[ -n $PATTERN ]]; then export GTEST_FILTER="*$PATTERN*${GTEST_FILTER-}"; fi

# run_cpp PRESET [cmake arguments]: configures, builds and runs the C++ tests of one preset.
run_cpp() {
  local preset=$1 build=$ROOT/build/$1 out=$RESULTS/$1 launcher=()
  shift
  step "C++ tests, preset $preset: build"
  (cd -- "$ROOT" && cmake --preset "$preset" -DTOPOCOLL_TESTS=ON "$@" >"$out.configure" 2>&1) ||
    { cat "$out.configure"; echo 'configure failed' >"$out.broken"; return 0; }
  cmake --build "$build" >"$out.build" 2>&1 ||
    { grep -E 'error|FAILED' "$out.build" | head -n 40; echo 'build failed' >"$out.broken"; return 0; }
  step "C++ tests, preset $preset: run"
  # The thread sanitizer needs addresses where it expects them.
  if [[ $preset == tsan ]] && setarch -R true 2>/dev/null; then launcher=(setarch -R); fi
  GTEST_OUTPUT="xml:$out/" "${launcher[@]}" ctest --test-dir "$build" --parallel 2 --output-on-failure \
    --no-tests=ignore ${PATTERN:+--label-exclude '^house$'} --output-junit "$out.ctest.xml" || true
}

run_python() {
  step 'Python tests'
  local select=()
  if ((FAST)); then select+=(-m 'not slow'); fi
  if [[ -n $PATTERN ]]; then select+=(-k "$PATTERN"); fi
  (cd -- "$ROOT" && timeout -s INT -k 60 2400 "$VENV/bin/python" -m pytest tests/python -q \
    -p no:cacheprovider "${select[@]}" --junitxml="$RESULTS/python.pytest.xml") || true
}

if [[ " ${RUNNERS[*]} " == *' python '* ]]; then
  ensure_all
else
  ensure_packages
fi
if ((!FAST)) && [[ " ${RUNNERS[*]} " == *' cpp '* ]]; then ensure_test_extras; fi
rm -rf -- "$RESULTS"
mkdir -p -- "$RESULTS"
for runner in "${RUNNERS[@]}"; do
  case $runner in
    cpp) run_cpp dev ;;
    asan) run_cpp asan ;;
    # The commands' ranks are processes, across which the thread sanitizer sees nothing.
    tsan) run_cpp tsan -DTOPOCOLL_TOOLS=OFF ;;
    python) run_python ;;
  esac
done

step 'summary'
selection=()
if [[ -n $PATTERN ]]; then selection=(--selection); fi
exec python3 "$ROOT/scripts/summarize.py" "${selection[@]}" "$RESULTS" "${RUNNERS[@]}"
