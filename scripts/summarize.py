#!/usr/bin/env python3
"""Adds up what the test runners left in a results folder.

    scripts/summarize.py [--selection] RESULTS RUNNER...

A runner is cpp, asan, tsan (files PRESET.ctest.xml from ctest and PRESET/*.xml from GoogleTest) or python
(python.pytest.xml). A GoogleTest program counts by its cases, every other test of ctest as one; a program
that ended without a report, and a runner that left nothing at all, count as one failure each. The last line
is "N passed, N failed, N skipped". Exits 1 on a failure, or if nothing was tested; with --selection a
runner may have had nothing to do.
"""

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

PRESETS = {"cpp": "dev", "asan": "asan", "tsan": "tsan"}


class Count:
    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failures = []  # names

    def add(self, name, case):
        """Counts one JUnit test case."""
        if case.find("failure") is not None or case.find("error") is not None:
            self.failures.append(name)
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            self.skipped += 1
        else:
            self.passed += 1

    def line(self):
        return f"{self.passed} passed, {len(self.failures)} failed, {self.skipped} skipped"


def cases(path):
    """The test cases of a JUnit file, or None if it is absent or cut off."""
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return None


def ctest_failed(test):
    """ctest also says "skipped" of a test whose program it cannot find."""
    skipped = test.find("skipped")
    lost = skipped is not None and not skipped.get("message", "").startswith("SKIP_")
    return lost or test.find("failure") is not None


def count_cpp(results, preset):
    count = Count()
    broken = results / f"{preset}.broken"
    if broken.exists():
        count.failures.append(f"{preset}: {broken.read_text().strip()}")
        return count
    tests = cases(results / f"{preset}.ctest.xml")
    if tests is None:
        count.failures.append(f"{preset}: ctest left no report")
        return count
    for test in tests:
        name = test.get("name", "?")
        own = cases(results / preset / f"test_{name}.xml")
        before = len(count.failures)
        for case in own or []:
            count.add(f"{preset}: {case.get('classname')}.{case.get('name')}", case)
        failed = ctest_failed(test)
        if own is None and not failed:
            count.add(f"{preset}: {name}", test)
        elif failed and len(count.failures) == before:  # crashed, hung, or leaked at its exit
            count.failures.append(f"{preset}: {name} (the program itself)")
    return count


def count_python(results):
    count = Count()
    tests = cases(results / "python.pytest.xml")
    if tests is None:
        count.failures.append("python: pytest left no report")
    for case in tests or []:
        count.add(f"python: {case.get('classname')}::{case.get('name')}", case)
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--selection", action="store_true")
    parser.add_argument("results", type=Path)
    parser.add_argument("runners", nargs="+", choices=[*PRESETS, "python"])
    arguments = parser.parse_args()
    total = Count()
    for runner in arguments.runners:
        is_python = runner == "python"
        results = arguments.results
        count = count_python(results) if is_python else count_cpp(results, PRESETS[runner])
        if not arguments.selection and not (count.passed or count.failures or count.skipped):
            count.failures.append(f"{runner}: no tests were found")
        print(f"{runner:8} {count.line()}")
        total.passed += count.passed
        total.skipped += count.skipped
        total.failures += count.failures
    for name in total.failures:
        print(f"failed: {name}")
    print(total.line())
    return 0 if total.passed and not total.failures else 1


if __name__ == "__main__":
    sys.exit(main())
