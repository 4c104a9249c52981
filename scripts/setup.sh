# shellcheck shell=bash
# What quickstart.sh and test.sh share: packages, the virtual environment, topocoll in it.
# Sourced, with `set -euo pipefail` on. Sets ROOT and VENV; every function may be called again and skips
# what is already as it should be.

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
readonly ROOT VENV
# One clone's objects serve another: paths below ROOT count as relative.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1

readonly PACKAGES=(g++ cmake ninja-build pkg-config ccache libhwloc-dev libspdlog-dev libfmt-dev
  libcli11-dev nlohmann-json3-dev libpugixml-dev libhwy-dev libibverbs-dev libgtest-dev libgmock-dev python3-dev python3-venv git)
# Some tests use these, and are skipped without.
readonly TEST_PACKAGES=(qemu-system-x86 iproute2 ibverbs-providers)
readonly REQUIREMENTS=(torch==2.11.0 numpy scikit-learn pytest setuptools wheel)

step() { printf '\n==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
  printf '\nerror: %s\n' "$*" >&2
  exit 1
}

# Digest of everything on standard input.
digest() { sha256sum | cut -d ' ' -f 1; }

# Digest of the names and contents of the files below the given paths (relative to ROOT).
digest_of() (
  cd -- "$ROOT" || exit
  find "$@" -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' -print0 2>/dev/null |
    LC_ALL=C sort -z | xargs -0 sha256sum | digest
)

have_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

# Those of the given packages that are not installed.
missing_of() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

# Runs a command as root, if there is a way that asks nobody.
as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo -n "$@"
  else
    return 1
  fi
}

install_packages() {
  # The lists may be absent or old; if they cannot be renewed the install says what is wrong.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || true
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

ensure_packages() {
  step 'system packages'
  if ! have_apt; then
    note 'this machine has no apt; under their Debian names, topocoll is built with:'
    note "${PACKAGES[*]}"
    return
  fi
  local missing
  mapfile -t missing < <(missing_of "${PACKAGES[@]}")
  if ((${#missing[@]} == 0)); then
    note 'all there'
    return
  fi
  note "installing ${missing[*]}"
  install_packages "${missing[@]}" ||
    die "apt-get could not install them; as root, run: apt-get install ${missing[*]}"
}

# Gets what it can; whatever stays missing, the tests that need it say so.
ensure_test_extras() {
  step 'what some tests use'
  local missing=()
  if have_apt; then mapfile -t missing < <(missing_of "${TEST_PACKAGES[@]}"); fi
  if ((${#missing[@]} > 0)); then
    note "installing ${missing[*]}"
    install_packages "${missing[@]}" || note "they cannot be had: tests that need them are skipped"
  fi
  # An older one may lack soft-RoCE.
  if ! compgen -G "$ROOT/.cache/test-kernel/lib/modules/*/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko" >/dev/null; then
    note 'fetching a kernel to boot in QEMU'
    "$ROOT/scripts/fetch_test_kernel.sh" >/dev/null || note 'it cannot be had: the test that boots it is skipped'
  fi
}

# A Python that can build extensions: 3.10 or newer, with venv and its headers.
python_problem() {
  "$1" - <<'PYTHON' 2>/dev/null || echo 'does not run'
import os, sys, sysconfig
if sys.version_info < (3, 10):
    print("is %d.%d, and topocoll needs 3.10 or newer" % sys.version_info[:2])
else:
    try:
        import ensurepip, venv
    except ImportError:
        print("has no venv module")
    else:
        if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
            print("has no Python.h")
PYTHON
}

find_python() {
  local candidate problem problems=''
  for candidate in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3 python3.12 python3.11 python3.10; do
    command -v "$candidate" >/dev/null || continue
    problem=$(python_problem "$candidate")
    if [[ -z $problem ]]; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
    problems+="; $candidate $problem"
  done
  die "no usable Python${problems:-; python3 is not installed} (set PYTHON to name one)"
}

# pip install into the environment, with a progress bar where somebody watches.
pip_install() {
  local quiet=()
  [[ -t 1 ]] || quiet=(--quiet)
  "$VENV/bin/python" -m pip install "${quiet[@]}" --disable-pip-version-check "$@"
}

ensure_venv() {
  step "Python environment $VENV"
  local python wanted stamp=$VENV/.topocoll-requirements
  wanted=$(printf '%s\n' "${REQUIREMENTS[@]}" | digest)
  if ! grep -qF -- "$VENV/" "$VENV/bin/pip" 2>/dev/null || ! "$VENV/bin/python" -m pip --version &>/dev/null; then
    python=$(find_python)  # there is none here, or it was made in another place
    note "making it with $python ($("$python" --version))"
    "$python" -m venv --clear "$VENV"
  elif [[ $(cat "$stamp" 2>/dev/null) == "$wanted" ]]; then
    note "up to date ($("$VENV/bin/python" --version))"
    return
  fi
  note "installing ${REQUIREMENTS[*]} (torch is large; the first time takes minutes)"
  pip_install "${REQUIREMENTS[@]}"
  printf '%s\n' "$wanted" >"$stamp"
}

ensure_topocoll() {
  step 'topocoll, built and installed into the environment'
  local wanted stamp=$VENV/.topocoll-build
  wanted=$({
    digest_of CMakeLists.txt cmake include src plugin tools perf setup.py pyproject.toml
    "${CXX:-c++}" --version
  } | digest)
  if [[ $(cat "$stamp" 2>/dev/null) == "$wanted" && -x $VENV/bin/topocoll ]]; then
    note 'up to date'
    return
  fi
  rm -f -- "$stamp"
  note 'building (the first time takes minutes)'
  pip_install --no-build-isolation --no-deps --force-reinstall "$ROOT"
  printf '%s\n' "$wanted" >"$stamp"
}

ensure_all() {
  ensure_packages
  ensure_venv
  ensure_topocoll
}
