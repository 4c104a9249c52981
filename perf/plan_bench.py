#!/usr/bin/env python3
"""Times the planner on one core: machines of tests/fixtures, machines of many hosts, clusters.

    perf/plan_bench.py build/release/tools/topocoll [--results perf/RESULTS.md]

Each command runs in a process of its own; what is told is its user and system time, its elapsed time and the most memory it
held. With --results the table replaces the one in that file.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
MARKS = ("<!-- plan_bench:begin -->", "<!-- plan_bench:end -->")
FABRIC = {"topocoll_fabric": 1, "rails": 8, "gbps_per_gpu": 50, "nodes_per_leaf": 32, "oversubscription": 2,
          "latency_ns": 1500, "spine_latency_ns": 1000}


def hosts_in_one_file(count):
    """HGX H100 nodes on eight rails, as one graph."""
    graph = {"unit": "GB/s per direction", "nodes": [{"id": f"rail{g}", "kind": "sw"} for g in range(8)], "edges": []}
    for h in range(count):
        graph["nodes"].append({"id": f"h{h}nvs", "kind": "sw"})
        for g in range(8):
            gpu = f"h{h}g{g}"
            graph["nodes"].append({"id": gpu, "kind": "gpu"})
            for other, gbps in ((f"h{h}nvs", 450), (f"rail{g}", 50)):
                graph["edges"] += [[gpu, other, gbps], [other, gpu, gbps]]
    return graph


def measure(command):
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, {0}))
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - started, usage.ru_maxrss / 1024


def rows(folder):
    fabric = folder / "rails.json"
    fabric.write_text(json.dumps(FABRIC))
    many = folder / "64_hosts.json"
    many.write_text(json.dumps(hosts_in_one_file(64)))
    node = FIXTURES / "hgxh100_x1.json"
    for collective in ("all_gather", "all_reduce"):
        for file in sorted(FIXTURES.glob("*.json")):
            ranks = json.loads(file.read_text())["expect"]["n"]
            if ranks == 16:
                yield f"plan make {file.name}", ranks, collective, ["plan", "make", str(file)]
        yield "plan make 64_hosts.json", 512, collective, ["plan", "make", str(many)]
        for nodes in (64, 2048):
            for what in ("make", "simulate"):
                yield (f"plan {what} {node.name} --nodes {nodes} --fabric rails.json", 8 * nodes, collective,
                       ["plan", what, str(node), "--nodes", str(nodes), "--fabric", str(fabric)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topocoll", help="the command to time")
    parser.add_argument("--results", type=Path, help="the file whose table is replaced")
    options = parser.parse_args()
    lines = [f"Linux {platform.release()}, {platform.machine()}, one core of {os.cpu_count()}, {datetime.date.today()}, `perf/plan_bench.py`;",
             "64_hosts.json is 64 HGX H100 on eight rails in one graph, rails.json the fabric of docs/planning.md.", "",
             "| command | ranks | collective | CPU s | elapsed s | MiB |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for title, ranks, collective, command in rows(Path(folder)):
            cpu, elapsed, mib = measure([options.topocoll, *command, "--collective", collective])
            lines.append(f"| {title} | {ranks} | {collective} | {cpu:.2f} | {elapsed:.2f} | {mib:.0f} |")
            print(lines[-1], flush=True)
    if options.results is None:
        return
    text = options.results.read_text()
    begin, end = (text.index(mark) for mark in MARKS)
    options.results.write_text(text[:begin] + MARKS[0] + "\n" + "\n".join(lines) + "\n" + text[end:])


if __name__ == "__main__":
    main()
