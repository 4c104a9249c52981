"""perf/compare_gpu_probe: what it does with programs that measure, fail, hang and print rubbish."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "perf" / "compare_gpu_probe"
GPU = "gpu:0000:01:00.0"


def topology(gbps, notes=()):
    edges = [{"from": GPU, "to": "numa:0", "kind": "transfer", "bandwidth_gbps": {"measured": gbps}},
             {"from": "numa:0", "to": GPU, "kind": "transfer", "latency_ns": {"measured": 700}}]
    return json.dumps({"nodes": [{"id": "numa:0", "kind": "numa"}, {"id": GPU, "kind": "gpu"}],
                       "edges": edges if gbps else [], "notes": notes})


BENCHMARK = "gpu:00000000:01:00.0 numa:0 stores_gbps 50\nnuma:0 gpu:00000000:01:00.0 latency_ns 700\n"


class CompareGpuProbe(unittest.TestCase):
    def compare(self, probe, benchmark, *arguments):
        """Programs as their output, or as a shell script."""
        with tempfile.TemporaryDirectory() as folder:
            options = []
            for option, program in (("--topocoll", probe), ("--gpu-copy", benchmark)):
                path = Path(folder) / option.strip("-")
                path.write_text(program if program.startswith("#!") else f"#!/bin/sh\ncat <<'END'\n{program}\nEND\n")
                path.chmod(0o755)
                options += [option, path]
            run = subprocess.run([sys.executable, SCRIPT, *options, *arguments], capture_output=True, text=True,
                                 timeout=60)
            return run.returncode, run.stdout, run.stderr

    def refused(self, probe, benchmark, *arguments):
        code, out, errors = self.compare(probe, benchmark, *arguments)
        self.assertEqual((code, out), (2, ""), errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertTrue(errors.startswith("compare_gpu_probe: "), errors)
        return errors

    def test_figures_that_agree(self):
        code, out, errors = self.compare(topology(51), BENCHMARK.strip())
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("| gpu:0000:01:00.0 | memory | stores_gbps | 51.0 | 50.0 | +2.0 % |", out)

    def test_figures_that_differ(self):
        code, _, errors = self.compare(topology(60), BENCHMARK.strip())
        self.assertEqual(code, 1)
        self.assertIn("stores_gbps from gpu:0000:01:00.0 to memory is out of tolerance", errors)

    def test_programs_that_fail(self):
        fails = "#!/bin/sh\necho first >&2\necho no GPU >&2\nexit 7\n"
        self.assertIn("ended with 7: first no GPU", self.refused(topology(50), fails))
        self.assertIn("ended with 7: first no GPU", self.refused(fails, BENCHMARK.strip()))
        self.assertIn("is no program", self.refused(topology(50), "#!/bin/sh\necho is no program\nexit 1\n"))

    def test_programs_that_are_not_there_or_no_programs(self):
        self.assertIn("there is no /nowhere", self.refused(topology(50), BENCHMARK.strip(), "--gpu-copy", "/nowhere"))
        self.assertIn(str(SCRIPT.parent), self.refused(topology(50), BENCHMARK.strip(), "--topocoll", SCRIPT.parent))

    def test_programs_that_hang(self):
        hangs = "#!/bin/sh\nexec sleep 60\n"
        self.assertIn("timed out", self.refused(topology(50), hangs, "--timeout-s", "0.2"))
        self.assertIn("timed out", self.refused(hangs, BENCHMARK.strip(), "--timeout-s", "1"))

    def test_a_benchmark_that_prints_rubbish(self):
        for rubbish in ("Segmentation fault", "a b stores_gbps x", "gpu:zz:1 numa:0 stores_gbps 5", "a b c 5",
                        "a b stores_gbps 0", "a b stores_gbps nan", "a b stores_gbps inf", "a b latency_ns -1"):
            self.assertIn("printed " + repr(rubbish), self.refused(topology(50), rubbish))
        self.assertIn("measured nothing", self.refused(topology(50), "#!/bin/sh\nexit 0\n"))
        self.assertIn("printed", self.refused(topology(50), "#!/bin/sh\nprintf '\\377\\376'\n"))

    def test_a_probe_that_prints_rubbish(self):
        for rubbish in ("rubbish", "[]", "5", "{}", '{"nodes": [], "edges": [5], "notes": []}'):
            self.assertIn("printed no topology", self.refused(rubbish, BENCHMARK.strip()))

    def test_a_probe_without_gpus_says_why(self):
        errors = self.refused(topology(0, ["GPUs are not measured: no CUDA driver", "of CPUs"]), BENCHMARK.strip())
        self.assertIn("measured nothing between GPUs and memory; GPUs are not measured: no CUDA driver", errors)
        self.assertNotIn("of CPUs", errors)

    def test_a_table_that_cannot_be_written(self):
        code, _, errors = self.compare(topology(50), BENCHMARK.strip(), "--results", "/nowhere/table")
        self.assertEqual((code, errors.count("\n")), (2, 1))


if __name__ == "__main__":
    unittest.main()
