"""cmake/Kernels.cmake: CUDA compilers that work, fail, do nothing, come and go in one build folder."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

MODULES = Path(__file__).resolve().parents[2] / "cmake"
NONE = "No CUDA compiler"

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(kernels LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
include(${MODULES}/Kernels.cmake)
add_library(topocoll_room STATIC)
target_include_directories(topocoll_room PUBLIC src)
topocoll_kernels(room words)
add_executable(show show.cc)
target_link_libraries(show PRIVATE topocoll_room)
"""
HEADER = "#include <cstddef>\n#include <span>\nnamespace topocoll { std::span<const std::byte> words(); }\n"
SHOW = """#include <cstdio>
#include "room/words.h"
int main() { for (std::byte b : topocoll::words()) std::putchar(static_cast<int>(b)); }
"""
# Puts a word and what it compiles into the file after -o.
WORKS = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
{{ printf '{word} '; cat "$3"; }} > "$2"
"""


class Kernels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        room = self.root / "src" / "room"
        room.mkdir(parents=True)
        (room / "words.cu").write_text("kernel")
        (room / "words.h").write_text(HEADER)
        (self.root / "show.cc").write_text(SHOW)
        (self.root / "CMakeLists.txt").write_text(PROJECT)
        shutil.copytree(MODULES, self.root / "cmake")

    def compiler(self, name, text):
        path = self.root / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run_cmake(self, *arguments):
        done = subprocess.run(["cmake", *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def built(self, generator, nvcc):
        """What was said, and the kernels that the program has."""
        build = self.root / generator.replace(" ", "")
        said = self.run_cmake("-S", self.root, "-B", build, "-G", generator, f"-DTOPOCOLL_NVCC={nvcc}",
                              f"-DMODULES={MODULES}")
        self.run_cmake("--build", build)
        return said, subprocess.run([build / "show"], capture_output=True, text=True, check=True).stdout

    def test_each_compiler_after_each_other(self):
        first = self.compiler("first", WORKS.format(word="first"))
        second = self.compiler("second", WORKS.format(word="second"))
        broken = self.compiler("broken", "#!/bin/sh\necho it is too old >&2\nexit 1\n")
        idle = self.compiler("idle", "#!/bin/sh\nexit 0\n")
        tools = {"ninja": "Ninja", "make": "Unix Makefiles"}
        for generator in [name for tool, name in tools.items() if shutil.which(tool)]:
            for nvcc, kernels, words in (("", "", NONE), (first, "first kernel", ""), ("", "", NONE),
                                         (second, "second kernel", ""), (broken, "", "it is too old"),
                                         (first, "first kernel", ""), (idle, "", "cannot be used"),
                                         ("/nowhere/nvcc", "", "cannot be used"), (second, "second kernel", "")):
                with self.subTest(generator=generator, nvcc=nvcc):
                    said, found = self.built(generator, nvcc)
                    self.assertEqual(found, kernels)
                    self.assertIn(words, said)
                    self.assertEqual(NONE in said, kernels == "")


if __name__ == "__main__":
    unittest.main()
