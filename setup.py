"""Builds the wheel through the project's CMake: the library, the torch module and the commands.

Needs the torch that topocoll is to be used with, so: pip install --no-build-isolation .
The build happens in build/pip-<torch version>-<python> and is kept: a second install compiles what changed.
CMAKE_PREFIX_PATH, CMAKE_ARGS, CXX and the like are passed on.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


def project_version() -> str:
    found = re.search(r"project\(topocoll VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert found, "CMakeLists.txt names no version"
    return found.group(1)


def torch_version() -> str:
    described = subprocess.run(
        [sys.executable, str(ROOT / "plugin" / "describe_torch.py")], capture_output=True, text=True
    )
    if described.returncode != 0:
        sys.exit("topocoll: " + described.stderr.strip())
    return described.stdout.split(";")[1]


class CMakeBuild(build_ext):
    """Runs CMake and puts what it installs where setuptools looks for it."""

    def run(self) -> None:
        build = ROOT / "build" / f"pip-{torch_version()}-{sys.implementation.cache_tag}"
        stage = build / "stage"
        self.forget_if_moved(build)
        build.mkdir(parents=True, exist_ok=True)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        self.cmake(
            "-S", ROOT, "-B", build, *generator,
            "-DCMAKE_BUILD_TYPE=Release", "-DTOPOCOLL_TORCH=ON", "-DTOPOCOLL_TESTS=OFF",
            f"-DPython_EXECUTABLE={sys.executable}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        )
        self.cmake("--build", build, "--parallel", os.environ.get("MAX_JOBS", str(os.cpu_count() or 1)))
        shutil.rmtree(stage, ignore_errors=True)
        self.cmake("--install", build, "--prefix", stage, "--strip")
        self.collect(stage)

    def cmake(self, *arguments: object) -> None:
        command = ["cmake", *map(str, arguments)]
        self.announce(shlex.join(command), level=2)
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except FileNotFoundError:
            sys.exit("topocoll: cmake 3.25 or newer is needed to build (pip install cmake, or apt install cmake)")
        print(done.stdout, flush=True)
        if done.returncode != 0:
            sys.exit(f"topocoll: {shlex.join(command)} failed")

    @staticmethod
    def forget_if_moved(build: pathlib.Path) -> None:
        cache = build / "CMakeCache.txt"
        if cache.exists() and f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" not in cache.read_text():
            shutil.rmtree(build)

    def collect(self, stage: pathlib.Path) -> None:
        package = pathlib.Path(self.build_lib) / "topocoll"
        package.mkdir(parents=True, exist_ok=True)
        for file in sorted((stage / "topocoll").iterdir()):
            shutil.copy2(file, package / file.name)
        commands = stage / "bin"
        if not commands.is_dir():
            return
        for file in sorted(commands.iterdir()):
            if file.is_symlink():  # wheels cannot hold links
                replace_link(file)
        # As data, because setuptools takes scripts for Python source.
        self.distribution.data_files = [("bin", [str(f) for f in sorted(commands.iterdir())])]

    def get_outputs(self) -> list[str]:
        package = pathlib.Path(self.build_lib) / "topocoll"
        return [str(f) for f in package.iterdir() if f.suffix != ".py" or f.name.endswith("_info.py")]


def replace_link(link: pathlib.Path) -> None:
    """A command that is another one's link becomes a script that calls it under the link's name."""
    target = os.path.basename(os.readlink(link))
    link.unlink()
    link.write_text(
        "#!/bin/bash\n"
        f"exec -a {link.name} \"$(dirname -- \"$(readlink -f -- \"$0\")\")/{target}\" \"$@\"\n"
    )
    link.chmod(0o755)


setup(
    version=project_version(),
    # The name only makes setuptools run build_ext and tag the wheel for this Python and machine.
    ext_modules=[Extension("topocoll._build", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    zip_safe=False,
)
