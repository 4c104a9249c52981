#!/usr/bin/env python3
"""Builds a machine that is not there, boots Linux on it, and sees whether topocoll finds what was built.

    qemu_machine_test.py TOPOCOLL [--keep ARCHIVE]

QEMU emulates two NUMA nodes of two CPUs, on each a PCIe host bridge, a root port, a switch and two NICs.
Inside, `topocoll topo record` copies what the kernel shows; outside, `topo show --from` and `topo matrix`
must give the machine as it was built. Then soft-RoCE makes an RDMA port of a NIC on each node, and `topo
probe` must measure what they need to read memory. No KVM, no root. Exits 77 with the reason where something is missing:
qemu-system-x86_64 in the PATH, and a kernel with busybox (scripts/fetch_test_kernel.sh gets both).
"""

import argparse
import glob
import gzip
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SKIPPED = 77
BOOT_SECONDS = 110
# In the order of their needs; the kernel may have them built in, or not at all.
MODULES = ["virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "failover",
           "net_failover", "virtio_net", "e1000e"]
RDMA_MODULES = ["crc32_generic", "libcrc32c", "udp_tunnel", "ip6_udp_tunnel", "ib_core", "ib_uverbs", "rdma_rxe"]
RDMA_PROVIDER = "/usr/lib/*/libibverbs/librxe-rdmav*.so"
ROOT = Path(__file__).resolve().parents[2]

INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in NIC_NEEDS; do [ -e /modules/$module.ko ] && /bin/busybox insmod /modules/$module.ko; done
/bin/busybox stty -F /dev/ttyS1 raw -echo
/bin/topocoll topo record /tmp/out/machine
if [ -e /bin/rdma ]; then
  for module in RDMA_NEEDS; do [ -e /modules/$module.ko ] && /bin/busybox insmod /modules/$module.ko; done
  /bin/busybox ip link set lo up
  for node in 0 1; do
    for interface in /sys/class/net/eth*; do
      [ $(/bin/busybox cat $interface/device/numa_node $interface/device/../numa_node 2>/dev/null | /bin/busybox head -1) = $node ] && break
    done
    interface=${interface##*/}
    /bin/busybox ip addr add 10.0.$node.1/24 dev $interface
    /bin/busybox ip link set $interface up
    /bin/rdma link add rxe$node type rxe netdev $interface
  done
  /bin/busybox sleep 1
  /bin/topocoll topo record /tmp/out/rdma
  /bin/topocoll topo probe --no-cache --budget-ms 6000 --json > /tmp/out/probe.json
fi
/bin/busybox tar -C /tmp/out -c . | /bin/busybox gzip -9 > /dev/ttyS1
/bin/busybox poweroff -f
""".replace("RDMA_NEEDS", " ".join(RDMA_MODULES)).replace("NIC_NEEDS", " ".join(MODULES))


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def find_kernel():
    """A kernel image, its modules (or None) and a static busybox."""
    fetched = Path(os.environ.get("TOPOCOLL_TEST_KERNEL", ROOT / ".cache" / "test-kernel"))
    kernels = sorted(fetched.glob("boot/vmlinuz-*"))
    busyboxes = [fetched / "bin/busybox", fetched / "usr/bin/busybox", Path("/bin/busybox")]
    if not kernels:
        kernels = [k for k in sorted(Path("/boot").glob("vmlinuz-*")) if os.access(k, os.R_OK)]
        fetched = Path("/")
    if not kernels:
        skip("no kernel to boot; scripts/fetch_test_kernel.sh gets one, or TOPOCOLL_TEST_KERNEL names a folder")
    busybox = next((b for b in busyboxes if b.exists()), None)
    if busybox is None:
        skip("no static busybox; scripts/fetch_test_kernel.sh gets one")
    kernel = kernels[-1]
    modules = fetched / "lib/modules" / kernel.name.removeprefix("vmlinuz-")
    return kernel, modules if modules.exists() else None, busybox


class Rdma:
    """What soft-RoCE needs in the machine, from this one; `lacks` says what is not there."""

    def __init__(self, modules):
        self.tool = shutil.which("rdma", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        self.provider = next(iter(sorted(glob.glob(RDMA_PROVIDER))), None)
        self.library = next(iter(sorted(glob.glob("/usr/lib/*/libibverbs.so.1"))), None)
        module = modules and any(modules.rglob("rdma_rxe.ko"))
        self.lacks = ", ".join(what for what, there in [
            ("rdma (Debian: iproute2)", self.tool), ("libibverbs (Debian: ibverbs-providers)", self.library),
            (RDMA_PROVIDER, self.provider), ("a kernel with rdma_rxe (scripts/fetch_test_kernel.sh)", module)] if not there)

    def add_to(self, image):
        image.program("bin/rdma", self.tool)
        for library in (self.library, self.provider):
            image.program(library, library)
        image.file("etc/libibverbs.d/rxe.driver", b"driver rxe\n")


class Initramfs:
    """A cpio archive in the kernel's format ("newc")."""

    def __init__(self):
        self.data = io.BytesIO()
        self.known = set()

    def _add(self, path, mode, content):
        name = path.strip("/")
        if name in self.known:
            return
        self.known.add(name)
        if "/" in name:
            self.directory(name.rsplit("/", 1)[0])
        fields = [len(self.known), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        self.data.write(b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0")
        self._pad()
        self.data.write(content)
        self._pad()

    def _pad(self):
        self.data.write(b"\0" * (-self.data.tell() % 4))

    def directory(self, path):
        self._add(path, stat.S_IFDIR | 0o755, b"")

    def file(self, path, content):
        self._add(path, stat.S_IFREG | 0o755, content)

    def program(self, path, source):
        """With the libraries it is linked with."""
        self.file(path, Path(source).read_bytes())
        for line in subprocess.check_output(["ldd", source], text=True).splitlines():
            words = line.split()
            library = words[2] if "=>" in words else words[0]
            if library.startswith("/"):
                self.file(library, Path(library).read_bytes())

    def packed(self):
        self._add("TRAILER!!!", 0, b"")
        return gzip.compress(self.data.getvalue(), 1)


def make_initramfs(topocoll, modules, busybox, rdma):
    image = Initramfs()
    for directory in ["proc", "sys", "dev", "tmp/out"]:
        image.directory(directory)
    image.file("init", INIT.encode())
    image.file("bin/busybox", busybox.read_bytes())
    image.program("bin/topocoll", topocoll)
    if not rdma.lacks:
        rdma.add_to(image)
    for name in MODULES + RDMA_MODULES:
        found = sorted(modules.rglob(f"{name}.ko")) if modules else []
        if found:
            image.file(f"modules/{name}.ko", found[0].read_bytes())
    return image.packed()


def machine_arguments():
    """Two of everything; ids end in the NUMA node."""
    arguments = ["-M", "q35", "-accel", "tcg", "-cpu", "max", "-m", "1024", "-smp", "4,sockets=2,cores=2"]
    devices = []
    for node in range(2):
        arguments += ["-object", f"memory-backend-ram,id=memory{node},size=512M",
                      "-numa", f"node,nodeid={node},cpus={2 * node}-{2 * node + 1},memdev=memory{node}"]
        devices += [f"pxb-pcie,id=host{node},bus=pcie.0,bus_nr={32 * (node + 1)},numa_node={node}",
                    f"pcie-root-port,id=root{node},bus=host{node},chassis={10 * node + 1},x-speed=16,x-width=16",
                    f"x3130-upstream,id=up{node},bus=root{node}"]
        for port in range(2):
            nic = "e1000e" if (node, port) == (0, 1) else "virtio-net-pci"
            devices += [f"xio3130-downstream,id=down{node}{port},bus=up{node},chassis={10 * node + port + 2}",
                        f"{nic},bus=down{node}{port},romfile=,mac=52:54:00:00:0{node}:0{port}"]
    return arguments + [word for device in devices for word in ("-device", device)]


def boot(qemu, kernel, initramfs, folder):
    """The recorded machine, as the bytes of a packed tar."""
    (folder / "initramfs").write_bytes(initramfs)
    command = [qemu, *machine_arguments(), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
               "-kernel", str(kernel), "-initrd", str(folder / "initramfs"),
               "-append", "console=ttyS0 quiet panic=-1",
               "-serial", f"file:{folder / 'console'}", "-serial", f"file:{folder / 'record'}"]
    try:
        done = subprocess.run(command, timeout=BOOT_SECONDS, capture_output=True, text=True)
        problem = f"qemu ended with {done.returncode}: {done.stderr}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"the machine was not done after {BOOT_SECONDS} s"
    record = (folder / "record").read_bytes() if (folder / "record").exists() else b""
    if problem or not record:
        console = (folder / "console").read_text(errors="replace") if (folder / "console").exists() else ""
        sys.exit(f"{problem or 'nothing was recorded'}\n{console[-4000:]}")
    return gzip.decompress(record)


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: found {found}, built {expected}")


def check_machine(topocoll, archive, modules):
    def topo(*arguments):
        return subprocess.run([topocoll, "topo", *arguments, "--from", str(archive)], capture_output=True, text=True)

    shown = topo("show", "--json")
    if shown.returncode:
        sys.exit(f"topo show failed: {shown.stderr}")
    machine = json.loads(shown.stdout)
    nodes = {node["id"]: node for node in machine["nodes"]}
    above = {e["to"]: e["from"] for e in machine["edges"] if e["kind"] in ("contains", "pci")}

    def path(name):
        result = []
        while name in above:
            name = above[name]
            result.append(name)
        return result

    check("NUMA nodes and their CPUs", {n: nodes[n]["cpus"] for n in nodes if nodes[n]["kind"] == "numa"},
          {"numa:0": [0, 1], "numa:1": [2, 3]})
    nics = sorted(n for n in nodes if nodes[n]["kind"] == "nic")
    places = []
    for nic in nics:
        bridges = [b for b in path(nic) if nodes[b]["kind"] == "pci_bridge"]
        numa = next((n for n in path(nic) if nodes[n]["kind"] == "numa"), None)
        models = tuple(nodes[b]["attributes"]["device"] for b in bridges)
        places.append((numa, models, nodes[nic]["attributes"]["numa_node"]))
        check(f"the switch above {nic}", nodes[bridges[1]]["bdf"].split(":")[1],
              {"numa:0": "21", "numa:1": "41"}[numa])
    switch = ("0x8233", "0x8232", "0x000c")  # downstream, upstream, root port
    check("places of NICs", places, [("numa:0", switch, "0")] * 2 + [("numa:1", switch, "1")] * 2)
    ports = sorted(above[n] for n in nodes if nodes[n]["kind"] == "nic_port")
    virtio = [n for n in nics if nodes[n]["attributes"]["vendor"] == "0x1af4"]
    if modules and list(modules.rglob("virtio_net.ko")):
        check("NICs with an interface", [n for n in ports if n in virtio], virtio)
    matrix = json.loads(topo("matrix", "--json").stdout)
    check("devices of the matrix", [device["id"] for device in matrix["devices"]], nics)
    check("ways between NICs", [row[i + 1:] for i, row in enumerate(matrix["paths"])],
          [["PIX", "SYS", "SYS"], ["SYS", "SYS"], ["PIX"], []])
    findings = topo("check", "--json")
    json.loads(findings.stdout)
    if findings.returncode not in (0, 3):
        sys.exit(f"topo check failed: {findings.stderr}")


def check_probe(topocoll, folder):
    """What two soft-RoCE ports need to read memory of two NUMA nodes."""
    recorded = subprocess.run([topocoll, "topo", "show", "--json", "--from", folder / "rdma"], capture_output=True,
                              text=True)
    probed = json.loads((folder / "probe.json").read_text())
    for machine in (json.loads(recorded.stdout), probed):
        nodes = {node["id"]: node for node in machine["nodes"]}
        ports = {n: nodes[n]["attributes"] for n in nodes if "rdma" in nodes[n].get("attributes", {})}
        check("RDMA ports", {n: (ports[n]["state"], ports[n]["software"]) for n in ports},
              {f"port:rxe{i}/1": ("ACTIVE", "yes") for i in range(2)})
        above = {e["to"]: e["from"] for e in machine["edges"] if e["kind"] in ("contains", "pci")}
        check("NUMA nodes of RDMA ports", [nodes[above[n]]["attributes"]["numa_node"] for n in sorted(ports)],
              ["0", "1"])
    reads = {(e["from"], e["to"]): e["latency_ns"]["measured"] for e in probed["edges"]
             if e["kind"] == "transfer" and "nic" in nodes[above[e["to"]]]["kind"]}
    if sorted(reads) != [(f"numa:{m}", f"port:rxe{i}/1") for m in range(2) for i in range(2)]:
        sys.exit(f"reads of memory by ports: {reads}; notes: {probed['notes']}")
    print("measured:", ", ".join(f"{a} -> {b} {ns / 1000:.1f} us" for (a, b), ns in sorted(reads.items())))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("topocoll")
    parser.add_argument("--keep", help="where the recorded machine is to stay, a .tar.bz2")
    arguments = parser.parse_args()
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        skip("there is no qemu-system-x86_64 (Debian: qemu-system-x86)")
    kernel, modules, busybox = find_kernel()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rdma = Rdma(modules)
        tar = boot(qemu, kernel, make_initramfs(arguments.topocoll, modules, busybox, rdma), folder)
        with tarfile.open(fileobj=io.BytesIO(tar)) as recorded:
            recorded.extractall(folder)
        archive = Path(arguments.keep or folder / "machine.tar.bz2")
        subprocess.run(["tar", "--create", "--bzip2", "--file", archive, "--owner=0", "--group=0", "--numeric-owner",
                        "--mtime=@0", "--sort=name", "-C", folder, "machine"], check=True)
        check_machine(arguments.topocoll, archive, modules)
        if rdma.lacks:
            print(f"RDMA ports not measured, for want of {rdma.lacks}")
        else:
            check_probe(arguments.topocoll, folder)
    print("discovered as built")


if __name__ == "__main__":
    main()
