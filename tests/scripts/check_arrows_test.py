"""check_arrows.py: what it lets pass and what it catches, each in a tree made for the case."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_arrows.py"
HEADERS = ["include/topocoll/status.h", "src/base/os.h", "src/topology/graph.h",
           "src/planner/bound.h", "src/transport/shm/segment.h", "src/communicator/core.h",
           "perf/table.h", "perf/coll_perf/launch.h", "tests/support/ranks.h"]


class Arrows(unittest.TestCase):
    def check(self, path, include):
        """Exit code and output for a house in which line 2 of `path` is `include`."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "a house"
            for header in HEADERS:
                (root / header).parent.mkdir(parents=True, exist_ok=True)
                (root / header).write_text("#pragma once\n")
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"// A file.\n{include}\n")
            run = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
            return run.returncode, run.stdout + run.stderr

    def passes(self, path, include):
        code, output = self.check(path, include)
        self.assertEqual(code, 0, output)

    def fails(self, path, include):
        code, output = self.check(path, include)
        self.assertEqual(code, 1, f"{include} in {path} was let pass")
        self.assertTrue(output.startswith(f"{path}:2: "), output)

    def test_arrows_down(self):
        self.passes("src/transport/shm/a.cc", '#include "base/os.h"')
        self.passes("src/transport/shm/a.cc", '#include "transport/shm/segment.h"')
        self.passes("src/communicator/a.cc", '#include "planner/bound.h"')
        self.passes("src/base/a.cc", '#include "topocoll/status.h"')
        self.passes("tests/planner/a_test.cc", '#include "topology/graph.h"')
        self.passes("perf/micro/a.cc", '#include "transport/shm/segment.h"')

    def test_arrows_up_and_across(self):
        self.fails("src/base/a.cc", '#include "topology/graph.h"')
        self.fails("src/planner/a.cc", '#include "transport/shm/segment.h"')
        self.fails("src/transport/a.h", '  #  include "planner/bound.h"')
        self.fails("tests/planner/a_test.cc", '#include "transport/shm/segment.h"')

    def test_only_public_headers_outside_src(self):
        self.passes("tools/a.cc", '#include "topocoll/status.h"')
        for path in ["tools/a.cc", "perf/a.cc", "plugin/a.cc", "examples/cpp/a.cc"]:
            self.fails(path, '#include "base/os.h"')
            self.fails(path, '#include "../src/base/os.h"')
        self.passes("perf/sub/a.cc", '#include "perf/table.h"')
        self.passes("perf/a.cc", '#include "table.h"')
        self.fails("tools/a.cc", '#include "perf/table.h"')
        self.passes("tools/a.cc", '#include "perf/coll_perf/launch.h"')
        self.fails("plugin/a.cc", '#include "perf/coll_perf/launch.h"')
        self.passes("tests/base/a_test.cc", '#include "support/ranks.h"')
        self.passes("tests/perf/a_test.cc", '#include "table.h"')
        self.fails("tests/tools/a_test.cc", '#include "perf/table.h"')

    def test_paths_are_written_from_src(self):
        self.fails("src/base/a.cc", '#include "os.h"')
        self.fails("src/base/a.cc", '#include "../base/os.h"')
        self.fails("src/base/a.cc", '#include "topocoll/absent.h"')

    def test_public_headers_stand_alone(self):
        self.passes("include/topocoll/a.h", "#include <vector>")
        self.passes("include/topocoll/a.h", '#include "topocoll/status.h"')
        self.fails("include/topocoll/a.h", "#include <sys/mman.h>")
        self.fails("include/topocoll/a.h", "#include <fmt/format.h>")
        self.fails("include/topocoll/a.h", '#include "base/os.h"')

    def test_libraries_stay_in_their_rooms(self):
        self.passes("src/topology/a.cc", "#include <hwloc.h>")
        self.fails("src/transport/a.cc", "#include <hwloc.h>")
        self.passes("src/collectives/cpu/a.cc", '#include "hwy/highway.h"')
        self.fails("src/base/a.cc", '#include "hwy/highway.h"')
        self.passes("plugin/a.cc", "#include <torch/torch.h>")
        self.fails("src/communicator/a.cc", "#include <torch/torch.h>")

    def test_rooms_are_known(self):
        code, output = self.check("src/attic/a.cc", "// nothing")
        self.assertEqual(code, 1)
        self.assertIn("src/attic:1: not a room", output)


if __name__ == "__main__":
    unittest.main()
