#!/usr/bin/env python3
"""Checks the size limits of files, public headers and functions, that lines are clean, and that git tracks no strays.

    scripts/check_style.py [ROOT]             sizes, tabs, trailing blanks
    scripts/check_style.py --format [ROOT]    clang-format agrees with every C++ file
    scripts/check_style.py --fix [ROOT]       let clang-format rewrite them

Prints one "file:line: what is wrong" per violation and exits 1 if there is any.
"""

import argparse
import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

MAX_FILE = 600
MAX_PUBLIC_HEADER = 300
MAX_FUNCTION = 60
MAX_TRACKED_BYTES = 1 << 20
MAX_RECORD_BYTES = 200_000
# Longer than the limit, each for the reason given: "path" or "path:function".
EXCEPTIONS = {
    # Tables of cases, one a line or two; splitting them would hide what is missing.
    "tests/planner/verify_test.cc:dynamic_faults",
    "tests/planner/json_test.cc:TEST",
    "tests/topology/json_test.cc:TEST",
}

TOPS = ["include", "src", "plugin", "tools", "perf", "examples", "tests", "scripts"]
CPP = {".h", ".cc", ".cpp", ".def"}

# Text that may hold braces without meaning them: comments, raw strings, strings, characters.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)
CONTAINER = re.compile(r"\b(namespace|class|struct|enum|union|extern)\b")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def cpp_functions(text):
    """Yields (name, first line, number of lines) of each function that lies in no other function."""
    text = NOISE.sub(blank, re.sub(r"(?<=\d)'(?=[\da-fA-F])", " ", text))
    text = re.sub(r"^[ \t]*#.*?(?<!\\)$", blank, text, flags=re.MULTILINE | re.DOTALL)
    open_blocks = []  # (name of the function or None, first line)
    head_start = 0
    for at in re.finditer(r"[{};]", text):
        if at.group() == "{":
            head = text[head_start:at.start()]
            inside = any(name for name, _ in open_blocks)
            is_function = not inside and ")" in head and not (
                CONTAINER.search(head) and not re.search(r"\)[^)]*$", head.split("\n")[-1]))
            lead = len(head) - len(head.lstrip())
            line = text.count("\n", 0, head_start + lead) + 1
            name = re.search(r"(\w+|operator\W+)\s*\(", head)
            open_blocks.append((name.group(1) if is_function and name else None, line))
        elif at.group() == "}" and open_blocks:
            name, line = open_blocks.pop()
            if name:
                yield name, line, text.count("\n", 0, at.start()) + 2 - line
        head_start = at.end()


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def check_file(root, path):
    text = (root / path).read_text(encoding="utf-8")
    lines = text.splitlines()
    limit = MAX_PUBLIC_HEADER if path.startswith("include/") else MAX_FILE
    if len(lines) > limit and path not in EXCEPTIONS:
        yield f"{path}:{limit + 1}: {len(lines)} lines, at most {limit} are allowed"
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            yield f"{path}:{number}: a tab"
        if line != line.rstrip():
            yield f"{path}:{number}: blanks at the end"
    functions = python_functions(text) if path.endswith(".py") else cpp_functions(text)
    for name, line, length in functions:
        if length > MAX_FUNCTION and f"{path}:{name}" not in EXCEPTIONS:
            yield f"{path}:{line}: {name} has {length} lines, at most {MAX_FUNCTION} are allowed"


def sources(root, suffixes):
    for top in TOPS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in suffixes and file.is_file():
                yield file.relative_to(root).as_posix()


def check_format(root, fix):
    tool = shutil.which("clang-format")
    if not tool:
        sys.exit("clang-format is not installed")
    files = list(sources(root, CPP - {".def"}))
    mode = ["-i"] if fix else ["--dry-run", "--Werror"]
    run = subprocess.run([tool, *mode, *files], cwd=root, capture_output=True, text=True)
    wrong = {}
    for line in run.stderr.splitlines():
        match = re.match(r"(\S+?:\d+):\d+: error: ", line)
        if match:
            wrong.setdefault(match.group(1).split(":")[0], match.group(1))
    return [f"{where}: not as clang-format writes it" for where in wrong.values()]


def check_tracked(root):
    """What a crash or a mistyped flag leaves behind: large or binary files, names that no one would choose."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=False)
    names = listed.stdout.decode().split("\0") if listed.returncode == 0 else []
    for name in filter(None, names):
        path = Path(root) / name
        if not path.is_file():
            continue
        data = path.read_bytes()
        # A recorded machine is hundreds of small files, and travels as one.
        packed = name.startswith("tests/topologies/") and name.endswith(".tar.bz2")
        if len(data) > (MAX_RECORD_BYTES if packed else MAX_TRACKED_BYTES) or (b"\0" in data and not packed):
            yield f"{name}:1: {len(data)} bytes: not a source of this project"
        elif not re.match(r"[A-Za-z0-9._]", path.name):
            yield f"{name}:1: not a name for a file"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=Path(__file__).resolve().parent.parent, type=Path)
    parser.add_argument("--format", action="store_true", help="check with clang-format")
    parser.add_argument("--fix", action="store_true", help="rewrite with clang-format")
    arguments = parser.parse_args()
    if arguments.format or arguments.fix:
        violations = check_format(arguments.root, arguments.fix)
    else:
        violations = [v for path in sources(arguments.root, CPP | {".py"})
                      for v in check_file(arguments.root, path)]
        violations += check_tracked(arguments.root)
    print("\n".join(violations) if violations else "style is as agreed")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
