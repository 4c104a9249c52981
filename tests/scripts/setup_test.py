"""quickstart.sh, test.sh and what they share, with apt and Python replaced by programs that record."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Commands(unittest.TestCase):
    def run_in_root_folder(self, *command):
        return subprocess.run(command, cwd="/", capture_output=True, text=True)

    def test_unknown_options_are_errors_with_usage(self):
        for arguments in (["--nope"], ["--only"], ["--only", "gpu"], ["-k"], ["stray"]):
            run = self.run_in_root_folder(ROOT / "test.sh", *arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn("usage: ./test.sh", run.stderr)
        run = self.run_in_root_folder(ROOT / "quickstart.sh", "--nope")
        self.assertEqual(run.returncode, 2)
        self.assertIn("usage: ./quickstart.sh", run.stderr)

    def test_help_is_no_error(self):
        run = self.run_in_root_folder(ROOT / "test.sh", "--help")
        self.assertEqual(run.returncode, 0)
        self.assertIn("--only RUNNER", run.stdout)


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="a clone ")
        self.root = Path(self.folder.name)
        (self.root / "scripts").mkdir()
        (self.root / "bin").mkdir()
        (self.root / "scripts/setup.sh").write_text((ROOT / "scripts/setup.sh").read_text())

    def tearDown(self):
        self.folder.cleanup()

    def program(self, name, body):
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def bash(self, script, **environment):
        path = f"{self.root}/bin:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", f"set -euo pipefail; source '{self.root}/scripts/setup.sh'; {script}"],
            cwd="/", env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True)

    def test_only_missing_packages_are_installed(self):
        log = self.root / "log"
        self.program("dpkg-query", 'case $4 in cmake|git) exit 1;; *) echo installed;; esac')
        self.program("apt-get", f'echo "$@" >> "{log}"')
        self.program("sudo", 'shift; exec "$@"')
        run = self.bash("ensure_packages")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("installing cmake git", run.stdout)
        update, install = log.read_text().splitlines()
        self.assertTrue(update.startswith("update"))
        self.assertTrue(install.endswith(" cmake git"), install)

    def test_a_failed_install_names_the_packages(self):
        self.program("dpkg-query", "case $4 in ninja-build) exit 1;; *) echo installed;; esac")
        self.program("apt-get", "exit 100")
        run = self.bash("ensure_packages; echo not reached")
        self.assertEqual(run.returncode, 1)
        self.assertIn("apt-get install ninja-build", run.stderr)
        self.assertNotIn("not reached", run.stdout)

    def test_nothing_missing_needs_no_apt(self):
        self.program("dpkg-query", "echo installed")
        self.program("apt-get", "exit 100")
        self.assertEqual(self.bash("ensure_packages").returncode, 0)

    def test_what_only_some_tests_use_may_be_missing(self):
        self.program("dpkg-query", "case $4 in iproute2) exit 1;; *) echo installed;; esac")
        self.program("apt-get", "exit 100")
        module = f"{self.root}/.cache/test-kernel/lib/modules/6.1/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko"
        self.program("fetch", f'mkdir -p "$(dirname "{module}")"; touch "{module}"').rename(
            self.root / "scripts/fetch_test_kernel.sh")
        run = self.bash("ensure_test_extras; ensure_test_extras")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("installing iproute2", run.stdout)
        self.assertIn("tests that need them are skipped", run.stdout)
        self.assertEqual(run.stdout.count("fetching a kernel"), 1)

    def test_an_old_python_is_named_with_its_version(self):
        old = self.program("python-old", f'''exec "{sys.executable}" -c '
import sys
sys.version_info = (3, 9, 1)
exec(sys.stdin.read())' ''')
        run = self.bash(f'python_problem "{old}"')
        self.assertEqual(run.stdout, "is 3.9, and topocoll needs 3.10 or newer\n")
        run = self.bash(f'python_problem "{self.program("python-gone", "exit 127")}"')
        self.assertEqual(run.stdout, "does not run\n")

    def test_digests_change_with_names_and_contents_only(self):
        def digest():
            return self.bash("digest_of src absent").stdout.strip()
        (self.root / "src").mkdir()
        file = self.root / "src/a b.cc"
        file.write_text("1")
        first = digest()
        self.assertEqual(len(first), 64)
        os.utime(file, (0, 0))
        self.assertEqual(digest(), first)
        file.write_text("2")
        second = digest()
        self.assertNotEqual(second, first)
        file.rename(self.root / "src/c.cc")
        self.assertNotEqual(digest(), second)


if __name__ == "__main__":
    unittest.main()
