#!/usr/bin/env python3
"""Checks that no file includes what its floor may not see.

tools/layers.txt says which floor may use which. On top of that:

  src/      names its own headers "floor/file.h" and the public ones <ferry/file.h>; it has no use for
            <ferry/ferry.h>, which brings every floor
  pure      floors include no header of I/O, clocks or threads
  include/  public headers include <ferry/...> and freestanding standard headers only
  cli/      includes public headers, its own, and the system's; nothing of src/

No file is longer than 800 lines. Each breach is printed as file:line: text; the exit code is then 1.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 800
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
FREESTANDING = {"stddef.h", "stdint.h", "stdbool.h"}
EFFECTS = re.compile(
    r"(stdio|time|pthread|threads|unistd|fcntl|signal|poll|dirent|dlfcn|semaphore|netdb|sched)\.h$"
    r"|(sys|arpa|net|netinet|linux)/"
)


def read_table(path):
    """The table as {floor: set of floors it may include, itself too}, and the set of pure floors."""
    rows = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            floor, _, below = line.partition(":")
            rows[floor.strip()] = set(below.split())
    pure = rows.pop("pure")
    unknown = (pure | set().union(*rows.values())) - set(rows)
    if unknown:
        sys.exit(f"{path}: unknown floor: {' '.join(sorted(unknown))}")
    return {floor: below | {floor} for floor, below in rows.items()}, pure


def public_floor(header, table):
    """The floor of <ferry/header>: the one of its name, else none (status.h, dtype.h, sys/...)."""
    stem = header.removeprefix("ferry/").removesuffix(".h")
    return stem if stem in table else None


class Checker:
    def __init__(self, table, pure):
        self.table = table
        self.pure = pure

    def source(self, path, quote, header):
        floor = path.parts[1]
        if floor not in self.table:
            return f"floor {floor} is not in tools/layers.txt"
        if quote == '"':
            below = header.split("/")[0]
            if "/" not in header or below not in self.table:
                return f'"{header}": write "floor/file.h"'
        elif header == "ferry/ferry.h":
            return "<ferry/ferry.h> brings every floor; include the header that is meant"
        elif header.startswith("ferry/"):
            below = public_floor(header, self.table)
        elif header.startswith("json-c/"):
            return f"<{header}> belongs to cli/"
        elif floor in self.pure and EFFECTS.match(header):
            return f"{floor} is pure and may not include <{header}>"
        else:
            return None
        return self.floors(floor, below, header)

    def public(self, path, quote, header):
        if quote == '"':
            return f'"{header}": public headers are included as <ferry/file.h>'
        if header.startswith("ferry/"):
            floor = public_floor(path.name, self.table)
            return self.floors(floor, public_floor(header, self.table), header)
        if header not in FREESTANDING:
            return f"<{header}>: public headers include freestanding standard headers only"
        return None

    def cli(self, path, quote, header):
        if quote == '"' and not (ROOT / path.parent / header).exists():
            return f'"{header}" is not a header of cli/'
        return None

    def floors(self, floor, below, header):
        if floor and below and below not in self.table[floor]:
            return f"{floor} may not include {header} (it may use: {' '.join(sorted(self.table[floor]))})"
        return None


def breaches(path, rule):
    lines = (ROOT / path).read_text().splitlines()
    if len(lines) > MAX_LINES:
        yield MAX_LINES + 1, f"{len(lines)} lines, at most {MAX_LINES}"
    if rule is None:
        return
    for number, line in enumerate(lines, 1):
        if found := INCLUDE.match(line):
            if text := rule(path, *found.groups()):
                yield number, text


def main():
    checker = Checker(*read_table(ROOT / "tools/layers.txt"))
    rules = {"src": checker.source, "include": checker.public, "cli": checker.cli, "test": None}
    count = 0
    for folder, rule in rules.items():
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            path = path.relative_to(ROOT)
            for line, text in breaches(path, rule):
                print(f"{path}:{line}: {text}")
                count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
