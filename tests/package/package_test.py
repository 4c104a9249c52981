"""The package as its user meets it: install, build the example against it in both ways, run two ranks.

    package_test.py BUILD SOURCE COMPILER
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD, SOURCE, COMPILER = sys.argv[1:4]
EXAMPLE = Path(SOURCE) / "examples" / "cpp"


def run(*command, **keywords):
    """Runs a command to its end and returns what it printed; a failure shows that and raises."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, **keywords)
    if done.returncode != 0:
        raise AssertionError(f"{command} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="topocoll package ")
        root = Path(cls.folder.name)
        run("cmake", "--install", BUILD, "--prefix", root / "first", "--component", "development")
        # Built somewhere, used elsewhere: nothing installed may name the place it was installed to.
        cls.prefix = root / "moved"
        shutil.move(root / "first", cls.prefix)
        cls.library = next(cls.prefix.rglob("libtopocoll.so")).parent

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check_two_ranks(self, program, environment):
        environment = {**os.environ, **environment, "TOPOCOLL_JOB_SECRET": os.urandom(8).hex()}
        port = str(free_port())
        ranks = [subprocess.Popen([program, str(rank), "2", port], env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                 for rank in range(2)]
        try:
            for rank, process in enumerate(ranks):
                output, _ = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 0, output)
                self.assertEqual(output, f"rank {rank} of 2: 3\n")
        finally:
            for process in ranks:
                process.kill()
                process.wait()

    def test_cmake_package(self):
        build = Path(self.folder.name) / "cmake build"
        run("cmake", "-S", EXAMPLE, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_CXX_COMPILER={COMPILER}")
        run("cmake", "--build", build)
        self.check_two_ranks(build / "all_reduce", {})

    def test_pkg_config(self):
        program = Path(self.folder.name) / "all_reduce"
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.library / "pkgconfig")}
        # Through a response file, so that the backslashes before blanks in the prefix are read as such.
        flags = run("pkg-config", "--cflags", "--libs", "topocoll", env=environment)
        (Path(self.folder.name) / "flags").write_text(flags)
        run(COMPILER, "-std=c++20", "-o", program, EXAMPLE / "all_reduce.cpp",
            f"@{self.folder.name}/flags")
        self.check_two_ranks(program, {"LD_LIBRARY_PATH": str(self.library)})
        version = run("pkg-config", "--modversion", "topocoll", env=environment)
        header = (self.prefix / "include/topocoll/version.h").read_text()
        self.assertIn(f'"{version.strip()}"', header)

    def test_libraries_of_a_prefix_are_found_when_what_was_installed_is_loaded(self):
        known = dict(re.findall(r"^(HWLOC_\w+):\w+=(.*)$", (Path(BUILD) / "CMakeCache.txt").read_text(), re.M))
        # Both outside the source tree and, as BUILD is, inside.
        for number, place in enumerate((self.folder.name, BUILD)):
            with self.subTest(place), tempfile.TemporaryDirectory(prefix="unpacked ", dir=place) as folder:
                prefix = Path(folder).resolve()
                (prefix / "include").mkdir()
                (prefix / "lib").mkdir()
                headers = Path(known["HWLOC_INCLUDE_DIR"])
                shutil.copy(headers / "hwloc.h", prefix / "include")
                shutil.copytree(headers / "hwloc", prefix / "include" / "hwloc")
                shutil.copy(known["HWLOC_LIBRARY"], prefix / "lib" / "libhwloc.so")
                build = Path(self.folder.name) / f"build with prefix {number}"
                run("cmake", "-S", SOURCE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", "-DTOPOCOLL_TESTS=OFF",
                    "-DTOPOCOLL_TOOLS=OFF", f"-DCMAKE_CXX_COMPILER={COMPILER}")
                script = (build / "cmake_install.cmake").read_text()
                looked_through = ":".join(re.findall(r'RPATH "([^"]*)"', script)).split(":")
                self.assertIn(str(prefix / "lib"), looked_through)

    def test_only_what_users_may_touch_is_installed(self):
        names = {p.relative_to(self.prefix).as_posix() for p in self.prefix.rglob("*.h")}
        expected = {f"include/topocoll/{p.name}" for p in (Path(SOURCE) / "include/topocoll").iterdir()}
        self.assertEqual(names, expected)

    def test_library_exports_topocoll_only(self):
        symbols = run("nm", "-DC", "--defined-only", self.library / "libtopocoll.so")
        ours = re.compile(r"[0-9a-f]+ \w ((vtable|typeinfo|typeinfo name) for )?topocoll::")
        self.assertEqual([line for line in symbols.splitlines() if not ours.match(line)], [])
        self.assertIn("topocoll::version()", symbols)
        needed = run("readelf", "-d", self.library / "libtopocoll.so")
        self.assertNotIn("libspdlog", needed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
