"""summarize.py: what counts as passed, failed and skipped."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "summarize.py"


def suite(*tests):
    return "<testsuites><testsuite>" + "".join(tests) + "</testsuite></testsuites>"


def case(name, inner="", status="run"):
    return f'<testcase name="{name}" classname="C" status="{status}">{inner}</testcase>'


GOOD, BAD = case("good"), case("bad", '<failure message=""/>')
SKIPPED = case("skipped", '<skipped message="no"/>')


class Summarize(unittest.TestCase):
    def run_on(self, files, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            options = [a for a in arguments if a.startswith("--")]
            runners = [a for a in arguments if not a.startswith("--")]
            run = subprocess.run([sys.executable, SCRIPT, *options, folder, *runners],
                                 capture_output=True, text=True)
            self.assertEqual(run.stderr, "")
            return run.returncode, run.stdout.splitlines()

    def test_all_runners_add_up(self):
        code, lines = self.run_on({
            "dev.ctest.xml": suite(case("base"), case("arrows")),
            "dev/test_base.xml": suite(GOOD, case("also"), SKIPPED),
            "python.pytest.xml": suite(GOOD, SKIPPED),
        }, "cpp", "python")
        self.assertEqual(code, 0)
        self.assertEqual(lines[-1], "4 passed, 0 failed, 2 skipped")

    def test_failures_are_named(self):
        code, lines = self.run_on({
            "dev.ctest.xml": suite(case("base", "<failure/>", "fail")),
            "dev/test_base.xml": suite(GOOD, BAD),
            "python.pytest.xml": suite(case("broken", "<error/>"), GOOD),
        }, "cpp", "python")
        self.assertEqual(code, 1)
        self.assertEqual(lines[-3:], ["failed: dev: C.bad",
                                      "failed: python: C::broken", "2 passed, 2 failed, 0 skipped"])

    def test_a_program_that_crashed_or_left_no_report_has_failed(self):
        code, lines = self.run_on({"asan.ctest.xml": suite(case("base", "<failure/>", "fail"))}, "asan")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        code, lines = self.run_on({
            "asan.ctest.xml": suite(case("base", "<failure/>", "fail")),
            "asan/test_base.xml": suite(GOOD),  # all cases passed, then e.g. a leak was found
        }, "asan")
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_program_that_is_missing_has_failed(self):
        lost = case("base", '<skipped message="Unable to find executable"/>', "notrun")
        code, lines = self.run_on({"dev.ctest.xml": suite(lost, case("arrows"))}, "cpp")
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        skipped = case("base", '<skipped message="SKIP_RETURN_CODE=77"/>', "notrun")
        code, lines = self.run_on({"dev.ctest.xml": suite(skipped, case("arrows"))}, "cpp")
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))

    def test_a_runner_without_report_has_failed(self):
        for runner in ("cpp", "tsan", "python"):
            code, lines = self.run_on({}, runner)
            self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"), runner)
        code, lines = self.run_on({"python.pytest.xml": "<testsuites><testsuite>"}, "python")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        code, lines = self.run_on({"tsan.broken": "build failed\n"}, "tsan")
        self.assertEqual((code, lines[-2]), (1, "failed: tsan: build failed"))

    def test_nothing_tested_is_a_failure_even_of_a_selection(self):
        files = {"dev.ctest.xml": suite(), "python.pytest.xml": suite(GOOD)}
        self.assertEqual(self.run_on(files, "cpp", "python")[0], 1)
        self.assertEqual(self.run_on(files, "--selection", "cpp", "python")[0], 0)
        self.assertEqual(self.run_on(files, "--selection", "cpp")[0], 1)


if __name__ == "__main__":
    unittest.main()
