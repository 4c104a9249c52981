#!/usr/bin/env bash
# Gets what tests/machine/qemu_machine_test.py boots: a kernel with its network modules and a static busybox, from
# Debian's packages, into .cache/test-kernel (71 MB to download; the smaller cloud kernel has no soft-RoCE). Installs nothing. QEMU itself is a package:
# apt-get install qemu-system-x86.
set -euo pipefail

target=${1:-$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)/.cache/test-kernel}
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT

command -v apt-get dpkg-deb >/dev/null || {
  echo 'error: this needs apt and dpkg; else set TOPOCOLL_TEST_KERNEL to a folder with boot/vmlinuz-VERSION,' \
    'lib/modules/VERSION and a static bin/busybox' >&2
  exit 1
}
image=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
[[ -n $image ]] || {
  echo 'error: apt knows no linux-image-amd64; run apt-get update, or use Debian' >&2
  exit 1
}
(cd -- "$folder" && apt-get download "$image" busybox-static)
rm -rf -- "$target"
mkdir -p -- "$target"
dpkg-deb -x "$folder"/busybox-static*.deb "$target"
modules='./lib/modules/*/kernel'
dpkg-deb --fsys-tarfile "$folder"/linux-image*.deb | tar -x -C "$target" --wildcards './boot/vmlinuz-*' "$modules/net/*" \
  "$modules/lib/*" "$modules/crypto/*" "$modules/arch/*" "$modules"/drivers/{net,virtio,infiniband}'/*'
echo "in $target: $(basename -- "$target"/boot/vmlinuz-*) and busybox"
