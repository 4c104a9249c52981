#!/usr/bin/env python3
"""Checks the house's arrows: which room may include which, and which library is let into which room.

    scripts/check_arrows.py [ROOT]

Prints one "file:line: what is wrong" per violation and exits 1 if there is any.
"""

import re
import sys
from pathlib import Path

# A room may include itself, the public headers, and the rooms named here.
ROOMS = {
    "base": [],
    "topology": ["base"],
    "planner": ["topology", "base"],
    "transport": ["topology", "base"],
    "probe": ["transport", "topology", "base"],
    "collectives": ["planner", "transport", "base"],
    "control": ["transport", "base"],
    "communicator": ["control", "collectives", "probe", "transport", "planner", "topology", "base"],
}
# Outside src/ only the public headers are seen. A folder's own files may include each other.
PUBLIC_ONLY = ["plugin", "tools", "perf", "examples"]
EVERYTHING = ["perf/micro", "tests/support"]
# What a top folder may include of another one.
LENT = {"tools": ["perf/coll_perf/launch.h", "perf/coll_perf/usage.h"]}

# Third-party headers, and the folders that may see them.
LIBRARIES = {
    r"hwloc(\.h|/.*)": ["src/topology"],
    r"(fmt|spdlog)/.*": ["src", "tools", "perf", "tests"],
    r"nlohmann/.*": ["src/topology", "src/planner", "tools", "perf", "tests"],
    r"pugixml\.hpp": ["src/topology"],
    r"hwy/.*": ["src/collectives", "perf/micro", "tests/collectives"],
    r"CLI/.*": ["tools", "perf"],
    r"(gtest|gmock)/.*": ["tests"],
    r"infiniband/.*": ["src/transport/verbs", "tests/probe"],
    r"(torch|ATen|c10|pybind11)/.*|Python\.h": ["plugin"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
SOURCES = {".h", ".hpp", ".cc", ".cpp", ".def", ".inc", ".cu", ".cuh"}
PUBLIC_ROOT = "include/topocoll"


def is_below(path, folder):
    return path == folder or path.startswith(folder + "/")


def allowed_rooms(path):
    """The rooms whose headers the file `path` (relative, with slashes) may include."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return {parts[1], *ROOMS.get(parts[1], [])}
    if any(is_below(path, folder) for folder in EVERYTHING):
        return set(ROOMS)
    if parts[0] == "tests" and len(parts) > 2 and parts[1] in ROOMS:
        return {parts[1], *ROOMS[parts[1]]}
    return set()


def own_tops(path):
    """The top folders outside src/ whose files the file `path` may include; tests see what they test."""
    parts = path.split("/")
    if parts[0] == "tests":
        return ["tests", *(top for top in PUBLIC_ONLY if parts[1] == top)]
    return [parts[0], *LENT.get(parts[0], [])] if parts[0] in PUBLIC_ONLY else []


def is_own(root, tops, file):
    return (root / file).is_file() and any(
        (root / file).resolve().is_relative_to((root / top).resolve()) for top in tops)


def check_quoted(root, path, target):
    """What is wrong with #include "target" in the file `path`, or None."""
    first = target.split("/")[0]
    if first == "topocoll":
        return None if (root / "include" / target).is_file() else f'no public header "{target}"'
    if is_below(path, PUBLIC_ROOT):
        return f'a public header may include only "topocoll/..." and standard headers, not "{target}"'
    if first in ROOMS and "/" in target and not path.startswith(tuple(p + "/" for p in PUBLIC_ONLY)):
        if first in allowed_rooms(path):
            return None
        return f'{"/".join(path.split("/")[:2])} may not include "{target}" (room {first})'
    tops = own_tops(path)
    if tops:
        bases = [Path(path).parent, Path("."), *map(Path, tops)]
        if first in allowed_rooms(path) or any(is_own(root, tops, base / target) for base in bases):
            return None
        return f'{tops[0]} may include only public headers and its own files, not "{target}"'
    return f'"{target}" names no room; write the path from src/, e.g. "base/os.h"'


def check_angled(path, target):
    """What is wrong with #include <target> in the file `path`, or None."""
    if is_below(path, PUBLIC_ROOT):
        if re.fullmatch(r"[a-z_]+", target):
            return None
        return f"a public header may not make its users include <{target}>"
    if target.startswith("topocoll/") and not path.startswith("examples/"):
        return f'write "{target}": it is ours'
    for pattern, folders in LIBRARIES.items():
        if re.fullmatch(pattern, target):
            if any(is_below(path, folder) for folder in folders):
                return None
            return f"<{target}> is let into {', '.join(folders)} only"
    return None


def check_file(root, path):
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, angled = match.groups()
        # Some libraries ask to be included with quotes.
        library = quoted and any(re.fullmatch(pattern, quoted) for pattern in LIBRARIES)
        if quoted and not library:
            wrong = check_quoted(root, path, quoted)
        else:
            wrong = check_angled(path, angled or quoted)
        if wrong:
            yield f"{path}:{number}: {wrong}"


def check_rooms(root):
    for folder in sorted(p for p in (root / "src").glob("*") if p.is_dir()):
        if folder.name not in ROOMS:
            yield f"src/{folder.name}:1: not a room; add it to ROOMS in scripts/check_arrows.py"


def check(root):
    violations = list(check_rooms(root))
    for top in ["include", "src", *PUBLIC_ONLY, "tests"]:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SOURCES and file.is_file():
                violations += check_file(root, file.relative_to(root).as_posix())
    return violations


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    if not (root / "src").is_dir():
        sys.exit(f"{root} has no src folder")
    violations = check(root)
    print("\n".join(violations) if violations else "all arrows point down")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
