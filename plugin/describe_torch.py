"""Prints, for CMake, where torch is and what it was built with: root;version;tag;cuda;suffix.

torch is not imported: that takes seconds, and would run what other packages hook into it.
"""

import importlib.util
import pathlib
import re
import runpy
import sys
import sysconfig


def main() -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("torch is not installed here: pip install torch, then build with --no-build-isolation")
    root = pathlib.Path(spec.origin).parent
    version_file = root / "version.py"
    facts = runpy.run_path(str(version_file))
    version = str(facts["__version__"])
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        sys.exit(f"{version_file} names no version that could be understood: {version}")
    if tuple(map(int, numbers.groups())) < (2, 9):
        sys.exit(f"torch {version} is too old: topocoll needs 2.9 or newer")
    tag = "_".join(numbers.groups())
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    print(root, version, tag, facts.get("cuda") or "none", suffix, sep=";")


if __name__ == "__main__":
    main()
