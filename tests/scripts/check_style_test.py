"""check_style.py: sizes it lets pass and sizes it catches."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_style.py"


def function(head, lines):
    """A C++ function of `lines` lines."""
    return "\n".join([head + " {"] + ["  f('{');  // {"] * (lines - 2) + ["}"]) + "\n"


class Style(unittest.TestCase):
    def check(self, path, text):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text)
            run = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
            return run.returncode, run.stdout + run.stderr

    def passes(self, path, text):
        code, output = self.check(path, text)
        self.assertEqual(code, 0, output)

    def fails(self, path, text, where):
        code, output = self.check(path, text)
        self.assertEqual(code, 1, output)
        self.assertTrue(output.startswith(f"{path}:{where}: "), output)

    def test_files(self):
        self.passes("src/base/a.cc", "// x\n" * 600)
        self.fails("src/base/a.cc", "// x\n" * 601, 601)
        self.passes("include/topocoll/a.h", "// x\n" * 300)
        self.fails("include/topocoll/a.h", "// x\n" * 301, 301)

    def test_strays_that_git_tracks(self):
        machine = "tests/topologies/machine.tar.bz2"
        for name, data in [("core", b"\x7fELF\0"), ("big.json", b" " * (1 << 20) + b"x"), ("-", b"text"),
                           (machine, b"\0" * 200_001)]:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_bytes(data)
                run = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, "it is not tracked yet")
                subprocess.run(["git", "init", "-q", folder], check=True)
                subprocess.run(["git", "-C", folder, "add", "--", name], check=True)
                run = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
                self.assertEqual(run.returncode, 1)
                self.assertTrue(run.stdout.startswith(f"{name}:1: "), run.stdout)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / machine).parent.mkdir(parents=True)
            (Path(folder) / machine).write_bytes(b"BZh9\0")
            subprocess.run(["git", "init", "-q", folder], check=True)
            subprocess.run(["git", "-C", folder, "add", machine], check=True)
            run = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stdout)

    def test_functions(self):
        for head in ["void f()", "template <class T>\nint C::f(T x) const", "TEST(A, B)"]:
            extra = head.count("\n")
            text = "namespace a {\n\n%s\n}  // namespace a\n"
            self.passes("src/base/a.cc", text % function(head, 60 - extra))
            self.fails("src/base/a.cc", text % function(head, 61 - extra), 3)

    def test_methods_count_and_classes_do_not(self):
        body = "class C {\n%s};\n"
        self.passes("src/base/a.cc", body % (function("void f()", 50) + function("void g()", 50)))
        self.fails("src/base/a.cc", body % function("void f()", 61), 2)

    def test_python_functions(self):
        self.passes("scripts/a.py", "def f():\n" + "    pass\n" * 59)
        self.fails("scripts/a.py", "def f():\n" + "    pass\n" * 60, 1)

    def test_lines_are_clean(self):
        self.fails("src/base/a.cc", "// x\n\tint y;\n", 2)
        self.fails("src/base/a.cc", "// x\nint y; \n", 2)


if __name__ == "__main__":
    unittest.main()
